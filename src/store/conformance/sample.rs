//! Plain rows to begin a test with, and hostile texts.

use std::sync::Arc;

use serde_json::json;

use super::admit;
use crate::clock::Timestamp;
use crate::id::{DeclarationId, Fence, Ids, Name, QuestionId, RecordId, RunId, RunNumber, Tenant};
use crate::ledger::{
    Approval, EffectClass, ErrorKind, Intent, Key, Look, OperationKey, Owner, PolicyVersion, Reason, Record,
    RequestHash, Retention, State,
};
use crate::payload::{Payload, Stored};
use crate::store::chain::Link;
use crate::store::{
    Answer, Change, Contact, ContactResult, Document, Evidence, PublishedValue, Question, QuestionKind,
    RecordLabel, Resolution, Run, RunLabel, RunState, Schedule, ScheduleState, SharedEffect, Signal, Step,
    StepKind, Store, WaitsOn, WorkerChange,
};

/// Text that has broken programs before.
pub const HOSTILE: [&str; 10] = [
    "'; DROP TABLE record; --",
    "\" OR 1=1 /*",
    "%_?1:a@b$c",
    "@0000000000000000000000000000000000000000000000000000000000000000",
    "👩‍👩‍👧‍👦🏴󠁧󠁢󠁷󠁬󠁳󠁿",
    "\u{202e}txet desrever\u{2066}",
    "שלום עולם",
    "é\u{301}\u{fffd}\u{feff}\u{10ffff}",
    "null",
    " leading and trailing ",
];

/// A worker of a store under test, which makes rows with its own ids.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The fence of the worker.
    pub fence: Fence,
    /// The tenant of the worker's rows.
    pub tenant: Tenant,
    ids: Arc<Ids>,
}

impl Sample {
    /// Enrols a worker of this name, which must be new to the store.
    pub async fn enrol(store: &dyn Store, name: &str) -> Self {
        admit(store, &[enrol(name)]).await;
        let worker = store.worker_find(name).await.expect("the store works").expect("it has enrolled");
        Self::of(worker.fence)
    }

    /// Enrols a worker of this name with a lease until this instant.
    pub async fn leased(store: &dyn Store, name: &str, until: i64) -> Self {
        let (name, at) = (name.to_owned(), Timestamp(100));
        let enrol = WorkerChange::Enrol { name: name.clone(), at, lease_until: Some(Timestamp(until)) };
        admit(store, &[worker(None, enrol)]).await;
        Self::of(store.worker_find(&name).await.expect("the store works").expect("it has enrolled").fence)
    }

    /// The worker with this fence.
    pub fn of(fence: Fence) -> Self {
        Self { fence, tenant: tenant("acme"), ids: Arc::new(Ids::new(fence)) }
    }

    /// The same worker at work for another tenant.
    #[must_use]
    pub fn for_tenant(&self, name: &str) -> Self {
        Self { tenant: tenant(name), ..self.clone() }
    }

    /// An empty change by this worker.
    pub fn change(&self) -> Change {
        Change::by(self.fence)
    }

    /// A new started record that belongs to no run.
    pub fn record(&self, target: &str) -> Record {
        let request = inline(json!({ "target": target }));
        let intent = Intent {
            id: RecordId(self.ids.next()),
            tenant: self.tenant.clone(),
            key: key(target),
            operation: name("pay"),
            class: EffectClass::Payment,
            request_hash: hash(target),
            request,
            declaration: DeclarationId(1),
            owner: Owner::default(),
            fence: self.fence,
            retention: Retention::keep(),
            approval: None,
            scopes: None,
        };
        Record::begin(intent, Timestamp(1_000))
    }

    /// A new started record of a run's step.
    pub fn call(&self, run: &Run, step: &str, target: &str) -> Record {
        let owner = Owner { run: Some(run.id), step: Some(step.into()), ..Owner::default() };
        Record { owner, ..self.record(target) }
    }

    /// A look at a record that is due at this instant.
    pub fn look(&self, record: &Record, due_at: i64) -> Look {
        Look {
            tenant: record.tenant.clone(),
            record: record.id,
            revision: 1,
            reason: Reason::Doubt,
            due_at: Some(Timestamp(due_at)),
            since: Timestamp(1),
            made: 0,
            tries: 0,
            missed: false,
        }
    }

    /// The record, one revision on and committed.
    pub fn committed(&self, record: &Record) -> Record {
        let response = inline(json!({ "done": record.key.as_str() }));
        self.record_on(record, State::Committed { response })
    }

