-- Messages that consumers were given: each is processed once, in the transaction that says so. State 5 is written before the
-- closure runs, in its transaction: it is durable only if the closure ended that transaction by itself.
CREATE TABLE inbox (
    tenant     TEXT COLLATE "C" NOT NULL,
    consumer   TEXT COLLATE "C" NOT NULL,
    message    TEXT COLLATE "C" NOT NULL,
    state      BIGINT NOT NULL,                -- 2: processed, 3: outdated, 4: set aside,
                                               -- 5: set aside, for its closure ended the transaction
    tries      BIGINT NOT NULL,                -- of one that is set aside: in vain
    result     TEXT COLLATE "C",               -- of the processing: canonical JSON
    detail     TEXT COLLATE "C",               -- of one that is set aside: why the last try failed
    escalation BIGINT,                         -- what is asked about one that is set aside
    at         BIGINT NOT NULL,                -- when that was
    PRIMARY KEY (tenant, consumer, message)
);

-- The version that a consumer has of an aggregate: no older one, and none of the same number, is processed after it.
CREATE TABLE inbox_version (
    tenant    TEXT COLLATE "C" NOT NULL,
    consumer  TEXT COLLATE "C" NOT NULL,
    aggregate TEXT COLLATE "C" NOT NULL,
    version   BIGINT NOT NULL,
    PRIMARY KEY (tenant, consumer, aggregate)
);

-- Tries of messages that are not processed. A try is counted before it is made, beside its transaction: so a message that
-- kills its process is found out.
CREATE TABLE inbox_try (
    tenant   TEXT COLLATE "C" NOT NULL,
    consumer TEXT COLLATE "C" NOT NULL,
    message  TEXT COLLATE "C" NOT NULL,
    tries    BIGINT NOT NULL,
    detail   TEXT COLLATE "C",       -- why the last one failed
    PRIMARY KEY (tenant, consumer, message)
);
