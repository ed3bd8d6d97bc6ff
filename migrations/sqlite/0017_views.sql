-- Views for people who ask in SQL: words in place of codes, ids as everywhere else, times in UTC as RFC 3339 texts that
-- sort by time. docs/sql.md documents their columns, and a test pins them: a column is added, and never taken away. No
-- engine reads them. Payloads are left out. A later migration that changes a column of these tables makes the views anew.
-- A time behind the year 9999 is NULL: such an instant never comes.

CREATE VIEW runs AS SELECT
    tenant,
    'run-' || printf('%x', id) AS run,
    workflow,
    version,
    key,
    CASE WHEN substr(outcome, 1, 1) IN ('#', '%') THEN 'expired' ELSE
        CASE state WHEN 0 THEN 'queued' WHEN 1 THEN 'active' WHEN 2 THEN 'waiting' WHEN 3 THEN 'succeeded'
            WHEN 4 THEN 'failed' WHEN 5 THEN 'blocked' END END AS state,
    CASE waits_on WHEN 1 THEN 'answer' WHEN 2 THEN 'signal' WHEN 3 THEN 'answer or signal' END AS waits_for,
    CASE WHEN wake_at BETWEEN 0 AND 253402300799999999 THEN
        strftime('%Y-%m-%dT%H:%M:%S', wake_at / 1000000, 'unixepoch') || printf('.%06dZ', wake_at % 1000000) END AS wakes_at,
    'run-' || printf('%x', parent) AS parent,
    queue,
    queue_key,
    priority,
    turn,
    deaths AS recovery_attempts,
    CASE WHEN created_at BETWEEN 0 AND 253402300799999999 THEN
        strftime('%Y-%m-%dT%H:%M:%S', created_at / 1000000, 'unixepoch') || printf('.%06dZ', created_at % 1000000) END AS started_at,
    CASE WHEN updated_at BETWEEN 0 AND 253402300799999999 THEN
        strftime('%Y-%m-%dT%H:%M:%S', updated_at / 1000000, 'unixepoch') || printf('.%06dZ', updated_at % 1000000) END AS updated_at,
    CASE WHEN deadline BETWEEN 0 AND 253402300799999999 THEN
        strftime('%Y-%m-%dT%H:%M:%S', deadline / 1000000, 'unixepoch') || printf('.%06dZ', deadline % 1000000) END AS deadline
FROM run;

CREATE VIEW calls AS SELECT
    tenant,
    key,
    operation AS tool,
    CASE class WHEN 1 THEN 'pure' WHEN 2 THEN 'model call' WHEN 3 THEN 'read-only' WHEN 4 THEN 'draft'
            WHEN 5 THEN 'internal mutation' WHEN 6 THEN 'notification' WHEN 7 THEN 'payment'
            WHEN 8 THEN 'deletion' WHEN 9 THEN 'memory write' WHEN 10 THEN 'compensation' END AS effect,
    CASE status WHEN 1 THEN 'started' WHEN 2 THEN 'committed' WHEN 3 THEN 'failed'
            WHEN 4 THEN 'compensated' WHEN 5 THEN 'abandoned' WHEN 6 THEN 'compensated in part'
            WHEN 7 THEN 'gone' END AS state,
    CASE WHEN status IN (2, 4, 6) THEN
        CASE basis WHEN 0 THEN 'answer' WHEN 1 THEN 'lookup' WHEN 2 THEN 'declaration' WHEN 3 THEN 'repeat'
            WHEN 4 THEN 'decision' WHEN 5 THEN 'denial' END END AS basis,
    attempts,
    'run-' || printf('%x', run) AS run,
    step,
    turn,
    call_id,
    external_ref,
    'question-' || printf('%x', escalation) AS question,
    fence AS worker,
    CASE WHEN created_at BETWEEN 0 AND 253402300799999999 THEN
        strftime('%Y-%m-%dT%H:%M:%S', created_at / 1000000, 'unixepoch') || printf('.%06dZ', created_at % 1000000) END AS asked_at,
    CASE WHEN sealed_at BETWEEN 0 AND 253402300799999999 THEN
        strftime('%Y-%m-%dT%H:%M:%S', sealed_at / 1000000, 'unixepoch') || printf('.%06dZ', sealed_at % 1000000) END AS settled_at,
    CASE WHEN updated_at BETWEEN 0 AND 253402300799999999 THEN
        strftime('%Y-%m-%dT%H:%M:%S', updated_at / 1000000, 'unixepoch') || printf('.%06dZ', updated_at % 1000000) END AS updated_at,
    CASE WHEN kept_until BETWEEN 0 AND 253402300799999999 THEN
        strftime('%Y-%m-%dT%H:%M:%S', kept_until / 1000000, 'unixepoch') || printf('.%06dZ', kept_until % 1000000) END AS kept_until
