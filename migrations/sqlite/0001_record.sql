-- A worker is one engine process. It enrols and is given the next fence; every write it makes is admitted
-- only while its row says that it has not ended. Whoever takes its work over ends it first.
CREATE TABLE worker (
    fence       INTEGER PRIMARY KEY AUTOINCREMENT,
    name        TEXT NOT NULL UNIQUE,
    enrolled_at INTEGER NOT NULL,              -- microseconds UTC, like every instant here
    lease_until INTEGER,                       -- by this database's clock; NULL: its lock tells whether it lives
    ended_at    INTEGER,
    retired     INTEGER NOT NULL DEFAULT 0,    -- it ended in order
    settled     INTEGER NOT NULL DEFAULT 0,    -- nothing of it is left to be taken over
    publishes   INTEGER NOT NULL DEFAULT 0     -- it publishes events: one worker at a time does
) STRICT;
CREATE INDEX worker_open ON worker (fence) WHERE NOT settled;
CREATE UNIQUE INDEX worker_publishes ON worker (publishes) WHERE publishes AND ended_at IS NULL;

-- A tenant's own key for digests of secrets.
CREATE TABLE tenant (
    tenant     TEXT NOT NULL PRIMARY KEY,
    digest_key BLOB NOT NULL CHECK (length(digest_key) = 32)
) STRICT, WITHOUT ROWID;

-- Rows are born at revision 1. A record refers to its birth, which an upsert never changes: one that finds no row
-- to move on would be born later, and fails instead of making a row up. (Other tables leave that to a trigger; in
-- the table that is written most, a trigger costs a sixth of each write, for SQLite then copies all rows first.)
CREATE TABLE birth (
    revision INTEGER PRIMARY KEY
) STRICT;
INSERT INTO birth VALUES (1);

-- A record is inserted as started before its call is dispatched, and changed when its outcome is known.
-- The id is a place, given in order of arrival: random text keys in the table itself would cost half the speed.
-- Identity is (tenant, key). STRICT and the CHECKs repeat the state machine: a damaged row is not written.
CREATE TABLE record (
    id            INTEGER PRIMARY KEY,
    tenant        TEXT NOT NULL,
    key           TEXT NOT NULL,
    operation     TEXT NOT NULL,
    class         INTEGER NOT NULL,
    request       TEXT NOT NULL,               -- canonical JSON, or '@' and a digest in the payload table
    request_hash  BLOB NOT NULL CHECK (length(request_hash) = 33),
    declaration   INTEGER NOT NULL,            -- of its tool, when it went out: a document of the ledger's own tenant
    run           INTEGER,
    turn          INTEGER NOT NULL DEFAULT 0,  -- of the run's loops
    step          TEXT,
    call_id       TEXT,
    fence         INTEGER NOT NULL,
    revision      INTEGER NOT NULL,            -- NULL stands for a refusal: see store/sqlite/row.rs
    born          INTEGER NOT NULL REFERENCES birth (revision),
    attempts      INTEGER NOT NULL,
    spent         INTEGER NOT NULL,
    status        INTEGER NOT NULL CHECK (status BETWEEN 1 AND 7),
    basis         INTEGER NOT NULL,
    outcome       TEXT,                        -- response, failure or reason, by status
    compensation  TEXT,
    external_ref  TEXT,
    escalation    INTEGER,
    not_before    INTEGER,
    kept_until    INTEGER,             -- absent: for ever, or what is left of it
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    in_doubt      INTEGER NOT NULL,            -- an earlier attempt of unknown fate went before this one
    CHECK (in_doubt = 0 OR status = 1),
    CHECK ((status = 1) = (outcome IS NULL)),
    CHECK ((status IN (4, 6)) = (compensation IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX record_key ON record (tenant, key);
CREATE INDEX record_run ON record (run, turn) WHERE run IS NOT NULL;
CREATE INDEX record_orphan ON record (fence) WHERE status = 1 AND run IS NULL;
CREATE INDEX record_kept ON record (kept_until) WHERE kept_until IS NOT NULL;

-- Records that are looked up again, committed or asked about: a row of its own for each, so that the record is not written again when all is
-- as it should be.
CREATE TABLE look (
    tenant   TEXT NOT NULL,
    record   INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    reason   INTEGER NOT NULL,
    due_at   INTEGER,                          -- NULL: none is to come; such a row does not stay
    since    INTEGER NOT NULL,                 -- when the record was sealed
    made     INTEGER NOT NULL,                 -- which step of the series it is
    tries    INTEGER NOT NULL,                 -- lookups in a row without an answer
    missed   INTEGER NOT NULL,                 -- the last answer showed nothing
    PRIMARY KEY (tenant, record)
) STRICT, WITHOUT ROWID;
CREATE INDEX look_due ON look (due_at);
CREATE TRIGGER look_first AFTER INSERT ON look WHEN NEW.revision <> 1 OR NEW.due_at IS NULL
BEGIN SELECT RAISE(ABORT, 'no such look'); END;
CREATE TRIGGER look_done AFTER UPDATE ON look WHEN NEW.due_at IS NULL
BEGIN DELETE FROM look WHERE tenant = NEW.tenant AND record = NEW.record; END;

-- What fenced workers learned too late: appended beside the record, never a change of it.
CREATE TABLE evidence (
    tenant       TEXT NOT NULL,
    record       INTEGER NOT NULL,
    fence        INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    response     TEXT NOT NULL,
    external_ref TEXT,
    at           INTEGER NOT NULL,
    PRIMARY KEY (tenant, record, fence, attempt)
) STRICT, WITHOUT ROWID;

-- Payloads that are too large for their rows, by content. They go with the last record that refers to them; what other rows
-- refer to is counted when it is written and never again, so that it stays.
CREATE TABLE payload (
    tenant TEXT NOT NULL,
    digest BLOB NOT NULL,
    body   TEXT NOT NULL,
    uses   INTEGER NOT NULL,
    PRIMARY KEY (tenant, digest)
) STRICT;

-- Open questions, and their answers.
CREATE TABLE escalation (
    tenant    TEXT NOT NULL,
    id        INTEGER NOT NULL,
    record    INTEGER,
    run       INTEGER,
    kind      INTEGER NOT NULL,
    question  TEXT NOT NULL,
    opened_at INTEGER NOT NULL,
    answer    TEXT,
    waiting   TEXT,                             -- an answer that takes effect when a lookup has answered
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX escalation_open ON escalation (tenant, id) WHERE answer IS NULL;
CREATE INDEX escalation_record ON escalation (tenant, record) WHERE record IS NOT NULL;
CREATE INDEX escalation_run ON escalation (tenant, run, id) WHERE answer IS NULL AND run IS NOT NULL;
CREATE INDEX escalation_duplicated ON escalation (id) WHERE kind = 2 AND answer IS NULL;
CREATE INDEX escalation_unknown_workflow ON escalation (id) WHERE kind = 7 AND answer IS NULL;
CREATE TRIGGER escalation_first AFTER INSERT ON escalation WHEN NEW.answer IS NOT NULL OR NEW.waiting IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'no such question'); END;
