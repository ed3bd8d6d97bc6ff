//! Everything that can be read from a store, to compare two stores or one store before and after.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use crate::clock::Timestamp;
use crate::id::{Fence, QuestionId, RecordId, RunId, Tenant};
use crate::ledger::OperationKey;
use crate::payload::PayloadDigest;
use crate::store::change::Written;
use crate::store::{
    Change, HistoryPlace, PastStep, RunFilter, RunState, RunStateName, Store, Turns, WorkerChange,
};

/// The names that a store can be asked about, gathered from the changes that were sent to it, admitted or not.
#[derive(Clone, Debug, Default)]
pub struct Names {
    tenants: BTreeSet<Tenant>,
    workers: BTreeSet<String>,
    signals: BTreeSet<(RunId, String, String)>,
    runs: BTreeSet<RunId>,
    labels: BTreeSet<(String, String)>,
    chains: BTreeSet<i64>,
    workflows: BTreeSet<String>,
    starts: BTreeSet<(String, String)>,
    records: BTreeSet<RecordId>,
    record_labels: BTreeSet<(String, String)>,
    keys: BTreeSet<OperationKey>,
    escalations: BTreeSet<QuestionId>,
    payloads: BTreeSet<[u8; 32]>,
    instants: BTreeSet<Timestamp>,
    queues: BTreeSet<(String, Fence)>,
    documents: BTreeSet<(String, String)>,
    published: BTreeSet<(RunId, String)>,
    events: BTreeSet<String>,
    aggregates: BTreeSet<String>,
}

impl Names {
    /// Adds the names in a change.
    pub fn learn(&mut self, change: &Change) {
        for row in change.written() {
            self.tenants.extend(row.tenant().cloned());
            self.learn_row(row, change.fence);
        }
    }

    fn learn_row(&mut self, row: Written<'_>, by: Option<Fence>) {
        match row {
            Written::Worker(WorkerChange::Enrol { name, .. } | WorkerChange::Attach { name, .. }) => {
                self.workers.insert(name.clone());
            }
            Written::Admission(row) => {
                self.queues.extend(by.map(|fence| (row.queue.name().to_owned(), fence)));
            }
            Written::Schedule(row) => self.instants.extend(row.next_at),
            Written::Document(row) => {
                self.documents.insert((row.kind.as_str().to_owned(), row.id.clone()));
            }
            Written::Published(row) => drop(self.published.insert((row.run, row.name.clone()))),
            Written::Event(row) => {
                self.events.insert(row.id.clone());
                self.aggregates.insert(row.aggregate.clone());
            }
            Written::Mark(row) => drop(self.aggregates.insert(row.name.clone())),
            Written::Retired(row) => drop(self.records.insert(row.id)),
            Written::RetiredRun(row) => drop(self.runs.insert(row.run.id)),
            Written::ExpiredSignal(row) => drop(self.instants.insert(row.signal.at)),
            Written::Payload((_, payload)) => drop(self.payloads.insert(payload.digest().0)),
            Written::Run(row) => {
                self.runs.insert(row.id);
                self.workflows.insert(row.workflow.as_str().to_owned());
                self.instants.insert(row.updated_at);
                self.starts.extend(row.key.clone().map(|key| (row.workflow.as_str().to_owned(), key)));
                self.instants.extend(row.deadline);
                if let RunState::Waiting { until, .. } = row.state {
                    self.instants.extend(until);
                }
            }
            Written::Record(row) => {
                self.records.insert(row.id);
                self.keys.insert(row.key.clone());
                self.instants.extend(row.kept_until);
            }
            Written::RecordLabel(row) => {
                self.records.insert(row.record);
                self.record_labels.insert((row.name.clone(), row.value.clone()));
            }
            Written::Look(row) => {
                self.records.insert(row.record);
                self.instants.extend(row.due_at);
            }
            Written::Label(row) => {
                self.runs.insert(row.run);
                self.labels.insert((row.name.clone(), row.value.clone()));
            }
            Written::Step(row) => drop(self.runs.insert(row.run)),
            Written::SharedEffect(row) => {
                self.records.insert(row.record);
                self.runs.insert(row.run);
            }
            Written::Question(row) => drop(self.escalations.insert(row.id)),
            Written::Signal(row) | Written::Received(row) => {
                self.runs.insert(row.run);
                self.signals.insert((row.run, row.name.clone(), row.id.clone()));
            }
            Written::Evidence(row) => drop(self.records.insert(row.record)),
            Written::Link(row) => drop(self.chains.insert(row.chain)),
            Written::Contact(row) => drop(self.records.insert(row.record)),
            Written::DroppedContact(row) => drop(self.records.insert(row.record)),
            Written::Worker(_)
            | Written::Erased(_)
            | Written::Forgotten(_)
            | Written::Key(_)
            | Written::Prune(_) => {}
        }
    }
}