FROM record;

-- A row by which a call waits for its provider is no question.
CREATE VIEW open_questions AS SELECT
    e.tenant,
    'question-' || printf('%x', e.id) AS question,
    CASE e.kind WHEN 1 THEN 'ambiguous' WHEN 2 THEN 'duplicated' WHEN 3 THEN 'orphaned'
            WHEN 4 THEN 'diverged' WHEN 5 THEN 'damaged' WHEN 6 THEN 'quarantined'
            WHEN 7 THEN 'unregistered' WHEN 8 THEN 'unknown tool' WHEN 9 THEN 'unconfirmed'
            WHEN 10 THEN 'paused' WHEN 21 THEN 'unpublished' WHEN 22 THEN 'unprocessed'
            WHEN 23 THEN 'compensation' WHEN 24 THEN 'missing' WHEN 25 THEN 'restored'
            WHEN 26 THEN 'unread' END AS kind,
    'run-' || printf('%x', e.run) AS run,
    r.key,
    r.operation AS tool,
    e.question AS text,
    e.waiting IS NOT NULL AS answer_waits,
    CASE WHEN e.opened_at BETWEEN 0 AND 253402300799999999 THEN
        strftime('%Y-%m-%dT%H:%M:%S', e.opened_at / 1000000, 'unixepoch') || printf('.%06dZ', e.opened_at % 1000000) END AS opened_at
FROM escalation e LEFT JOIN record r ON r.tenant = e.tenant AND r.id = e.record
WHERE e.answer IS NULL AND e.kind <> 27;

-- The rows of the history, and the last attempt, of which the record itself tells.
CREATE VIEW attempts AS SELECT
    c.tenant,
    r.key,
    r.operation AS tool,
    CASE WHEN c.is_lookup THEN 'lookup' ELSE 'attempt' END AS contact,
    c.number,
    c.attempt,
    c.worker,
    CASE c.result WHEN 1 THEN 'effect' WHEN 2 THEN 'several effects' WHEN 3 THEN 'nothing'
            WHEN 4 THEN 'failed' WHEN 5 THEN 'not finished' WHEN 6 THEN 'effect of another request'
            WHEN 7 THEN 'unknown' WHEN 8 THEN 'worker lost' END AS result,
    c.error,
    c.message,
    c.external_ref,
    CASE WHEN c.began BETWEEN 0 AND 253402300799999999 THEN
        strftime('%Y-%m-%dT%H:%M:%S', c.began / 1000000, 'unixepoch') || printf('.%06dZ', c.began % 1000000) END AS began_at,
    CASE WHEN c.ended BETWEEN 0 AND 253402300799999999 THEN
        strftime('%Y-%m-%dT%H:%M:%S', c.ended / 1000000, 'unixepoch') || printf('.%06dZ', c.ended % 1000000) END AS ended_at
FROM contact c JOIN record r ON r.tenant = c.tenant AND r.id = c.record
UNION ALL SELECT
    r.tenant,
    r.key,
    r.operation,
    'attempt',
    r.attempts,
    r.attempts,
    r.fence,
    CASE WHEN r.status = 3 THEN 'failed' WHEN r.status IN (2, 4, 6) AND r.basis NOT IN (1, 4) THEN 'effect' END,
    CASE WHEN r.status = 3 AND substr(r.outcome, 1, 1) = '{' THEN r.outcome ->> 'kind' END,
    CASE WHEN r.status = 3 AND substr(r.outcome, 1, 1) = '{' THEN r.outcome ->> 'message' END,
    r.external_ref,
    CASE WHEN r.attempts = 1 THEN
        CASE WHEN r.created_at BETWEEN 0 AND 253402300799999999 THEN
        strftime('%Y-%m-%dT%H:%M:%S', r.created_at / 1000000, 'unixepoch') || printf('.%06dZ', r.created_at % 1000000) END END,
    CASE WHEN r.status = 3 THEN
        CASE WHEN r.updated_at BETWEEN 0 AND 253402300799999999 THEN
        strftime('%Y-%m-%dT%H:%M:%S', r.updated_at / 1000000, 'unixepoch') || printf('.%06dZ', r.updated_at % 1000000) END
    WHEN r.status IN (2, 4, 6) AND r.basis NOT IN (1, 4) THEN
        CASE WHEN r.sealed_at BETWEEN 0 AND 253402300799999999 THEN
        strftime('%Y-%m-%dT%H:%M:%S', r.sealed_at / 1000000, 'unixepoch') || printf('.%06dZ', r.sealed_at % 1000000) END END
FROM record r WHERE r.attempts > 0 AND r.status <> 7 AND NOT EXISTS (SELECT 1 FROM contact c
    WHERE c.tenant = r.tenant AND c.record = r.id AND NOT c.is_lookup AND c.number = r.attempts);
