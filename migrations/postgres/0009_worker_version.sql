-- The version of counterfoil that a worker runs: during an update several of them share the database. NULL: of an engine that did
-- not say so.
ALTER TABLE worker ADD COLUMN version TEXT COLLATE "C";