/// Filters for runs in each state, of each workflow, and by the beginnings of their keys.
fn filters(names: &Names) -> Vec<RunFilter> {
    let all = RunFilter::new().newest_first();
    let of_states = RunStateName::ALL.map(|state| RunFilter::new().state(state));
    let of_workflows = names.workflows.iter().map(|workflow| RunFilter::new().workflow(workflow));
    let beginning =
        |(_, key): &(String, String)| RunFilter::new().key(key.chars().take(2).collect::<String>());
    let labelled = names.labels.iter().flat_map(|(name, value)| {
        let of_label = RunFilter::new().label(name, value);
        let ended = of_label.clone().newest_first().state(RunStateName::Succeeded);
        [of_label.clone(), of_label.key("1"), ended]
    });
    [all]
        .into_iter()
        .chain(labelled)
        .chain(of_states)
        .chain(of_workflows)
        .chain(names.starts.iter().map(beginning))
        .collect()
}

/// The answers of a store, as text, by question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State(BTreeMap<String, String>);

impl State {
    /// Asks a store everything about these names, each name under each tenant.
    pub async fn of(store: &dyn Store, names: &Names) -> Self {
        let mut state = Self::default();
        for name in &names.workers {
            state.note(format!("worker {name}"), &store.worker_find(name).await);
        }
        for limit in [3, u32::MAX] {
            let after = names.records.iter().nth(names.records.len() / 2).filter(|_| limit == 3);
            let after = after.copied().unwrap_or(RecordId(i64::MIN));
            state.note(format!("record_orphans {after} {limit}"), &store.record_orphans(after, limit).await);
            let after = names.runs.iter().nth(names.runs.len() / 2).filter(|_| limit == 3);
            let after = after.copied().unwrap_or(RunId(i64::MIN));
            state.note(format!("run_orphans {after} {limit}"), &store.run_orphans(after, limit).await);
            state.note(format!("run_answered {after} {limit}"), &store.run_answered(after, limit).await);
            state.note(format!("run_signalled {after} {limit}"), &store.run_signalled(after, limit).await);
            state.note(format!("run_cancelled {after} {limit}"), &store.run_cancelled(after, limit).await);
            let unknown = store.escalation_unknown_workflow(QuestionId(i64::MIN), limit).await;
            state.note(format!("escalation_unknown_workflow {limit}"), &unknown);
            let duplicated = store.escalation_duplicated(QuestionId(i64::MIN), limit).await;
            state.note(format!("escalation_duplicated {limit}"), &duplicated);
            for until in names.instants.iter().copied().chain([Timestamp::MAX]) {
                let runs = store.run_due(until, None, limit).await;
                state.note(format!("run_due {} {limit}", until.0), &runs);
                let runs = store.run_overdue(until, None, limit).await;
                state.note(format!("run_overdue {} {limit}", until.0), &runs);
                let schedules = store.schedule_due(until, None, limit).await;
                state.note(format!("schedule_due {} {limit}", until.0), &schedules);
                let looks = store.look_due(until, None, limit).await;
                state.note(format!("look_due {} {limit}", until.0), &looks);
                let records = store.record_expired(Timestamp::MIN, until, limit).await;
                state.note(format!("record_expired {} {limit}", until.0), &records);
                for workflow in &names.workflows {
                    let runs = store.run_over(workflow, Timestamp::MIN, until, limit).await;
                    state.note(format!("run_over {workflow} {} {limit}", until.0), &runs);
                    let signals = store.signal_over(workflow, Timestamp::MIN, until, limit).await;
                    state.note(format!("signal_over {workflow} {} {limit}", until.0), &signals);
                }
            }
        }
        for limit in [3, u32::MAX] {
            state.note(format!("outbox_due {limit}"), &store.outbox_due(Timestamp::MAX, limit).await);
            let published = store.outbox_published(Timestamp::MIN, limit).await;
            state.note(format!("outbox_published {limit}"), &published);
        }
        state.note("outbox_next".into(), &store.outbox_next(Timestamp::MIN).await);
        state.note("queue_waiting".into(), &store.queue_waiting().await);
        state.note("queue_load".into(), &store.queue_load().await);
        for (queue, fence) in &names.queues {
            let admitted = store.queue_admitted(queue, *fence, Timestamp::MIN).await;
            state.note(format!("queue_admitted {queue} {fence}"), &admitted);
        }
        state.note("escalation_load".into(), &store.escalation_load().await);
        for limit in [3, u32::MAX] {
            let open = store.escalation_open_everywhere(QuestionId(i64::MIN), limit).await;
            state.note(format!("escalation_open_everywhere {limit}"), &open);
            state.note(format!("tenant_list {limit}"), &store.tenant_list("", limit).await);
        }
        state.note("record_expiring".into(), &store.record_expiring(Timestamp::MIN).await);
        state.note("next_due".into(), &store.next_due(Timestamp::MIN).await);
        state.ask_chains(store, names).await;
        for tenant in &names.tenants {
            state.ask_lists(store, names, tenant).await;
            state.ask_runs(store, names, tenant).await;
            state.ask_rows(store, names, tenant).await;
        }
        state
    }

