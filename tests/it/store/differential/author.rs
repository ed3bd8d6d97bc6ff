//! Writes random changes.

use std::time::Duration;

use counterfoil::id::DeclarationId;
use counterfoil::ledger::{
    ContractClass, ErrorKind, Look, Record, RecordedFailure, Retention, Scopes, State as Outcome,
};
use counterfoil::payload::DigestKey;
use counterfoil::store::conformance::sample::{self, HOSTILE, Sample};
use counterfoil::store::{
    Admission, Aggregate, CANCEL, Change, Contact, DEADLINE, Document, DroppedContact, Evidence,
    ExpiredSignal, InQueue, Model, OrderingKey, OutboxEvent, Published, PublishedValue, Question,
    QuestionKind, Queue, Resolution, Retired, RetiredRun, Run, RunState, Schedule, ScheduleState,
    SharedEffect, Signal, Step, StepKind, Store, Verdict, WaitsOn, WorkerChange,
};
use counterfoil::{Fence, Payload, QuestionId, Tenant, Timestamp};
use serde_json::json;

macro_rules! kinds {
    ($($kind:ident),+ $(,)?) => {
        /// What a change does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Kind {
            $($kind),+
        }

        impl Kind {
            pub(super) const ALL: [Self; [$(Self::$kind),+].len()] = [$(Self::$kind),+];
        }
    };
}

kinds! {
    Enrol, FenceOthers, Retire, Work, NewRecord, ChangeRecord, NewRun, ChangeRun, Step, SharedEffect, Signal, Receive,
    Ask, Answer, Evidence, Payload, TenantKey, Many, Again, Admit, Schedule, Document, Publish, Emit, Mark, Clear, Drop,
    Forget, Expire, Erase, Look,
}

/// The writes of a change, by name. A write that is added to a change must be added here, and then to the author: the
/// test fails if a write was never admitted.
pub(super) fn writes(change: &Change) -> Vec<&'static str> {
    let Change {
        fence: _,
        lane: _,
        contract: _,
        taken_over: _,
        beside: _,
        form: _,
        worker,
        admission,
        schedule,
        documents,
        published,
        erased,
        events,
        aggregates,
        forgotten,
        retired,
        retired_runs,
        expired_signals,
        payloads,
        tenant_key,
        run,
        labels,
        record,
        record_labels,
        look,
        contacts,
        dropped_contacts,
        steps,
        prune,
        used,
        escalations,
        signal,
        received,
        evidence,
        link,
    } = change;
    let worker = worker.as_ref().map(|change| match change {
        WorkerChange::Enrol { .. } => "enrol",
        WorkerChange::Attach { .. } => "attach",
        WorkerChange::Renew { .. } => "renew",
        WorkerChange::End { .. } => "end",
        WorkerChange::Settle { .. } => "settle",
        WorkerChange::FenceOthers { .. } => "fence others",
        WorkerChange::Publish => "publish",
        WorkerChange::Retire { .. } => "retire",
    });
    let all = [
        ("admission", admission.is_some()),
        ("schedule", schedule.is_some()),
        ("document", !documents.is_empty()),
        ("published value", published.is_some()),
        ("erased tenant", erased.is_some()),
        ("event", !events.is_empty()),
        ("aggregate", !aggregates.is_empty()),
        ("forgotten event", !forgotten.is_empty()),
        ("retired record", !retired.is_empty()),
        ("retired run", !retired_runs.is_empty()),
        ("expired signal", !expired_signals.is_empty()),
        ("payload", !payloads.is_empty()),
        ("tenant key", tenant_key.is_some()),
        ("run", run.is_some()),
        ("label", !labels.is_empty()),
        ("record", record.is_some()),
        ("record label", !record_labels.is_empty()),
        ("look", look.is_some()),
        ("contact", !contacts.is_empty()),
        ("dropped contact", !dropped_contacts.is_empty()),
        ("step", !steps.is_empty()),
        ("pruned steps", prune.is_some()),
        ("shared effect", used.is_some()),
        ("question", !escalations.is_empty()),
        ("signal", signal.is_some()),
        ("received signal", received.is_some()),
        ("evidence", evidence.is_some()),
        ("link", link.is_some()),
    ];
    worker
        .into_iter()
        .chain(all.into_iter().filter_map(|(name, is_there)| is_there.then_some(name)))
        .collect()
}

