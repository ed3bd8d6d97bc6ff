-- The labels of runs. A run without labels has no row. They go with the details of their run, as the last of them.
CREATE TABLE run_label (
    tenant     TEXT NOT NULL,
    run        INTEGER NOT NULL,
    name       TEXT NOT NULL,
    value      TEXT NOT NULL,
    started_at INTEGER NOT NULL,               -- of the run
    PRIMARY KEY (tenant, run, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_label_value ON run_label (tenant, name, value, started_at, run);
