-- Rows that guards own: one document of JSON each, changed one revision at a time. What it says is its guard's alone; that
-- something is still to be done about it is seen from outside.
CREATE TABLE document (
    tenant     TEXT COLLATE "C" NOT NULL,
    kind       TEXT COLLATE "C" NOT NULL,   -- whose it is, as in 'approval'
    id         TEXT COLLATE "C" NOT NULL,
    revision   BIGINT NOT NULL,
    open       BOOLEAN NOT NULL,
    body       TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, kind, id)
);
CREATE INDEX document_open ON document (tenant, kind, id) WHERE open;
