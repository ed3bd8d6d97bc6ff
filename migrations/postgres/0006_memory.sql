-- What is remembered. The memories of one kind about one subject stand on a shelf. Whoever writes takes the shelf's next
-- place, and so knows that nothing on it has changed since it was read: of two that decide at once, one decides again.
CREATE TABLE memory_shelf (
    tenant  TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C" NOT NULL,
    kind    TEXT COLLATE "C" NOT NULL,
    place   BIGINT NOT NULL, -- how often it was written to
    PRIMARY KEY (tenant, subject, kind)
);
CREATE TABLE memory (
    tenant       TEXT COLLATE "C" NOT NULL,
    id           BIGINT NOT NULL,
    subject      TEXT COLLATE "C" NOT NULL,
    kind         TEXT COLLATE "C" NOT NULL,
    place        BIGINT NOT NULL,              -- at which it was new
    content      TEXT COLLATE "C" NOT NULL,                 -- '' once it is forgotten
    digest       BYTEA NOT NULL, -- of its normal form, keyed; it stays
    confidence   BIGINT NOT NULL,
    sources      BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    forgotten_at BIGINT,
    forgotten_by TEXT COLLATE "C",
    reason       TEXT COLLATE "C",
    PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX memory_place ON memory (tenant, subject, kind, place) WHERE forgotten_at IS NULL;
-- The normal forms under which a memory is known, by their keyed digests: each stands for one memory.
CREATE TABLE memory_form (
    tenant  TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C" NOT NULL,
    kind    TEXT COLLATE "C" NOT NULL,
    digest  BYTEA NOT NULL,
    memory  BIGINT NOT NULL,
    PRIMARY KEY (tenant, subject, kind, digest)
);
CREATE INDEX memory_form_of ON memory_form (tenant, memory);
-- Who said it, in which words, and what was answered: by the key of the operation, so that the same again gets the first
-- answer.
CREATE TABLE memory_source (
    tenant     TEXT COLLATE "C" NOT NULL,
    key        TEXT COLLATE "C" NOT NULL,
    memory     BIGINT NOT NULL,
    place      BIGINT NOT NULL,
    request    BYTEA NOT NULL, -- what the key is bound to, keyed
    source     TEXT COLLATE "C" NOT NULL,                   -- '' once it is forgotten, as its words
    content    TEXT COLLATE "C" NOT NULL,
    confidence BIGINT NOT NULL,
    answer     TEXT COLLATE "C" NOT NULL,                   -- JSON; holds no words
    at         BIGINT NOT NULL,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX memory_source_of ON memory_source (tenant, memory, place);
CREATE INDEX memory_source_said ON memory_source (tenant, memory, source, confidence);
-- Memories that cannot both be true, in both directions.
CREATE TABLE memory_contradiction (
    tenant  TEXT COLLATE "C" NOT NULL,
    memory  BIGINT NOT NULL,
    other   BIGINT NOT NULL,
    differs BIGINT NOT NULL, -- 1: negation, 2: number, 3: identifier, 4: date
    PRIMARY KEY (tenant, memory, other)
);