    async fn ask_chains(&mut self, store: &dyn Store, names: &Names) {
        for chain in &names.chains {
            self.note(format!("chain {chain}"), &store.link_list(*chain, 0, u32::MAX).await);
            self.note(format!("behind chain {chain}"), &store.link_chain(*chain).await);
        }
    }

    async fn ask_lists(&mut self, store: &dyn Store, names: &Names, tenant: &Tenant) {
        let key = store.tenant_key(tenant).await.map(|key| key.map(|key| *key.bytes()));
        self.note(format!("{tenant}: key"), &key);
        for limit in [3, u32::MAX] {
            let runs = store.run_list(tenant, RunId(i64::MIN), limit).await;
            self.note(format!("{tenant}: runs {limit}"), &runs);
            for filter in filters(names) {
                let page = store.run_page(tenant, &filter, None, limit).await;
                self.note(format!("{tenant}: {filter:?} {limit}"), &page);
            }
            for (name, value) in &names.record_labels {
                for (prefix, after) in [("", ""), ("a", ""), ("", "charge:a")] {
                    let labelled = store.record_labelled(tenant, (name, value), prefix, after, limit).await;
                    self.note(
                        format!("{tenant}: {prefix}* after {after} with {name}={value} {limit}"),
                        &labelled,
                    );
                }
            }
            let open = store.escalation_open(tenant, QuestionId(i64::MIN), limit).await;
            self.note(format!("{tenant}: open escalations {limit}"), &open);
            let aside = store.outbox_all_set_aside(tenant, QuestionId(i64::MIN), limit).await;
            self.note(format!("{tenant}: set aside {limit}"), &aside);
            let answered = store.escalation_answered(tenant, QuestionId(i64::MIN), limit).await;
            self.note(format!("{tenant}: answered escalations {limit}"), &answered);
            let spans = store.escalation_spans(tenant, limit).await;
            self.note(format!("{tenant}: times of escalations {limit}"), &spans);
            let avoided = store.record_avoided(tenant, Timestamp::MIN, limit).await;
            self.note(format!("{tenant}: duplicates avoided {limit}"), &avoided);
        }
        self.note(format!("{tenant}: escalations"), &store.escalation_count(tenant).await);
        let schedules = store.schedule_list(tenant, "", u32::MAX).await;
        self.note(format!("{tenant}: schedules"), &schedules);
        for (kind, id) in &names.documents {
            let found = store.document_find(tenant, kind, id).await;
            self.note(format!("{tenant}: {kind} {id}"), &found);
            let open = store.document_open(tenant, kind, "", 2).await;
            self.note(format!("{tenant}: open {kind}s"), &open);
            let list = store.document_list(tenant, kind, id, u32::MAX).await;
            self.note(format!("{tenant}: {kind}s after {id}"), &list);
        }
    }