/// The names of all writes.
pub(super) const WRITES: [&str; 36] = [
    "enrol",
    "attach",
    "renew",
    "end",
    "settle",
    "fence others",
    "publish",
    "retire",
    "admission",
    "schedule",
    "document",
    "published value",
    "erased tenant",
    "event",
    "aggregate",
    "forgotten event",
    "retired record",
    "retired run",
    "expired signal",
    "payload",
    "tenant key",
    "run",
    "label",
    "record",
    "record label",
    "look",
    "contact",
    "dropped contact",
    "step",
    "pruned steps",
    "shared effect",
    "question",
    "signal",
    "received signal",
    "evidence",
    "link",
];

/// Writes random changes, most of which make sense.
pub(super) struct Author {
    chance: u64,
    workers: Vec<Sample>,
    /// The workers that ended because their leases ran out.
    ended: Vec<Fence>,
    names: Vec<String>,
    records: Vec<Record>,
    runs: Vec<Run>,
    questions: Vec<Question>,
    looks: Vec<Look>,
    steps: Vec<Step>,
    signals: Vec<Signal>,
    documents: Vec<Document>,
    schedules: Vec<Schedule>,
    aggregates: Vec<Aggregate>,
    /// True if the batch clears up: it marks events as published and drops contacts. Other batches emit events and write
    /// contacts: a database writes a batch table by table, and the engine never does both to one row in one batch.
    clears: bool,
    past: Vec<Change>,
}

