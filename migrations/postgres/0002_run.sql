-- A run is one row while it lives; what it did is in its steps and records.
CREATE TABLE run (
    id         BIGINT NOT NULL,
    tenant     TEXT COLLATE "C" NOT NULL,
    workflow   TEXT COLLATE "C" NOT NULL,
    version    BIGINT NOT NULL,
    key        TEXT COLLATE "C",
    parent     BIGINT,
    input      TEXT COLLATE "C" NOT NULL,
    input_hash BYTEA NOT NULL,
    state      BIGINT NOT NULL,
    wake_at    BIGINT,
    waits_on   BIGINT NOT NULL,                -- 1: an answer, 2: a signal
    outcome    TEXT COLLATE "C",
    fence      BIGINT NOT NULL,
    revision   BIGINT NOT NULL,                -- below zero on the way in: see store/postgres/row.rs
    deaths     BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    unsettled  BOOLEAN NOT NULL,               -- calls that it dropped were under way when it ended
    number     BIGINT  NOT NULL,               -- drawn when it begins: part of the keys that are made of the run
    base       BIGINT NOT NULL DEFAULT 0,       -- what it does outside of loops is recorded under it
    turn       BIGINT NOT NULL DEFAULT 1,       -- the loop's present turn, or the next one to be
    queue      TEXT COLLATE "C",
    queue_key  TEXT COLLATE "C",
    priority   BIGINT,
    admitted_at BIGINT,                        -- it has a place in its queue, while it is active or waits
    PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX run_key ON run (tenant, workflow, key) WHERE key IS NOT NULL;
CREATE INDEX run_active ON run (id) WHERE state = 1;
CREATE INDEX run_answered ON run (id) WHERE waits_on IN (1, 3);
CREATE INDEX run_children ON run (tenant, parent, id) WHERE parent IS NOT NULL;
CREATE INDEX run_queued ON run (queue, tenant, priority DESC, created_at, id) WHERE state = 0;
CREATE INDEX run_admitted ON run (queue, admitted_at, tenant, id, queue_key, fence)
WHERE admitted_at IS NOT NULL AND state IN (1, 2);
CREATE INDEX run_unsettled ON run (id) WHERE unsettled;
CREATE INDEX run_due ON run (wake_at, id) WHERE wake_at IS NOT NULL;

-- Checkpoints, found by their run and turn.
CREATE TABLE step (
    tenant     TEXT COLLATE "C" NOT NULL,
    run        BIGINT NOT NULL,
    turn       BIGINT NOT NULL DEFAULT 0,
    kind       BIGINT NOT NULL,
    name       TEXT COLLATE "C" NOT NULL,
    id         TEXT COLLATE "C" NOT NULL,
    input_hash BYTEA,
    value      TEXT COLLATE "C",
    at         BIGINT NOT NULL,
    PRIMARY KEY (tenant, run, turn, kind, name, id)
);

-- Runs that were answered from a record which they do not own.
CREATE TABLE use (
    tenant TEXT COLLATE "C" NOT NULL,
    run    BIGINT NOT NULL,
    record BIGINT NOT NULL,
    turn   BIGINT NOT NULL,
    step   TEXT COLLATE "C" NOT NULL,
    at     BIGINT NOT NULL,
    PRIMARY KEY (tenant, run, turn, record)
);
CREATE INDEX use_record ON use (tenant, record, run, turn);
