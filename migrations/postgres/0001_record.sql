-- The same tables as in SQLite's migration of this number. What differs here, and why:
-- * The tenant comes first in every primary and unique key, so that a distributed PostgreSQL can place rows by it.
-- * No triggers, sequences, foreign keys: a distributed PostgreSQL lacks some of them. What they do in SQLite, the statements
--   do here: a row that is sent to move another one on, and finds none, shows it, and the statement aborts.
-- * Text is compared by bytes (COLLATE "C"). A collation of the operating system may change with its update, and a
--   unique index in the old order no longer finds what is there: a silent duplicate.
-- * PostgreSQL cannot store a NUL in text: it stands as U+0001 '0', and U+0001 as U+0001 '1'.

-- A worker is one engine process. It enrols and is given the next fence; every write it makes is admitted
-- only while its row says that it has not ended. Whoever takes its work over ends it first.
CREATE TABLE worker (
    fence       BIGINT NOT NULL PRIMARY KEY,
    name        TEXT COLLATE "C" NOT NULL UNIQUE,
    enrolled_at BIGINT NOT NULL,               -- microseconds UTC, like every instant here
    lease_until BIGINT,                        -- by this database's clock; NULL: its lock tells whether it lives
    ended_at    BIGINT,
    retired     BOOLEAN NOT NULL,              -- it ended in order
    settled     BOOLEAN NOT NULL,              -- nothing of it is left to be taken over
    publishes   BOOLEAN NOT NULL DEFAULT false -- it publishes events: one worker at a time does
) WITH (fillfactor = 50);                      -- leases are renewed for ever: room for that in the page
CREATE INDEX worker_open ON worker (fence) WHERE NOT settled;
CREATE UNIQUE INDEX worker_publishes ON worker (publishes) WHERE publishes AND ended_at IS NULL;

-- The last fence that was given. It is never given again, not even after its worker's row is gone.
CREATE TABLE fence (
    id   BIGINT NOT NULL PRIMARY KEY,
    last BIGINT NOT NULL
);
INSERT INTO fence (id, last) VALUES (1, 0);

-- A tenant's own key for digests of secrets.
CREATE TABLE tenant (
    tenant     TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    digest_key BYTEA NOT NULL
);

-- A record is inserted as started before its call is dispatched, and changed when its outcome is known.
-- The id is a place, given in order of arrival. Identity is (tenant, key).
-- There are no CHECKs as in SQLite: PostgreSQL reads each of them anew for each statement, which took a third of the
-- time of writing a row, and writes the row that violates one, payloads and all, into the server's log.
CREATE TABLE record (
    id            BIGINT NOT NULL,
    tenant        TEXT COLLATE "C" NOT NULL,
    key           TEXT COLLATE "C" NOT NULL,
    operation     TEXT COLLATE "C" NOT NULL,
    class         BIGINT NOT NULL,
    request       TEXT COLLATE "C" NOT NULL,   -- canonical JSON, or '@' and a digest in the payload table
    request_hash  BYTEA NOT NULL,
    declaration   BIGINT NOT NULL,             -- of its tool, when it went out: a document of the ledger's own tenant
    run           BIGINT,
    turn          BIGINT NOT NULL DEFAULT 0,   -- of the run's loops
    step          TEXT COLLATE "C",
    call_id       TEXT COLLATE "C",
    fence         BIGINT NOT NULL,
    loose         BIGINT GENERATED ALWAYS AS (CASE WHEN run IS NULL AND status = 1 THEN fence END) STORED, -- an index on its parts would be written for each outcome
    revision      BIGINT NOT NULL,             -- below zero on the way in: see store/postgres/row.rs
    attempts      BIGINT NOT NULL,
    spent         BIGINT NOT NULL DEFAULT 0,
    status        BIGINT NOT NULL,
    basis         BIGINT NOT NULL,
    outcome       TEXT COLLATE "C",            -- response, failure or reason, by status
    compensation  TEXT COLLATE "C",
    external_ref  TEXT COLLATE "C",
    escalation    BIGINT,
    not_before    BIGINT,
    kept_until    BIGINT,              -- absent: for ever, or what is left of it
    created_at    BIGINT NOT NULL,
    updated_at    BIGINT NOT NULL,
    in_doubt      BOOLEAN NOT NULL DEFAULT false, -- an earlier attempt of unknown fate went before this one
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 50); -- room for the outcome beside its start: then no index is written again. As small as without
CREATE UNIQUE INDEX record_key ON record (tenant, key);
-- No index may name the status, not even as its condition: an outcome would then have to be written to every index
-- of the table instead of none (no HOT update). So what is open outside of runs has a column of its own.
CREATE INDEX record_run ON record (tenant, run, turn) WHERE run IS NOT NULL;
CREATE INDEX record_orphan ON record (loose) WHERE loose IS NOT NULL;
CREATE INDEX record_kept ON record (kept_until, id) WHERE kept_until IS NOT NULL;