impl Author {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            chance: seed,
            workers: Vec::new(),
            ended: Vec::new(),
            names: Vec::new(),
            records: Vec::new(),
            runs: Vec::new(),
            questions: Vec::new(),
            looks: Vec::new(),
            steps: Vec::new(),
            signals: Vec::new(),
            documents: Vec::new(),
            schedules: Vec::new(),
            aggregates: Vec::new(),
            clears: false,
            past: Vec::new(),
        }
    }

    pub(super) fn batch(&mut self) -> Vec<(Kind, Change)> {
        if self.workers.is_empty() {
            return vec![(Kind::Enrol, self.enrol())];
        }
        self.clears = self.one_in(3);
        let size = if self.one_in(12) { 40 } else { 1 + self.below(9) };
        (0..size).map(|_| self.change()).collect()
    }

    /// Remembers what was admitted, to build on it.
    pub(super) async fn learn(&mut self, batch: &[Change], verdicts: &[Verdict], model: &Model) {
        for (change, verdict) in batch.iter().zip(verdicts) {
            if verdict.is_admitted() {
                if let Some(record) = change.record.as_deref() {
                    self.records.retain(|known| known.id != record.id);
                    self.records.extend(model.record_at(&record.tenant, record.id).await.unwrap());
                }
                if let Some(look) = change.look.as_deref() {
                    self.looks.retain(|known| (&known.tenant, known.record) != (&look.tenant, look.record));
                    self.looks.extend(model.look_find(&look.tenant, look.record).await.unwrap());
                }
                for retired in &change.retired {
                    self.records.retain(|known| known.id != retired.id);
                    self.records.extend(model.record_at(&retired.tenant, retired.id).await.unwrap());
                }
                for retired in &change.retired_runs {
                    self.runs.retain(|known| known.id != retired.run.id);
                    self.runs.extend(model.run_find(&retired.run.tenant, retired.run.id).await.unwrap());
                }
                if let Some(WorkerChange::End { fence, .. }) = change.worker {
                    self.ended.push(fence);
                }
                if let Some(tenant) = &change.erased {
                    self.forget(tenant);
                }
                if let Some(run) = change.run.as_deref() {
                    self.runs.retain(|known| known.id != run.id);
                    self.runs.extend(model.run_find(&run.tenant, run.id).await.unwrap());
                }
                if change.admission.is_some() {
                    for known in std::mem::take(&mut self.runs) {
                        // A later change of the batch may have erased it.
                        self.runs.extend(model.run_find(&known.tenant, known.id).await.unwrap());
                    }
                }
                self.questions.extend(change.escalations.iter().filter(|e| e.answer.is_none()).cloned());
                self.steps.extend(change.steps.iter().cloned());
                self.signals.extend(change.signal.as_deref().cloned());
                if let Some(schedule) = change.schedule.as_deref() {
                    let place = |known: &Schedule| (known.tenant.clone(), known.name.clone());
                    self.schedules.retain(|known| place(known) != place(schedule));
                    self.schedules.push(schedule.clone());
                }
                let emitted = change.events.iter().map(|event| (&event.tenant, &event.aggregate));
                for (tenant, name) in
                    emitted.chain(change.aggregates.iter().map(|mark| (&mark.tenant, &mark.name)))
                {
                    self.aggregates.retain(|known| (&known.tenant, &known.name) != (tenant, name));
                    self.aggregates.extend(model.outbox_aggregate(tenant, name).await.unwrap());
                }
                for document in &change.documents {
                    let place =
                        |known: &Document| (known.tenant.clone(), known.kind.clone(), known.id.clone());
                    self.documents.retain(|known| place(known) != place(document));
                    self.documents.push(document.clone());
                }
            }
            if let Some(WorkerChange::Enrol { name, .. }) = &change.worker
                && verdict.is_admitted()
                && let Some(worker) = model.worker_find(name).await.unwrap()
                && self.workers.iter().all(|known| known.fence != worker.fence)
            {
                self.workers.push(Sample::of(worker.fence));
            }
            self.past.push(change.clone());
        }
    }

    fn forget(&mut self, tenant: &Tenant) {
        self.records.retain(|known| known.tenant != *tenant);
        self.runs.retain(|known| known.tenant != *tenant);
        self.questions.retain(|known| known.tenant != *tenant);
        self.looks.retain(|known| known.tenant != *tenant);
        self.steps.retain(|known| known.tenant != *tenant);
        self.signals.retain(|known| known.tenant != *tenant);
        self.documents.retain(|known| known.tenant != *tenant);
        self.schedules.retain(|known| known.tenant != *tenant);
        self.aggregates.retain(|known| known.tenant != *tenant);
    }

    fn change(&mut self) -> (Kind, Change) {
        if self.past.len() > 3 && self.one_in(10) {
            let past = self.below(self.past.len());
            let again = self.past[past].clone();
            if writes(&again)
                .iter()
                .all(|write| !["event", "aggregate", "contact", "dropped contact"].contains(write))
            {
                return (Kind::Again, again);
            }
        }
        let worker = self.worker();
        let change = worker.change();
        let (kind, change) = match self.below(62) {
            0 => (Kind::Enrol, self.enrol()),
            1 if self.one_in(2) => (Kind::FenceOthers, sample::fence_others(worker.fence)),
            2 if self.one_in(2) => (Kind::Retire, sample::retire(worker.fence)),
            1..=6 => {
                let record = self.new_record(&worker);
                // Nothing more is drawn for it, as for the labels of runs.
                let labelled = record.kept_until.map(|_| worker.record_label(&record, "customer", "c-7"));
                let record_labels = labelled.into_iter().collect();
                (Kind::NewRecord, Change { record_labels, ..change.record(record) })
            }
            7..=11 => {
                let record = self.changed_record(&worker);
                let attempt = i64::try_from(self.below(3)).unwrap();
                let contacts = if self.clears {
                    vec![]
                } else {
                    vec![Contact { id: attempt, ..worker.attempt(&record, 1) }]
                };
                // Nothing more is drawn for it, so that the histories stay those in which everything happens.
                let link = Some(Box::new(
                    worker.link(1 + record.id.0 % 3, record.id.0 * 8 + i64::from(record.revision % 8)),
                ));
                let change = Change { contacts, link, ..change.record(record) };
                let (contract, taken_over) = (self.contract(), self.one_in(2).then(Box::default));
                (Kind::ChangeRecord, Change { contract, taken_over, ..change })
            }
            12..=14 => {
                let run = self.new_run(&worker);
                // Nothing more is drawn for it, so that the histories stay those in which everything happens.
                let labels = run.key.iter().map(|_| worker.label(&run, "customer", "c-7")).collect();
                (Kind::NewRun, Change { labels, ..change.run(run) })
            }
            15..=18 => (Kind::ChangeRun, self.pruning(&worker)),
            19..=22 => (Kind::Step, change.step(self.step(&worker))),
            23 => (Kind::SharedEffect, Change { used: Some(Box::new(self.used(&worker))), ..change }),
            24 | 34..=35 => (Kind::Ask, change.escalation(self.question(&worker))),
            25..=26 => (Kind::Answer, change.escalation(self.answer(&worker))),
            27 => {
                let (evidence, contract) = (Some(Box::new(self.evidence(&worker))), self.contract());
                (Kind::Evidence, Change { evidence, contract, ..change })
            }
            28 => (Kind::Payload, Change { payloads: self.payloads(&worker), ..change }),
            29 => (Kind::TenantKey, Change { tenant_key: Some(self.tenant_key(&worker)), ..change }),
            30..=31 => (Kind::Signal, Change { signal: Some(Box::new(self.signal(&worker))), ..change }),
            32..=33 => (Kind::Receive, Change { received: Some(Box::new(self.received(&worker))), ..change }),
            40..=41 if self.one_in(3) => {
                let expired_signals = self.expired_signals();
                (Kind::Expire, Change { expired_signals, beside: self.one_in(2), ..change })
            }
            40..=41 => {
                let retired_runs = self.retired_runs(&worker);
                (Kind::Expire, Change { retired_runs, beside: self.one_in(2), ..change })
            }
            42..=43 => {
                let retired = self.retired(&worker);
                (Kind::Forget, Change { retired, beside: self.one_in(2), ..change })
            }
            44 | 49 => (Kind::Erase, Change { erased: Some(worker.tenant), ..change }),
            37..=38 | 45 => (Kind::Document, Change { documents: self.documents(&worker), ..change }),
            46 => (Kind::Publish, Change { published: Some(Box::new(self.published(&worker))), ..change }),
            47..=48 => (Kind::Look, change.look(self.look(&worker))),
            50..=51 => {
                (Kind::Schedule, Change { schedule: Some(Box::new(self.schedule(&worker))), ..change })
            }
            52..=54 if self.clears => (Kind::Mark, Change { aggregates: self.marks(), ..change }),
            52..=54 => (Kind::Emit, Change { events: self.events(&worker), ..change }),
            55..=56 => (Kind::Clear, Change { forgotten: self.forgotten(), ..change }),
            57..=58 if self.clears => {
                (Kind::Drop, Change { dropped_contacts: self.dropped(&worker), ..change })
            }
            39 | 59..=61 => (Kind::Work, Change { worker: Some(self.work()), ..change }),
            36 => (Kind::Admit, Change { admission: Some(Box::new(self.admission())), ..change }),
            _ => (Kind::Many, self.many(&worker)),
        };
        let change = change.in_lane(self.lane());
        if change.worker.is_none() && self.one_in(10) {
            (kind, Change { fence: None, ..change })
        } else {
            (kind, change)
        }
    }

    /// Several consequences in one change.
    fn many(&mut self, worker: &Sample) -> Change {
        let mut change = worker.change();
        let record = if self.one_in(2) { self.new_record(worker) } else { self.changed_record(worker) };
        change.record = Some(Box::new(record));
        if self.one_in(2) {
            change.steps = (0..=self.below(2)).map(|_| self.step(worker)).collect();
        }
        if self.one_in(2) {
            let run = if self.one_in(3) { self.new_run(worker) } else { self.changed_run(worker) };
            change.run = Some(Box::new(run));
        }
        if self.one_in(3) {
            change.escalations = vec![self.question(worker), self.answer(worker)];
            change.escalations.dedup_by_key(|escalation| escalation.id);
        }
        if self.one_in(3) {
            change.used = Some(Box::new(self.used(worker)));
            change.evidence = Some(Box::new(self.evidence(worker)));
            change.contract = self.contract();
            change.payloads = self.payloads(worker);
            change.tenant_key = Some(self.tenant_key(worker));
        }
        change
    }

    fn enrol(&mut self) -> Change {
        if !self.names.is_empty() && self.one_in(4) {
            let taken = self.below(self.names.len());
            let enrol =
                WorkerChange::Enrol { name: self.names[taken].clone(), at: Timestamp(77), lease_until: None };
            return Change { worker: Some(enrol), lane: self.lane(), ..Change::default() };
        }
        self.names.push(format!("worker {}", self.names.len()));
        let name = self.names[self.names.len() - 1].clone();
        let lease_until = self.one_in(2).then_some(Timestamp(3));
        let enrol = WorkerChange::Enrol { name, at: Timestamp(100), lease_until };
        Change { worker: Some(enrol), ..Change::default() }
    }

    fn new_record(&mut self, worker: &Sample) -> Record {
        let target = self.below(40).to_string();
        let mut record = worker.record(&target);
        if self.one_in(2) {
            record.owner.run = Some(self.run(worker).id);
            record.owner.step = Some(self.text().into());
        }
        if self.one_in(10) {
            // Somebody else's place. Of the same tenant: workers give each place once, and where rows are placed by
            // their tenant, nobody could tell.
            let taken = self.record(worker);
            (record.id, record.tenant) = (taken.id, taken.tenant);
        }
        record.kept_until = self.instant();
        // Nothing more is drawn for them, so that the histories stay those in which everything happens.
        record.sealed_at = record.kept_until;
        record.approval = record.kept_until.map(|_| Box::new(sample::approval("ann")));
        record.scopes = record.sealed_at.map(|_| Box::new(Scopes::key("device").lookup("room")));
        record.owner.call_id = Some(self.text());
        record.declaration = DeclarationId(i64::from(self.one_in(2)));
        if self.one_in(10) {
            record.state = self.outcome();
        }
        record
    }

    fn changed_record(&mut self, worker: &Sample) -> Record {
        let before = self.record(worker);
        let mut record = worker.record_on(&before, self.outcome());
        record.external_ref = Some(self.text());
        record.escalation = match self.below(4) {
            0 if self.questions.is_empty() => Some(QuestionId(3)), // of no question
            0 => Some(self.known_question().id),
            _ => None,
        };
        record.updated_at = Timestamp(i64::try_from(self.bits() >> 1).unwrap());
        if self.one_in(6) {
            record.revision = u32::try_from(self.below(5)).unwrap();
        }
        if self.one_in(12) && record.revision != 1 {
            record.tenant = sample::tenant("another");
        }
        record
    }

    /// Some records go, as they are or as they were, or are kept for longer.
    fn retired(&mut self, worker: &Sample) -> Vec<Retired> {
        let mut retired: Vec<Retired> = Vec::new();
        for _ in 0..=self.below(3) {
            let record = self.record(worker);
            let revision = if self.one_in(8) { record.revision.saturating_sub(1) } else { record.revision };
            let record = Record { revision, ..record };
            let left = match self.below(3) {
                0 => None,
                1 => Some(Record { revision: revision + 1, kept_until: self.instant(), ..record.clone() }),
                _ => {
                    let key = DigestKey::new([3; 32]);
                    Retention::tombstone_after(Duration::ZERO).left(
                        &record,
                        Duration::ZERO,
                        &key,
                        Timestamp::MAX,
                    )
                }
            };
            if retired.iter().all(|other| other.id != record.id) {
                retired.push(Retired::of(&record, left));
            }
        }
        retired
    }

    /// Some runs go, as they are or as they were.
    fn retired_runs(&mut self, worker: &Sample) -> Vec<RetiredRun> {
        let mut retired: Vec<RetiredRun> = Vec::new();
        for _ in 0..=self.below(3) {
            let run = self.run(worker);
            let revision = if self.one_in(8) { run.revision.saturating_sub(1) } else { run.revision };
            let run = Run { revision, ..run };
            if retired.iter().all(|other| other.run.id != run.id) {
                retired.extend(RetiredRun::of(&run, self.one_in(2), &DigestKey::new([3; 32])));
            }
        }
        retired
    }

    /// Some signals lose their content, also such as their runs have not received.
    fn expired_signals(&mut self) -> Vec<ExpiredSignal> {
        let key = DigestKey::new([3; 32]);
        let mut expired = Vec::new();
        for _ in 0..self.below(4).min(self.signals.len()) {
            let known = self.below(self.signals.len());
            expired.push(ExpiredSignal::of(self.signals[known].clone(), &key));
        }
        expired
    }

    fn outcome(&mut self) -> Outcome {
        let response = sample::inline(json!({ "text": self.text() }));
        match self.below(6) {
            0 => Outcome::Started,
            1 | 2 => Outcome::Committed { response },
            3 => {
                let failure =
                    RecordedFailure { kind: ErrorKind::Unknown, message: self.text(), detail: json!([1]) };
                Outcome::Failed { failure }
            }
            4 => Outcome::Compensated { compensation: response.clone(), response, whole: self.one_in(2) },
            _ => Outcome::Abandoned { reason: self.text() },
        }
    }

    fn new_run(&mut self, worker: &Sample) -> Run {
        let mut run =
            if self.one_in(4) { worker.run_without_key() } else { worker.run(&self.below(10).to_string()) };
        run.state = if self.one_in(2) { RunState::Active } else { self.run_state() };
        if self.one_in(3) {
            let key = self.one_in(2).then(|| self.below(2).to_string());
            let (name, priority) = (sample::name(["mail", "fax"][self.below(2)]), i32::from(self.one_in(4)));
            run.queue = Some(Box::new(InQueue { name, key, priority, admitted_at: None }));
            if self.one_in(4) {
                run.queue.as_mut().unwrap().admitted_at = Some(Timestamp(1));
            } else {
                run.state = RunState::Queued;
            }
        }
        run.deadline = self.one_in(3).then_some(Timestamp(7)).or_else(|| self.instant());
        if self.one_in(10) {
            let taken = self.run(worker);
            (run.id, run.tenant) = (taken.id, taken.tenant);
        }
        run
    }

    fn admission(&mut self) -> Admission {
        let mut queue = Queue::new(["mail", "fax"][self.below(2)]);
        let mut limit = |author: &mut Self, with: fn(Queue, u32) -> Queue| {
            if author.one_in(2) {
                let runs = 1 + u32::try_from(author.below(6)).unwrap();
                queue = with(queue.clone(), runs);
            }
        };
        limit(self, Queue::concurrency);
        limit(self, Queue::per_worker);
        limit(self, Queue::per_tenant);
        limit(self, Queue::per_key);
        limit(self, |queue, runs| queue.rate(runs, Duration::from_micros(u64::from(runs) * 3)));
        let at = Timestamp(i64::try_from(self.past.len()).unwrap());
        let known = self.one_in(3).then(|| vec![(sample::name("order"), 1)]);
        Admission { queue, at, most: 1 + u32::try_from(self.below(4)).unwrap(), known }
    }

    fn changed_run(&mut self, worker: &Sample) -> Run {
        let before = self.run(worker);
        let mut run = worker.run_on(&before, self.run_state());
        run.deaths = u32::try_from(self.below(9)).unwrap();
        if self.one_in(3) {
            run.turn += u32::try_from(1 + self.below(2)).unwrap(); // it never falls
            run.base = if self.one_in(4) { run.turn - 1 } else { run.base };
        }
        if self.one_in(6) {
            run.revision = u32::try_from(self.below(5)).unwrap();
        }
        if self.one_in(12) && run.revision != 1 {
            run.tenant = sample::tenant("another");
        }
        run
    }

    fn run_state(&mut self) -> RunState {
        let text = json!(self.text());
        match self.below(5) {
            0 => RunState::Active,
            1 => {
                let on = WaitsOn { answer: self.one_in(2), signal: self.one_in(2) };
                RunState::Waiting { until: self.instant(), on }
            }
            2 => RunState::Succeeded { output: sample::inline(text) },
            3 => RunState::Failed { failure: sample::payload(&text) },
            _ => RunState::Blocked { failure: sample::payload(&text) },
        }
    }

    fn step(&mut self, worker: &Sample) -> Step {
        if !self.steps.is_empty() && self.one_in(5) {
            let known = self.below(self.steps.len());
            return Step { value: None, ..self.steps[known].clone() };
        }
        let run = self.run(worker);
        let kind = StepKind::ALL[self.below(StepKind::ALL.len())];
        let turn = self.turn();
        Step { turn, kind, name: self.text(), ..worker.step(&run, &self.below(9).to_string()) }
    }

    /// A lease that is renewed or ends, and what else becomes of workers.
    fn work(&mut self) -> WorkerChange {
        let instant = Timestamp(i64::try_from(self.below(9)).unwrap());
        let other = self.below(self.workers.len());
        let fence = self.workers[other].fence;
        match self.below(8) {
            0 => WorkerChange::Renew { until: instant },
            2..=3 => WorkerChange::End { fence, at: instant },
            1 | 4 => WorkerChange::Settle { fence: self.ended.last().copied().unwrap_or(fence) },
            5..=6 => WorkerChange::Attach { name: format!("client {}", self.below(9) / 5), at: instant },
            _ => WorkerChange::Publish,
        }
    }

    /// A new schedule, or the next revision of one; sometimes one too many.
    fn schedule(&mut self, worker: &Sample) -> Schedule {
        let at = i64::try_from(self.below(9)).unwrap();
        let first = worker.schedule(["daily", "hourly"][self.below(2)], at);
        let place = |schedule: &Schedule| (schedule.tenant.clone(), schedule.name.clone());
        let known = self
            .schedules
            .iter()
            .find(|known| place(known) == place(&first))
            .map_or(0, |known| known.revision);
        let revision = known + if self.one_in(4) { 2 } else { 1 };
        // Mostly deleted: another schedule keeps its tenant from being erased.
        let state = if self.one_in(4) { ScheduleState::Active } else { ScheduleState::Deleted };
        let next_at = self.one_in(2).then_some(Timestamp(at)).filter(|_| state == ScheduleState::Active);
        Schedule {
            state,
            next_at,
            revision,
            rule: self.text(),
            input: sample::inline(json!(self.text())),
            ..first
        }
    }

    /// One event or several, mostly new ones.
    fn events(&mut self, worker: &Sample) -> Vec<OutboxEvent> {
        let count = 1 + self.below(3);
        let one = |author: &mut Self| OutboxEvent {
            tenant: worker.tenant.clone(),
            id: author.below(40).to_string(),
            aggregate: ["a", "b"][author.below(2)].to_owned(),
            seq: 77, // the store places it
            kind: author.text(),
            payload: sample::inline(json!(author.text())),
            created_at: Timestamp(i64::try_from(author.below(9)).unwrap()),
        };
        (0..count).map(|_| one(self)).collect()
    }

    /// An aggregate whose next events are published, or are not; mostly from the revision that is stored.
    fn marks(&mut self) -> Vec<Aggregate> {
        let Some(known) = self.known_aggregate() else { return Vec::new() };
        let published = if self.one_in(4) { known.published } else { known.last };
        let escalation = self.one_in(6).then_some(QuestionId(3));
        let revision = known.revision + if self.one_in(4) { 2 } else { 1 };
        let due_at = Timestamp(i64::try_from(self.below(9)).unwrap());
        let tries = u32::try_from(self.below(3)).unwrap();
        vec![Aggregate { published, escalation, revision, due_at, tries, refusals: tries, ..known }]
    }

    fn forgotten(&mut self) -> Vec<Published> {
        let Some(known) = self.known_aggregate() else { return Vec::new() };
        let seq = known.published - i64::from(self.one_in(2));
        vec![Published { tenant: known.tenant, aggregate: known.name, seq, created_at: Timestamp(1) }]
    }

    fn known_aggregate(&mut self) -> Option<Aggregate> {
        if self.aggregates.is_empty() {
            return None;
        }
        let known = self.below(self.aggregates.len());
        Some(self.aggregates[known].clone())
    }

    fn dropped(&mut self, worker: &Sample) -> Vec<DroppedContact> {
        let (record, id) = (self.record(worker), i64::try_from(self.below(3)).unwrap());
        vec![DroppedContact { tenant: record.tenant, record: record.id, id }]
    }

    /// One, or two of different rows.
    fn documents(&mut self, worker: &Sample) -> Vec<Document> {
        let (first, second) = (self.document(worker), self.document(worker));
        let place =
            |document: &Document| (document.tenant.clone(), document.kind.clone(), document.id.clone());
        if place(&first) == place(&second) || self.one_in(2) { vec![first] } else { vec![first, second] }
    }

    /// A new value of a run, or the next one; sometimes one too many.
    fn published(&mut self, worker: &Sample) -> PublishedValue {
        let run = self.run(worker);
        let first = worker.published(&run, &self.text());
        let place = |value: &PublishedValue| (value.tenant.clone(), value.run, value.name.clone());
        let known = self.past.iter().rev().filter_map(|change| change.published.as_deref());
        let known = known.filter(|known| place(known) == place(&first)).map(|known| known.revision).max();
        let revision = known.unwrap_or(0) + if self.one_in(4) { 2 } else { 1 };
        PublishedValue { revision, value: sample::payload(&json!(self.text())), ..first }
    }

    /// A new row of a guard, or the next revision of one; sometimes one too few or too many.
    fn document(&mut self, worker: &Sample) -> Document {
        if !self.documents.is_empty() && !self.one_in(3) {
            let known = self.below(self.documents.len());
            let known = self.documents[known].clone();
            let revision = if self.one_in(4) { known.revision + 2 } else { known.revision + 1 };
            return Document { revision, open: self.one_in(2), body: self.text(), ..known };
        }
        Document {
            tenant: worker.tenant.clone(),
            kind: sample::name(["approval", "artifact"][self.below(2)]),
            id: self.below(2).to_string(),
            revision: 1,
            open: self.one_in(2),
            body: self.text(),
            created_at: Timestamp(1),
            updated_at: Timestamp(2),
        }
    }

    fn signal(&mut self, worker: &Sample) -> Signal {
        if !self.signals.is_empty() && self.one_in(4) {
            let known = self.below(self.signals.len());
            return Signal { body: sample::inline(json!(self.text())), ..self.signals[known].clone() };
        }
        let run = self.run(worker);
        let mut signal = worker.signal(&run, "paid", &self.below(9).to_string());
        signal.place = i64::try_from(self.below(4)).unwrap();
        if self.one_in(8) {
            (signal.name, signal.id) = (CANCEL.to_owned(), DEADLINE.to_owned());
        } else if self.one_in(3) {
            (signal.name, signal.body) = (self.text(), sample::inline(json!(self.text())));
        }
        signal
    }

    /// Mostly one that was sent.
    fn received(&mut self, worker: &Sample) -> Signal {
        if self.signals.is_empty() || self.one_in(8) {
            return self.signal(worker);
        }
        let known = self.below(self.signals.len());
        self.signals[known].clone()
    }

    fn used(&mut self, worker: &Sample) -> SharedEffect {
        let (record, run) = (self.record(worker), self.run(worker));
        SharedEffect { step: self.text(), turn: self.turn(), ..worker.used(&record, &run) }
    }

    /// A changed run, with which the checkpoints of some of its turns may go.
    fn pruning(&mut self, worker: &Sample) -> Change {
        let run = self.changed_run(worker);
        let prune = self.one_in(4).then(|| self.turn());
        Change { prune, ..worker.change().run(run) }
    }

    fn turn(&mut self) -> u32 {
        if self.one_in(2) { 0 } else { u32::try_from(self.below(4)).unwrap() }
    }

    /// A new one, or one that is there is moved on or taken off; sometimes not from the revision that is stored.
    fn look(&mut self, worker: &Sample) -> Look {
        let mut look = if self.looks.is_empty() || self.one_in(4) {
            let record = self.record(worker);
            worker.look(&record, 1)
        } else {
            let known = self.below(self.looks.len());
            self.looks[known].done()
        };
        if look.revision == 1 || self.one_in(5) {
            look.due_at = self.instant();
        }
        look.missed = self.one_in(2);
        look.tries = u32::try_from(self.below(5)).unwrap();
        if self.one_in(3) {
            look.revision = u32::try_from(self.below(4)).unwrap();
        }
        look
    }

    fn question(&mut self, worker: &Sample) -> Question {
        let mut question = worker.escalation(&self.text());
        question.run = self.one_in(2).then(|| self.run(worker).id);
        question.kind =
            [QuestionKind::Ambiguous, QuestionKind::Diverged, QuestionKind::UnknownTool][self.below(3)];
        if !self.questions.is_empty() && self.one_in(2) {
            question.id = self.known_question().id;
        }
        question
    }

    fn answer(&mut self, worker: &Sample) -> Question {
        let open = if self.questions.is_empty() { worker.escalation("?") } else { self.known_question() };
        let mut answered = sample::answered(&open, &self.text());
        if let Some(answer) = &mut answered.answer
            && self.one_in(2)
        {
            answer.resolution = Resolution::Happened(json!({ "by": "hand" }));
        }
        answered
    }

    /// What late answers are compared by, if they are.
    fn contract(&mut self) -> Option<ContractClass> {
        let class = ContractClass::ALL[self.below(ContractClass::ALL.len())];
        self.one_in(2).then_some(class)
    }

    fn evidence(&mut self, worker: &Sample) -> Evidence {
        let record = self.record(worker);
        let at = Timestamp(i64::try_from(self.below(1000)).unwrap());
        Evidence { at, ..worker.evidence(&record, u32::try_from(self.below(3)).unwrap()) }
    }

    fn payloads(&mut self, worker: &Sample) -> Vec<(Tenant, Payload)> {
        (0..self.below(3)).map(|_| (worker.tenant.clone(), sample::payload(&json!(self.text())))).collect()
    }

    fn tenant_key(&mut self, worker: &Sample) -> (Tenant, DigestKey) {
        let byte = u8::try_from(self.below(256)).unwrap();
        (worker.tenant.clone(), DigestKey::new([byte; 32]))
    }

    /// A worker that may have ended, or never been, working for one of two tenants.
    fn worker(&mut self) -> Sample {
        // The youngest are the likeliest to be alive.
        let back = self.below(4).min(self.below(self.workers.len()));
        let mut worker = self.workers[self.workers.len() - 1 - back].clone();
        if self.one_in(40) {
            worker.fence = Fence(1000);
        }
        if self.one_in(3) { worker.for_tenant("globex") } else { worker }
    }

    fn record(&mut self, worker: &Sample) -> Record {
        if self.records.is_empty() || self.one_in(12) {
            return worker.record("nowhere");
        }
        let known = self.below(self.records.len());
        self.records[known].clone()
    }

    fn run(&mut self, worker: &Sample) -> Run {
        if self.runs.is_empty() || self.one_in(12) {
            return worker.run("nowhere");
        }
        let known = self.below(self.runs.len());
        self.runs[known].clone()
    }

    fn known_question(&mut self) -> Question {
        let known = self.below(self.questions.len());
        self.questions[known].clone()
    }

    fn text(&mut self) -> String {
        HOSTILE[self.below(HOSTILE.len())].to_owned()
    }

    fn instant(&mut self) -> Option<Timestamp> {
        self.one_in(3).then(|| Timestamp(i64::try_from(self.below(5)).unwrap()))
    }

    fn lane(&mut self) -> Option<OrderingKey> {
        self.one_in(2).then(|| OrderingKey(self.below(3) as u64))
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.bits() % n as u64).unwrap()
    }

    /// `SplitMix64` (S. Vigna).
    fn bits(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.chance;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
