-- What the provider scopes a call's key and its lookup to, where the tool says so for each call. NULL: as its declaration says.
ALTER TABLE record ADD COLUMN scopes TEXT COLLATE "C";   -- JSON
