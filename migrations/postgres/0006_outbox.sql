-- Events that are to be published, written in the transaction of the state that they tell of. Each is the next one of its
-- aggregate: the sequence is given in that transaction, under the aggregate's row, so that it is the order of the commits.
CREATE TABLE outbox_aggregate (
    tenant     TEXT COLLATE "C" NOT NULL,
    name       TEXT COLLATE "C" NOT NULL,
    last       BIGINT NOT NULL,                -- the sequence of its last event; -1 is never kept: see store/postgres/outbox.rs
    published  BIGINT NOT NULL,                -- all up to this one are published
    tries      BIGINT NOT NULL,                -- failed ones of the event after that
    refusals   BIGINT NOT NULL,                -- those among them that the event itself is to blame for
    due_at     BIGINT NOT NULL,                -- not before
    escalation BIGINT,                         -- that event is set aside, and all behind it wait
    revision   BIGINT NOT NULL,                -- of what the publisher writes
    PRIMARY KEY (tenant, name)
);
CREATE INDEX outbox_due ON outbox_aggregate (due_at, tenant, name) WHERE published < last AND escalation IS NULL;
CREATE INDEX outbox_set_aside ON outbox_aggregate (tenant, escalation) WHERE escalation IS NOT NULL;

CREATE TABLE outbox (
    tenant     TEXT COLLATE "C" NOT NULL,
    id         TEXT COLLATE "C" NOT NULL,
    aggregate  TEXT COLLATE "C" NOT NULL,
    seq        BIGINT NOT NULL,
    kind       TEXT COLLATE "C" NOT NULL,
    payload    TEXT COLLATE "C" NOT NULL,      -- canonical JSON, or '@' and a digest in the payload table
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX outbox_seq ON outbox (tenant, aggregate, seq);
CREATE INDEX outbox_created ON outbox (created_at);
