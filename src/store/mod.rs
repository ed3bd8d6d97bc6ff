//! ② All durable state, and all SQL. This module states the contract of a store; the public suite
//! `store::conformance` checks it, for every back end and every wrapper.
//!
//! Reads are named by their meaning. There is one write primitive, [`Store::commit`].

mod aggregate;
#[cfg_attr(
    not(any(feature = "sqlite", feature = "postgres")),
    allow(dead_code, reason = "the model has no columns")
)]
mod cell;
pub mod chain;
pub(crate) mod change;
#[cfg(feature = "conformance")]
pub mod conformance;
mod contact;
mod contract;
mod defect;
mod document;
pub(crate) mod durable;
#[cfg(feature = "encryption")]
pub mod encryption;
mod error;
mod escalation;
mod evidence;
mod figures;
mod group;
mod history;
mod inbox;
mod label;
mod late;
mod load;
mod look;
mod mark;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod migration;
mod model;
mod outage;
mod outbox;
pub(crate) mod own;
#[cfg(feature = "postgres")]
pub mod postgres;
mod published;
mod read_only;
mod reads;
mod record;
mod resolution;
#[cfg_attr(
    not(feature = "postgres"),
    allow(
        dead_code,
        reason = "SQLite tells the types of values apart by itself, and cuts no batch; the model has no columns"
    )
)]
mod row;
mod run;
mod run_filter;
mod schedule;
mod signal;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod sql;
#[cfg(all(feature = "sqlite", feature = "unstable-core"))]
pub mod sqlite;
#[cfg(all(feature = "sqlite", not(feature = "unstable-core")))]
pub(crate) mod sqlite;
mod step;
#[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "tables are moved to PostgreSQL alone"))]
mod table;
mod transaction;
#[cfg(all(feature = "sqlite", feature = "postgres", feature = "unstable-core"))]
pub mod transfer;
#[cfg(all(feature = "sqlite", feature = "postgres", not(feature = "unstable-core")))]
pub(crate) mod transfer;
mod used;
mod worker;
mod written;

pub use change::{Refusal, UnderWay};
pub use contact::ContactResult;
#[cfg(any(feature = "api", feature = "sim"))]
pub(crate) use document::WORKFLOW_KIND;
#[cfg(feature = "api")]
pub(crate) use document::whole;
pub(crate) use document::{DECLARATION_KIND, ENCRYPTION_ID, LEDGER_ID, LEDGER_KIND, part};
pub use error::{OpenError, StoreError};
pub use escalation::{Answer, Question, QuestionCount, QuestionKind};
pub(crate) use group::{Held, PAUSES};
#[cfg(all(feature = "sim", feature = "sqlite"))]
pub(crate) use inbox::Inbox;
pub(crate) use inbox::{Aside, Counting, Delivery, Known, SetAside};
pub(crate) use label::Labels;
pub(crate) use late::FIRST as FIRST_LATE_QUESTION;
pub(crate) use mark::Mark;
pub(crate) use outage::{Outage, Side};
pub(crate) use read_only::ReadOnly;
pub use resolution::{PossibleAnswer, Resolution};
pub use run_filter::{RunCursor, RunFilter, RunPage, RunStateName};
#[doc(hidden)]
pub use signal::{CANCEL, COMMAND, DEADLINE};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub use sql::Queried;
pub use step::StepKind;
pub use transaction::TransactionError;

unstable_core! {
    pub use contract::{Passing, Store, StoreFuture};
    pub use aggregate::Aggregate;
    pub use change::{Change, ExpiredSignal, Form, OrderingKey, Retired, RetiredRun, Verdict, WorkerChange};
    pub use contact::{Contact, DroppedContact};
    pub use defect::Defect;
    pub use document::Document;
    pub use escalation::QuestionLoad;
    pub use evidence::Evidence;
    pub use figures::{AvoidedDuplicates, QuestionSpan};
    pub use group::{Group, Ticket};
    pub use history::{History, HistoryPlace, PastCall, PastUse};
    pub use label::{RecordLabel, RunLabel};
    pub use load::{Connections, RetainedKind, RetentionLoad, StoreLoad};
    pub use model::Model;
    pub use outbox::{Due, OutboxEvent, Published};
    pub use published::PublishedValue;
    pub use run::{InQueue, QueueLoad, Run, RunState, WaitsOn};
    pub use schedule::{Schedule, ScheduleState};
    pub use signal::Signal;
    pub use step::{PastStep, Step, Turns};
    pub use used::SharedEffect;
    pub use worker::{ClusterStatus, Worker};
    pub use crate::ledger::{Admission, Queue};
}

#[cfg(feature = "unstable-core")]
/// The words for the codes that rows hold, by column, for a test of the views.
#[doc(hidden)]
pub fn words() -> Vec<(&'static str, i64, &'static str)> {
    use crate::ledger::{Basis, EffectClass};
    let kinds = QuestionKind::ALL.iter().filter(|kind| **kind != QuestionKind::Pending);
    let kinds = kinds.map(|kind| ("e.kind", kind.code(), kind.name()));
    let effects = EffectClass::ALL.iter().map(|class| ("class", class.code(), class.name()));
    let grounds = Basis::ALL.iter().map(|basis| ("basis", basis.code(), basis.name()));
    let results = ContactResult::ALL.iter().map(|result| ("c.result", result.code(), result.name()));
    kinds.chain(effects).chain(grounds).chain(results).collect()
}
