-- The labels of records. A record without labels has no row. They go with the content of their record.
CREATE TABLE record_label (
    tenant TEXT COLLATE "C" NOT NULL,
    record BIGINT NOT NULL,
    name   TEXT COLLATE "C" NOT NULL,
    value  TEXT COLLATE "C" NOT NULL,
    key    TEXT COLLATE "C" NOT NULL,         -- of the record
    PRIMARY KEY (tenant, record, name)
);
CREATE INDEX record_label_value ON record_label (tenant, name, value, key);
