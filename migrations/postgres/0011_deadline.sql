-- When a run is cancelled if it has not ended by then. NULL: never, or begun by an engine that knows no deadlines.
ALTER TABLE run ADD COLUMN deadline BIGINT;
CREATE INDEX run_deadline ON run (deadline, id) WHERE deadline IS NOT NULL AND state NOT IN (3, 4);
