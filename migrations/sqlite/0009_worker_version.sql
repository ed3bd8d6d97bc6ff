-- The version of counterfoil that a worker runs. NULL: of an engine that did not say so.
ALTER TABLE worker ADD COLUMN version TEXT;