    /// The record, one revision on and in another state.
    pub fn record_on(&self, record: &Record, state: State) -> Record {
        Record { state, fence: self.fence, revision: record.revision + 1, ..record.clone() }
    }

    /// A new active run with a start key.
    pub fn run(&self, start: &str) -> Run {
        Run { key: Some(start.to_owned()), ..self.run_without_key() }
    }

    /// A new active run without a start key.
    pub fn run_without_key(&self) -> Run {
        Run {
            id: RunId(self.ids.next()),
            tenant: self.tenant.clone(),
            number: RunNumber(-7), // any 64 bits will do
            workflow: name("order"),
            version: 1,
            key: None,
            parent: None,
            input: inline(json!({ "order": 7 })),
            input_hash: hash("order"),
            state: RunState::Active,
            queue: None,
            fence: self.fence,
            revision: 1,
            deaths: 0,
            unsettled: false,
            base: 0,
            turn: 1,
            deadline: None,
            traceparent: None,
            created_at: Timestamp(1_000),
            updated_at: Timestamp(1_000),
        }
    }

    /// The run, one revision on and in another state.
    pub fn run_on(&self, run: &Run, state: RunState) -> Run {
        Run { state, fence: self.fence, revision: run.revision + 1, ..run.clone() }
    }

    /// A new run that waits for an instant.
    pub fn timer(&self, until: i64) -> Run {
        Run {
            state: RunState::Waiting { until: Some(Timestamp(until)), on: WaitsOn::NOTHING },
            ..self.run_without_key()
        }
    }

    /// A checkpoint of a run.
    pub fn step(&self, run: &Run, id: &str) -> Step {
        Step {
            tenant: self.tenant.clone(),
            run: run.id,
            turn: 0,
            kind: StepKind::Step,
            name: "load".into(),
            id: id.to_owned(),
            input_hash: Some(hash(id)),
            value: Some(inline(json!({ "step": id }))),
            at: Timestamp(2_000),
        }
    }

    /// A signal to a run.
    pub fn signal(&self, run: &Run, name: &str, id: &str) -> Signal {
        Signal {
            tenant: self.tenant.clone(),
            run: run.id,
            name: name.to_owned(),
            id: id.to_owned(),
            place: 0,
            body: inline(json!({ "said": id })),
            at: Timestamp(2_500),
        }
    }

    /// The use of a record by a run.
    pub fn used(&self, record: &Record, run: &Run) -> SharedEffect {
        SharedEffect {
            tenant: self.tenant.clone(),
            record: record.id,
            run: run.id,
            turn: 0,
            step: "pay/1".into(),
            at: Timestamp(3_000),
        }
    }

    /// An open question.
    pub fn escalation(&self, question: &str) -> Question {
        let id = self.ids.next();
        Question {
            id: QuestionId(id),
            tenant: self.tenant.clone(),
            record: None,
            run: None,
            kind: QuestionKind::Ambiguous,
            question: question.to_owned(),
            opened_at: Timestamp(id & 0xffff),
            waiting: None,
            answer: None,
        }
    }

    /// A schedule that is due at this instant.
    pub fn schedule(&self, of: &str, next_at: i64) -> Schedule {
        Schedule {
            tenant: self.tenant.clone(),
            name: name(of),
            workflow: name("order"),
            version: 3,
            rule: r#"{"when":"'; DROP TABLE schedule; --"}"#.into(),
            input: inline(json!({ "order": 7 })),
            state: ScheduleState::Active,
            next_at: Some(Timestamp(next_at)),
            last_at: None,
            last_run: None,
            missed: 0,
            revision: 1,
            created_at: Timestamp(1),
            updated_at: Timestamp(2),
        }
    }

    /// An open document.
    pub fn document(&self, id: &str) -> Document {
        Document {
            tenant: self.tenant.clone(),
            kind: name("approval"),
            id: id.into(),
            revision: 1,
            open: true,
            body: r#"{"what":"'; DROP TABLE document; --"}"#.into(),
            created_at: Timestamp(1),
            updated_at: Timestamp(2),
        }
    }

    /// A value that a run publishes.
    pub fn published(&self, run: &Run, name: &str) -> PublishedValue {
        PublishedValue {
            tenant: self.tenant.clone(),
            run: run.id,
            name: name.into(),
            revision: 1,
            value: payload(&json!({ "done": 1 })),
            at: Timestamp(2_700),
        }
    }