    async fn ask_runs(&mut self, store: &dyn Store, names: &Names, tenant: &Tenant) {
        for (run, name) in &names.published {
            let found = store.published_find(tenant, *run, name).await;
            self.note(format!("{tenant}: {run} published {name}"), &found);
        }
        for id in &names.runs {
            self.note(format!("{tenant}: {id}"), &store.run_find(tenant, *id).await);
            for turns in [Turns::ALL, Turns::between(1, 2), Turns { base: 0, first: 2, last: 3 }] {
                let mut history = store.run_history(tenant, *id, turns).await;
                if let Ok(history) = &mut history {
                    // The order does not matter: every part is identified by its names.
                    let place = |step: &PastStep| (step.turn, step.kind, step.name.clone(), step.id.clone());
                    history.steps.sort_by_key(place);
                    history.calls.sort_by_key(|call| call.record);
                    history.uses.sort_by_key(|used| (used.turn, used.record));
                }
                self.note(format!("{tenant}: {turns:?} of {id}"), &history);
            }
            for after in [HistoryPlace::Start, HistoryPlace::Turn(0)] {
                let page = store.run_history_page(tenant, *id, &after, 2).await;
                self.note(format!("{tenant}: page of {id} behind {after:?}"), &page);
            }
            self.note(
                format!("{tenant}: pending of {id}"),
                &store.signal_pending(&[(tenant.clone(), *id)]).await,
            );
            self.note(format!("{tenant}: labels of {id}"), &store.run_labels(tenant, *id).await);
            self.note(format!("{tenant}: questions about {id}"), &store.escalation_about(tenant, *id).await);
            let asked = store.escalation_open_about(tenant, *id, 2).await;
            self.note(format!("{tenant}: first questions about {id}"), &asked);
            let children = store.run_children(tenant, *id, RunId(i64::MIN), u32::MAX).await;
            self.note(format!("{tenant}: children of {id}"), &children);
        }
    }

    async fn ask_rows(&mut self, store: &dyn Store, names: &Names, tenant: &Tenant) {
        for (run, name, id) in &names.signals {
            let signal = store.signal_find(tenant, *run, name, id).await;
            self.note(format!("{tenant}: signal {name:?} {id:?} to {run}"), &signal);
        }
        for id in &names.events {
            self.note(format!("{tenant}: event {id}"), &store.outbox_find(tenant, id).await);
        }
        for name in &names.aggregates {
            self.note(format!("{tenant}: aggregate {name}"), &store.outbox_aggregate(tenant, name).await);
        }
        for (workflow, key) in &names.starts {
            let run = store.run_keyed(tenant, workflow, key).await;
            self.note(format!("{tenant}: run {workflow} {key}"), &run);
        }
        for id in &names.records {
            self.note(format!("{tenant}: {id}"), &store.record_at(tenant, *id).await);
            self.note(format!("{tenant}: uses of {id}"), &store.record_uses(tenant, *id).await);
            self.note(format!("{tenant}: labels of {id}"), &store.record_labels(tenant, *id).await);
            self.note(format!("{tenant}: contacts of {id}"), &store.record_contacts(tenant, *id).await);
            self.note(format!("{tenant}: evidence of {id}"), &store.record_evidence(tenant, *id).await);
        }
        for key in &names.keys {
            self.note(format!("{tenant}: record {key}"), &store.record_find(tenant, key).await);
        }
        for id in &names.escalations {
            self.note(format!("{tenant}: {id}"), &store.escalation_find(tenant, *id).await);
        }
        for digest in &names.payloads {
            let payload = store.payload_find(tenant, PayloadDigest(*digest)).await;
            self.note(format!("{tenant}: payload {digest:02x?}"), &payload);
        }
    }

    fn note(&mut self, question: String, answer: &impl Debug) {
        self.0.insert(question, format!("{answer:?}"));
    }

    /// The questions that two stores answer differently, with both answers.
    pub fn difference(&self, other: &Self) -> Vec<String> {
        let questions: BTreeSet<_> = self.0.keys().chain(other.0.keys()).collect();
        let differs = |question: &&&String| self.0.get(**question) != other.0.get(**question);
        let say = |question: &String| {
            let answers = (self.0.get(question), other.0.get(question));
            format!("{question}\n   one: {:?}\n other: {:?}", answers.0, answers.1)
        };
        questions.iter().filter(differs).map(|question| say(question)).collect()
    }
}
