-- When a record was settled, and the approval under which its call went out. NULL: not yet, none, or of an engine that did not say so.
ALTER TABLE record ADD COLUMN sealed_at INTEGER;
ALTER TABLE record ADD COLUMN approval TEXT;   -- JSON
