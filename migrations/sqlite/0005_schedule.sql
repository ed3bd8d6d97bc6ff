-- What is begun at its time. A tick begins a run and moves the schedule on in one change, and the run's start key is made
-- of schedule and instant: however many workers see that it is due, it is begun once.
CREATE TABLE schedule (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    workflow   TEXT NOT NULL,
    version    INTEGER NOT NULL,
    rule       TEXT NOT NULL,               -- JSON: when, and what about runs that overlap
    input      TEXT NOT NULL,
    state      INTEGER NOT NULL CHECK (state BETWEEN 1 AND 3), -- 1: it goes on, 2: paused, 3: deleted
    next_at    INTEGER,
    last_at    INTEGER,
    last_run   INTEGER,
    missed     INTEGER NOT NULL,
    revision   INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    CHECK (next_at IS NULL OR state = 1),
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX schedule_due ON schedule (next_at, tenant, name) WHERE next_at IS NOT NULL;
CREATE TRIGGER schedule_first AFTER INSERT ON schedule WHEN NEW.revision <> 1
BEGIN SELECT RAISE(ABORT, 'no such schedule'); END;
