-- Messages that consumers were given: each is processed once, in the transaction that says so. What was tried and has not
-- succeeded is counted before it is tried, so that one that kills its process is found out. State 5 is written before the
-- closure runs, in its transaction: it is durable only if the closure ended that transaction by itself.
CREATE TABLE inbox (
    tenant     TEXT NOT NULL,
    consumer   TEXT NOT NULL,
    message    TEXT NOT NULL,
    state      INTEGER NOT NULL CHECK (state BETWEEN 1 AND 5), -- 1: tried, 2: processed, 3: outdated, 4: set aside,
                                               -- 5: set aside, for its closure ended the transaction
    tries      INTEGER NOT NULL,
    result     TEXT,                           -- of the processing: canonical JSON
    detail     TEXT,                           -- why the last try failed
    escalation INTEGER,                        -- what is asked about one that is set aside
    at         INTEGER NOT NULL,               -- of the first try
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
