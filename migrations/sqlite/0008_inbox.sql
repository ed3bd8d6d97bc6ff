-- Messages that consumers were given: each is processed once, in the transaction that says so. State 5 is written before the
-- closure runs, in its transaction: it is durable only if the closure ended that transaction by itself.
CREATE TABLE inbox (
    tenant     TEXT NOT NULL,
    consumer   TEXT NOT NULL,
    message    TEXT NOT NULL,
    state      INTEGER NOT NULL CHECK (state BETWEEN 2 AND 5), -- 2: processed, 3: outdated, 4: set aside,
                                               -- 5: set aside, for its closure ended the transaction
    tries      INTEGER NOT NULL,               -- of one that is set aside: in vain
    result     TEXT,                           -- of the processing: canonical JSON
    detail     TEXT,                           -- of one that is set aside: why the last try failed
    escalation INTEGER,                        -- what is asked about one that is set aside
    at         INTEGER NOT NULL,               -- when that was
    CHECK ((state = 2) = (result IS NOT NULL)),
    PRIMARY KEY (tenant, consumer, message)
) STRICT, WITHOUT ROWID;

-- The version that a consumer has of an aggregate: no older one, and none of the same number, is processed after it.
CREATE TABLE inbox_version (
    tenant    TEXT NOT NULL,
    consumer  TEXT NOT NULL,
    aggregate TEXT NOT NULL,
    version   INTEGER NOT NULL,
    PRIMARY KEY (tenant, consumer, aggregate)
) STRICT, WITHOUT ROWID;

-- Tries of messages that are not processed. A try is counted before it is made, beside its transaction: so a message that
-- kills its process is found out.
CREATE TABLE inbox_try (
    tenant   TEXT NOT NULL,
    consumer TEXT NOT NULL,
    message  TEXT NOT NULL,
    tries    INTEGER NOT NULL,
    detail   TEXT,                   -- why the last one failed
    PRIMARY KEY (tenant, consumer, message)
) STRICT, WITHOUT ROWID;
