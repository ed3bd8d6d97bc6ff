-- Signals that their runs have received are found by their time, until only a digest is left of their content. The engine's own, whose names
-- begin with '~', are short and stay.
CREATE INDEX signal_over ON signal (at, tenant, run, name, id)
WHERE received AND substr(name, 1, 1) <> '~' AND substr(body, 1, 12) <> '{"$expired":';
