-- What is remembered. The memories of one kind about one subject stand on a shelf. Whoever writes takes the shelf's next
-- place, and so knows that nothing on it has changed since it was read: of two that decide at once, one decides again.
CREATE TABLE memory_shelf (
    tenant  TEXT NOT NULL,
    subject TEXT NOT NULL,
    kind    TEXT NOT NULL,
    place   INTEGER NOT NULL CHECK (place > 0), -- how often it was written to
    PRIMARY KEY (tenant, subject, kind)
) STRICT, WITHOUT ROWID;
CREATE TABLE memory (
    tenant       TEXT NOT NULL,
    id           INTEGER NOT NULL,
    subject      TEXT NOT NULL,
    kind         TEXT NOT NULL,
    place        INTEGER NOT NULL,              -- at which it was new
    content      TEXT NOT NULL,                 -- '' once it is forgotten
    digest       BLOB NOT NULL CHECK (length(digest) = 32), -- of its normal form, keyed; it stays
    confidence   INTEGER NOT NULL CHECK (confidence BETWEEN 0 AND 1000000),
    sources      INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    forgotten_at INTEGER,
    forgotten_by TEXT,
    reason       TEXT,
    CHECK ((forgotten_at IS NULL) = (forgotten_by IS NULL) AND (forgotten_at IS NULL) = (reason IS NULL)),
    CHECK (forgotten_at IS NULL OR content = ''),
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX memory_place ON memory (tenant, subject, kind, place) WHERE forgotten_at IS NULL;
-- The normal forms under which a memory is known, by their keyed digests: each stands for one memory.
CREATE TABLE memory_form (
    tenant  TEXT NOT NULL,
    subject TEXT NOT NULL,
    kind    TEXT NOT NULL,
    digest  BLOB NOT NULL CHECK (length(digest) = 32),
    memory  INTEGER NOT NULL,
    PRIMARY KEY (tenant, subject, kind, digest)
) STRICT, WITHOUT ROWID;
CREATE INDEX memory_form_of ON memory_form (tenant, memory);
-- Who said it, in which words, and what was answered: by the key of the operation, so that the same again gets the first
-- answer.
CREATE TABLE memory_source (
    tenant     TEXT NOT NULL,
    key        TEXT NOT NULL,
    memory     INTEGER NOT NULL,
    place      INTEGER NOT NULL,
    request    BLOB NOT NULL CHECK (length(request) = 32), -- what the key is bound to, keyed
    source     TEXT NOT NULL,                   -- '' once it is forgotten, as its words
    content    TEXT NOT NULL,
    confidence INTEGER NOT NULL CHECK (confidence BETWEEN 0 AND 1000000),
    answer     TEXT NOT NULL,                   -- JSON; holds no words
    at         INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX memory_source_of ON memory_source (tenant, memory, place);
CREATE INDEX memory_source_said ON memory_source (tenant, memory, source, confidence);
-- Memories that cannot both be true, in both directions.
CREATE TABLE memory_contradiction (
    tenant  TEXT NOT NULL,
    memory  INTEGER NOT NULL,
    other   INTEGER NOT NULL,
    differs INTEGER NOT NULL CHECK (differs BETWEEN 1 AND 4), -- 1: negation, 2: number, 3: identifier, 4: date
    PRIMARY KEY (tenant, memory, other)
) STRICT, WITHOUT ROWID;
