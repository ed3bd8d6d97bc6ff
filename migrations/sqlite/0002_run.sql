-- A run is one row while it lives; what it did is in its steps and records.
CREATE TABLE run (
    id         INTEGER PRIMARY KEY,
    tenant     TEXT NOT NULL,
    workflow   TEXT NOT NULL,
    version    INTEGER NOT NULL,
    key        TEXT,
    parent     INTEGER,
    input      TEXT NOT NULL,
    input_hash BLOB NOT NULL CHECK (length(input_hash) = 33),
    state      INTEGER NOT NULL CHECK (state BETWEEN 0 AND 5),
    wake_at    INTEGER,
    waits_on   INTEGER NOT NULL CHECK (waits_on BETWEEN 0 AND 3), -- 1: an answer, 2: a signal
    outcome    TEXT,
    fence      INTEGER NOT NULL,
    revision   INTEGER NOT NULL,               -- NULL stands for a refusal: see store/sqlite/row.rs
    deaths     INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    unsettled  INTEGER NOT NULL,               -- calls that it dropped were under way when it ended
    number     INTEGER NOT NULL,               -- drawn when it begins: part of the keys that are made of the run
    base       INTEGER NOT NULL DEFAULT 0,      -- what it does outside of loops is recorded under it
    turn       INTEGER NOT NULL DEFAULT 1,      -- the loop's present turn, or the next one to be
    queue      TEXT,
    queue_key  TEXT,
    priority   INTEGER,
    admitted_at INTEGER,                       -- it has a place in its queue, while it is active or waits
    CHECK ((queue IS NULL) = (priority IS NULL)),
    CHECK (queue IS NOT NULL OR (queue_key IS NULL AND admitted_at IS NULL)),
    CHECK (state <> 0 OR (queue IS NOT NULL AND admitted_at IS NULL)),
    CHECK ((state >= 3) = (outcome IS NOT NULL)),
    CHECK ((wake_at IS NULL AND waits_on = 0) OR state = 2)
) STRICT;
CREATE UNIQUE INDEX run_key ON run (tenant, workflow, key) WHERE key IS NOT NULL;
CREATE INDEX run_list ON run (tenant, id);
CREATE INDEX run_active ON run (id) WHERE state = 1;
CREATE INDEX run_answered ON run (id) WHERE waits_on IN (1, 3);
CREATE INDEX run_children ON run (tenant, parent, id) WHERE parent IS NOT NULL;
CREATE INDEX run_queued ON run (queue, tenant, priority DESC, created_at, id) WHERE state = 0;
CREATE INDEX run_admitted ON run (queue, admitted_at, tenant, id, queue_key, fence)
WHERE admitted_at IS NOT NULL AND state IN (1, 2);
CREATE INDEX run_unsettled ON run (id) WHERE unsettled;
CREATE INDEX run_due ON run (wake_at) WHERE wake_at IS NOT NULL;
-- As for records: only a first revision may be new.
-- An upsert that changes an existing row does not come by here.
CREATE TRIGGER run_first AFTER INSERT ON run WHEN NEW.revision <> 1
BEGIN SELECT RAISE(ABORT, 'no such run'); END;

-- Checkpoints, clustered by run and turn: they arrive in order and are read together.
CREATE TABLE step (
    tenant     TEXT NOT NULL,
    run        INTEGER NOT NULL,               -- NULL stands for a refusal: see store/sqlite/row.rs
    turn       INTEGER NOT NULL DEFAULT 0,
    kind       INTEGER NOT NULL,
    name       TEXT NOT NULL,
    id         TEXT NOT NULL,
    input_hash BLOB,
    value      TEXT,
    at         INTEGER NOT NULL,
    PRIMARY KEY (tenant, run, turn, kind, name, id)
) STRICT, WITHOUT ROWID;

-- Runs that were answered from a record which they do not own.
CREATE TABLE use (
    tenant TEXT NOT NULL,
    run    INTEGER NOT NULL,
    record INTEGER NOT NULL,
    turn   INTEGER NOT NULL,
    step   TEXT NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (tenant, run, turn, record)
) STRICT, WITHOUT ROWID;
CREATE INDEX use_record ON use (tenant, record);
