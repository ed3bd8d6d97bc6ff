-- What is begun at its time. A tick begins a run and moves the schedule on in one change, and the run's start key is made
-- of schedule and instant: however many workers see that it is due, it is begun once.
CREATE TABLE schedule (
    tenant     TEXT COLLATE "C" NOT NULL,
    name       TEXT COLLATE "C" NOT NULL,
    workflow   TEXT COLLATE "C" NOT NULL,
    version    BIGINT NOT NULL,
    rule       TEXT COLLATE "C" NOT NULL,               -- JSON: when, and what about runs that overlap
    input      TEXT COLLATE "C" NOT NULL,
    state      BIGINT NOT NULL,               -- 1: it goes on, 2: paused, 3: deleted
    next_at    BIGINT,
    last_at    BIGINT,
    last_run   BIGINT,
    missed     BIGINT NOT NULL,
    revision   BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
);
CREATE INDEX schedule_due ON schedule (next_at, tenant, name) WHERE next_at IS NOT NULL;