-- Records that are looked up again, committed or asked about: a row of its own for each, so that the record is not written again when all is
-- as it should be.
CREATE TABLE look (
    tenant   TEXT COLLATE "C" NOT NULL,
    record   BIGINT NOT NULL,
    revision BIGINT NOT NULL,                  -- below zero on the way in: see store/postgres/row.rs
    reason   BIGINT NOT NULL,
    due_at   BIGINT NOT NULL,
    since    BIGINT NOT NULL,                  -- when the record was sealed
    made     BIGINT NOT NULL,                  -- which step of the series it is
    tries    BIGINT NOT NULL,                  -- lookups in a row without an answer
    missed   BOOLEAN NOT NULL,                 -- the last answer showed nothing
    PRIMARY KEY (tenant, record)
);
CREATE INDEX look_due ON look (due_at, tenant, record);

-- What fenced workers learned too late: appended beside the record, never a change of it.
CREATE TABLE evidence (
    tenant       TEXT COLLATE "C" NOT NULL,
    record       BIGINT NOT NULL,
    fence        BIGINT NOT NULL,
    attempt      BIGINT NOT NULL,
    response     TEXT COLLATE "C" NOT NULL,
    external_ref TEXT COLLATE "C",
    at           BIGINT NOT NULL,
    PRIMARY KEY (tenant, record, fence, attempt)
);

-- Payloads that are too large for their rows, by content. They go with the last record that refers to them; what other rows
-- refer to is counted when it is written and never again, so that it stays.
CREATE TABLE payload (
    tenant TEXT COLLATE "C" NOT NULL,
    digest BYTEA NOT NULL,
    body   TEXT COLLATE "C" NOT NULL,
    uses   BIGINT NOT NULL,
    PRIMARY KEY (tenant, digest)
);

-- Open questions, and their answers.
CREATE TABLE escalation (
    tenant    TEXT COLLATE "C" NOT NULL,
    id        BIGINT NOT NULL,
    record    BIGINT,
    run       BIGINT,
    kind      BIGINT NOT NULL,                 -- below zero on the way in: see store/postgres/escalation.rs
    question  TEXT COLLATE "C" NOT NULL,
    opened_at BIGINT NOT NULL,
    answer    TEXT COLLATE "C",
    waiting   TEXT COLLATE "C",                             -- an answer that takes effect when a lookup has answered
    PRIMARY KEY (tenant, id)
);
CREATE INDEX escalation_open ON escalation (tenant, id) WHERE answer IS NULL;
CREATE INDEX escalation_record ON escalation (tenant, record) WHERE record IS NOT NULL;
CREATE INDEX escalation_run ON escalation (tenant, run, id) WHERE answer IS NULL AND run IS NOT NULL;
CREATE INDEX escalation_duplicated ON escalation (id) WHERE kind = 2 AND answer IS NULL;
CREATE INDEX escalation_unknown_workflow ON escalation (id) WHERE kind = 7 AND answer IS NULL;
