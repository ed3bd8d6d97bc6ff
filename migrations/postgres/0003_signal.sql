-- What was said to runs: kept until its run receives it, and after that so that the same again is known.
CREATE TABLE signal (
    tenant   TEXT COLLATE "C" NOT NULL,
    run      BIGINT NOT NULL,
    name     TEXT COLLATE "C" NOT NULL,
    id       TEXT COLLATE "C" NOT NULL,
    place    BIGINT NOT NULL,                  -- below zero on the way to be received: see store/postgres/signal.rs
    body     TEXT COLLATE "C" NOT NULL,
    at       BIGINT NOT NULL,
    received BOOLEAN NOT NULL,
    PRIMARY KEY (tenant, run, name, id)
);
CREATE INDEX signal_pending ON signal (tenant, run, place) WHERE NOT received;
