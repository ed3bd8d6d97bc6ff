-- The attempts and lookups of a record, as far as the record itself does not tell of them: no row for a call that was
-- sent once. They go with the content of their record.
CREATE TABLE contact (
    tenant       TEXT COLLATE "C" NOT NULL,
    record       BIGINT NOT NULL,
    id           BIGINT NOT NULL,             -- of an attempt its number; of a lookup one that its worker gave
    is_lookup    BOOLEAN NOT NULL,
    number       BIGINT NOT NULL,             -- among the attempts, or among the lookups
    attempt      BIGINT NOT NULL,             -- that was made, or that a lookup asks about
    worker       BIGINT NOT NULL,
    began        BIGINT,                      -- absent: by the time of its end
    ended        BIGINT NOT NULL,             -- or when its worker was found to be gone
    result       BIGINT NOT NULL,
    error        TEXT COLLATE "C",
    message      TEXT COLLATE "C",
    external_ref TEXT COLLATE "C",
    PRIMARY KEY (tenant, record, id)
);
