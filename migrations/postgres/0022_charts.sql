-- Indexes for the charts of the dashboard: by tenant and time. Plain calls write to none of these tables.
-- Lookups that showed the effect of a call.
CREATE INDEX contact_found ON contact (tenant, ended, record) WHERE is_lookup AND result = 1;
-- Late answers of workers that had lost their calls.
CREATE INDEX evidence_at ON evidence (tenant, at, record);
-- Runs that were answered from a record which they do not own.
CREATE INDEX use_at ON use (tenant, at, record);
-- Questions, without the rows by which calls wait for their providers.
CREATE INDEX escalation_opened ON escalation (tenant, opened_at, id) WHERE kind <> 27;
