-- The place of a run's caller in its trace, as a traceparent. NULL: the run has a trace of its own, or was begun by an engine that knows
-- no traces.
ALTER TABLE run ADD COLUMN traceparent TEXT COLLATE "C";
