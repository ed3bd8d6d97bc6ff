-- Rows that guards own: one document of JSON each, changed one revision at a time. What it says is its guard's alone; that
-- something is still to be done about it is seen from outside.
CREATE TABLE document (
    tenant     TEXT NOT NULL,
    kind       TEXT NOT NULL,               -- whose it is, as in 'approval'
    id         TEXT NOT NULL,
    revision   INTEGER NOT NULL,
    open       INTEGER NOT NULL,
    body       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX document_open ON document (tenant, kind, id) WHERE open;
CREATE TRIGGER document_first AFTER INSERT ON document WHEN NEW.revision <> 1
BEGIN SELECT RAISE(ABORT, 'no such document'); END;
