-- Events that are to be published, written in the transaction of the state that they tell of. Each is the next one of its
-- aggregate: the sequence is given in that transaction, under the aggregate's row, so that it is the order of the commits.
CREATE TABLE outbox_aggregate (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,                  -- NULL stands for a refusal: see store/sqlite/outbox.rs
    last       INTEGER NOT NULL,               -- the sequence of its last event
    published  INTEGER NOT NULL,               -- all up to this one are published
    tries      INTEGER NOT NULL,               -- failed ones of the event after that
    refusals   INTEGER NOT NULL,               -- those among them that the event itself is to blame for
    due_at     INTEGER NOT NULL,               -- not before
    escalation INTEGER,                        -- that event is set aside, and all behind it wait
    revision   INTEGER NOT NULL,               -- of what the publisher writes; NULL stands for a refusal
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX outbox_due ON outbox_aggregate (due_at, tenant, name) WHERE published < last AND escalation IS NULL;
CREATE INDEX outbox_set_aside ON outbox_aggregate (tenant, escalation) WHERE escalation IS NOT NULL;
-- An upsert that changes an existing row does not come by here.
CREATE TRIGGER outbox_first AFTER INSERT ON outbox_aggregate WHEN NEW.revision > 1
BEGIN SELECT RAISE(ABORT, 'no such aggregate'); END;

CREATE TABLE outbox (
    tenant     TEXT NOT NULL,
    id         TEXT NOT NULL,                  -- NULL stands for a refusal
    aggregate  TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    kind       TEXT NOT NULL,
    payload    TEXT NOT NULL,                  -- canonical JSON, or '@' and a digest in the payload table
    created_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX outbox_id ON outbox (tenant, id);
CREATE UNIQUE INDEX outbox_seq ON outbox (tenant, aggregate, seq);
CREATE INDEX outbox_created ON outbox (created_at);