    /// A label of a run.
    pub fn label(&self, run: &Run, name: &str, value: &str) -> RunLabel {
        RunLabel {
            tenant: run.tenant.clone(),
            run: run.id,
            name: name.into(),
            value: value.into(),
            started_at: run.created_at,
        }
    }

    /// A link of a chain of evidence.
    pub fn link(&self, chain: i64, number: i64) -> Link {
        Link {
            chain,
            number,
            tenant: self.tenant.clone(),
            at: Timestamp(3_000),
            body: [7, 0, 255].into(),
            signature: [0; 16].into(),
        }
    }

    /// A label of a record.
    pub fn record_label(&self, record: &Record, name: &str, value: &str) -> RecordLabel {
        RecordLabel {
            tenant: record.tenant.clone(),
            record: record.id,
            name: name.into(),
            value: value.into(),
            key: record.key.clone(),
        }
    }

    /// A new id.
    pub fn id(&self) -> i64 {
        self.ids.next()
    }

    /// An attempt of a record by this worker, which failed.
    pub fn attempt(&self, record: &Record, number: u32) -> Contact {
        Contact {
            tenant: self.tenant.clone(),
            record: record.id,
            id: number.into(),
            is_lookup: false,
            number,
            attempt: number,
            worker: self.fence,
            began: Some(Timestamp(3_000)),
            ended: Timestamp(3_100),
            result: ContactResult::Failed,
            error: Some(ErrorKind::RateLimited),
            message: Some(HOSTILE.join("\n")),
            external_ref: Some("ch_1".into()),
        }
    }

    /// The evidence of this worker about an attempt of a record.
    pub fn evidence(&self, record: &Record, attempt: u32) -> Evidence {
        Evidence {
            tenant: self.tenant.clone(),
            record: record.id,
            fence: self.fence,
            attempt,
            response: inline(json!({ "late": attempt })),
            external_ref: Some("ch_1".into()),
            at: Timestamp(4_000),
        }
    }
}

/// The question with an answer.
#[must_use]
pub fn answered(escalation: &Question, by: &str) -> Question {
    let answer = Answer {
        misfit: None,
        by: by.to_owned(),
        resolution: Resolution::DidNotHappen,
        because: None,
        at: Timestamp(5_000),
    };
    Question { answer: Some(answer), ..escalation.clone() }
}

/// The enrolment of a worker.
pub fn enrol(name: &str) -> Change {
    worker(None, WorkerChange::Enrol { name: name.to_owned(), at: Timestamp(100), lease_until: None })
}

/// The change by which a worker fences all the others.
pub fn fence_others(by: Fence) -> Change {
    worker(Some(by), WorkerChange::FenceOthers { at: Timestamp(200) })
}

/// The change by which a worker retires.
pub fn retire(by: Fence) -> Change {
    worker(Some(by), WorkerChange::Retire { at: Timestamp(300) })
}

/// A change of a worker.
pub(crate) fn worker(fence: Option<Fence>, change: WorkerChange) -> Change {
    Change { fence, worker: Some(change), ..Change::default() }
}

/// A rendered key about a target.
pub fn key(target: &str) -> OperationKey {
    Key::of("pay").target(target).operation("charge").render().expect("a valid key")
}

/// A tenant of this name.
pub fn tenant(name: &str) -> Tenant {
    Tenant::new(name).expect("a valid tenant")
}

/// A valid name with this text.
pub fn name(name: &str) -> Name {
    Name::new(name).expect("a valid name")
}

/// The canonical form of a value.
pub fn payload(value: &serde_json::Value) -> Payload {
    Payload::of(value).expect("a valid payload")
}

/// An approval that this person has given.
pub fn approval(by: &str) -> Approval {
    Approval {
        by: by.to_owned(),
        package: "00ff".to_owned(),
        expires_at: Some(Timestamp(1)),
        review: Some(("run-1/notice/1".to_owned(), 2)),
        policy: Some(PolicyVersion { name: "transactional-mail".to_owned(), version: 3 }),
    }
}

/// A value that is stored in its row.
#[allow(clippy::needless_pass_by_value, reason = "reads better where it is built with json!")]
pub fn inline(value: serde_json::Value) -> Stored {
    Stored::Inline(payload(&value))
}

/// A hash of this text; different texts have different hashes.
pub fn hash(of: &str) -> RequestHash {
    RequestHash::of("sample", &payload(&json!(of)))
}
