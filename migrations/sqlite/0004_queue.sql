-- What is known of a queue beside its runs. Whoever admits runs of it holds its row, so that no two workers do so at
-- once; how many places are taken is counted from the runs themselves, and so cannot leak.
CREATE TABLE queue (
    name        TEXT NOT NULL PRIMARY KEY,
    spent_until INTEGER NOT NULL,              -- the tokens of its rate are spent until then
    served      TEXT,                          -- the tenant whose run was admitted last
    due_at      INTEGER                        -- when its runs have a token to wait for
) STRICT, WITHOUT ROWID;
CREATE INDEX queue_due ON queue (due_at) WHERE due_at IS NOT NULL;
