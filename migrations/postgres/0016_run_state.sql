-- Runs are listed by state, workflow and start. An active run is not in this index, so that a start writes nothing more; state 6 is a run
-- of which a tombstone is left, or is about to be.
CREATE INDEX run_state ON run (tenant, (CASE WHEN substr(outcome, 1, 1) IN ('#', '%') THEN 6 ELSE state END), workflow, created_at, id)
WHERE state <> 1;
-- Active runs are in the memory of their workers, so they are few. Lists of them read this index and no row.
DROP INDEX IF EXISTS run_active;
CREATE INDEX run_active ON run (id, tenant, workflow, created_at) WHERE state = 1;
