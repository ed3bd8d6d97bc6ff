-- The labels of runs. A run without labels has no row. They go with the details of their run, as the last of them.
CREATE TABLE run_label (
    tenant     TEXT COLLATE "C" NOT NULL,
    run        BIGINT NOT NULL,
    name       TEXT COLLATE "C" NOT NULL,
    value      TEXT COLLATE "C" NOT NULL,
    started_at BIGINT NOT NULL,               -- of the run
    PRIMARY KEY (tenant, run, name)
);
CREATE INDEX run_label_value ON run_label (tenant, name, value, started_at, run);
