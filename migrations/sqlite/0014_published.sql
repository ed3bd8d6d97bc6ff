-- The values that runs show to the outside, the last one of each name. They go with the details of their run.
CREATE TABLE published (
    tenant   TEXT NOT NULL,
    run      INTEGER NOT NULL,
    name     TEXT NOT NULL,
    revision INTEGER NOT NULL,
    value    TEXT NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (tenant, run, name)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER published_first AFTER INSERT ON published WHEN NEW.revision <> 1
BEGIN SELECT RAISE(ABORT, 'no such published value'); END;
