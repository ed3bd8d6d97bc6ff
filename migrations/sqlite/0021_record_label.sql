-- The labels of records. A record without labels has no row. They go with the content of their record.
CREATE TABLE record_label (
    tenant TEXT NOT NULL,
    record INTEGER NOT NULL,
    name   TEXT NOT NULL,
    value  TEXT NOT NULL,
    key    TEXT NOT NULL,                      -- of the record
    PRIMARY KEY (tenant, record, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX record_label_value ON record_label (tenant, name, value, key);
