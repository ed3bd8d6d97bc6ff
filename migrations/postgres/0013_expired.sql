-- Runs that have ended are found by their time, until only a tombstone is left of them: its outcome is a digest behind '#'. While its
-- checkpoints go, a few at a time, it stands behind '%'.
CREATE INDEX run_over ON run (workflow, updated_at, id) WHERE state IN (3, 4) AND substr(outcome, 1, 1) <> '#';
CREATE INDEX escalation_settled ON escalation (tenant, run) WHERE run IS NOT NULL AND record IS NULL AND answer IS NOT NULL;

-- The same for messages: what is left of a processed one is its id, and '#' in place of its result.
CREATE INDEX inbox_over ON inbox (consumer, state, at, tenant, message)
WHERE state IN (2, 3) AND (result IS NULL OR substr(result, 1, 1) <> '#');

-- The cost of the attempt that was answered, in the unit of its tool's price. NULL: as estimated.
ALTER TABLE record ADD COLUMN cost BIGINT;
