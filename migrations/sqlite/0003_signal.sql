-- What was said to runs: kept until its run receives it, and after that so that the same again is known.
CREATE TABLE signal (
    tenant   TEXT NOT NULL,
    run      INTEGER NOT NULL,                 -- NULL stands for a refusal: see store/sqlite/row.rs
    name     TEXT NOT NULL,
    id       TEXT NOT NULL,
    place    INTEGER NOT NULL,                 -- NULL, too
    body     TEXT NOT NULL,
    at       INTEGER NOT NULL,
    received INTEGER NOT NULL,
    PRIMARY KEY (tenant, run, name, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX signal_pending ON signal (tenant, run, place) WHERE NOT received;
-- An upsert that changes an existing row does not come by here.
CREATE TRIGGER signal_first AFTER INSERT ON signal WHEN NEW.received
BEGIN SELECT RAISE(ABORT, 'no such signal'); END;
