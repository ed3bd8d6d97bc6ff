-- The attempts and lookups of a record, as far as the record itself does not tell of them: no row for a call that was
-- sent once. They go with the content of their record.
CREATE TABLE contact (
    tenant       TEXT NOT NULL,
    record       INTEGER NOT NULL,
    id           INTEGER NOT NULL,             -- of an attempt its number; of a lookup one that its worker gave
    is_lookup    INTEGER NOT NULL,
    number       INTEGER NOT NULL,             -- among the attempts, or among the lookups
    attempt      INTEGER NOT NULL,             -- that was made, or that a lookup asks about
    worker       INTEGER NOT NULL,
    began        INTEGER,                      -- absent: by the time of its end
    ended        INTEGER NOT NULL,             -- or when its worker was found to be gone
    result       INTEGER NOT NULL,
    error        TEXT,
    message      TEXT,
    external_ref TEXT,
    PRIMARY KEY (tenant, record, id)
) STRICT, WITHOUT ROWID;
