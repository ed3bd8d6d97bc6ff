-- The values that runs show to the outside, the last one of each name. They go with the details of their run.
CREATE TABLE published (
    tenant   TEXT COLLATE "C" NOT NULL,
    run      BIGINT NOT NULL,
    name     TEXT COLLATE "C" NOT NULL,
    revision BIGINT NOT NULL,
    value    TEXT COLLATE "C" NOT NULL,
    at       BIGINT NOT NULL,
    PRIMARY KEY (tenant, run, name)
);
