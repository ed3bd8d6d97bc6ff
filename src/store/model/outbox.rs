//! The outbox, as every store must keep it.

use super::tables::{Tables, follows};
use crate::clock::Timestamp;
use crate::id::{QuestionId, Tenant};
use crate::store::{Aggregate, Due, OutboxEvent, Published, Refusal};

type Place = (Tenant, String);

impl Tables {
    pub(super) fn is_event_taken(&self, event: &OutboxEvent) -> bool {
        self.events.contains_key(&place(event))
    }

    /// Checks the revision of an aggregate, which exists from its first event on.
    pub(super) fn check_mark(&self, mark: &Aggregate) -> Result<(), Refusal> {
        let stored = self.aggregates.get(&of(&mark.tenant, &mark.name)).ok_or(Refusal::Stale)?;
        follows(stored.revision, mark.revision)
    }

    pub(super) fn add_event(&mut self, event: &OutboxEvent) {
        let aggregate =
            self.aggregates.entry(of(&event.tenant, &event.aggregate)).or_insert_with(|| Aggregate {
                tenant: event.tenant.clone(),
                name: event.aggregate.clone(),
                last: 0,
                published: 0,
                tries: 0,
                refusals: 0,
                due_at: event.created_at,
                escalation: None,
                revision: 1,
            });
        if aggregate.published == aggregate.last {
            aggregate.due_at = event.created_at;
        }
        aggregate.last += 1;
        self.events.insert(place(event), OutboxEvent { seq: aggregate.last, ..event.clone() });
    }

    pub(super) fn mark(&mut self, mark: &Aggregate) {
        if let Some(stored) = self.aggregates.get_mut(&of(&mark.tenant, &mark.name)) {
            *stored = Aggregate { last: stored.last, ..mark.clone() };
        }
    }

    pub(super) fn forget(&mut self, gone: &Published) {
        let published = self.aggregates.get(&of(&gone.tenant, &gone.aggregate)).map_or(0, |a| a.published);
        self.events.retain(|_, event| {
            (&event.tenant, &event.aggregate) != (&gone.tenant, &gone.aggregate)
                || event.seq > gone.seq.min(published)
        });
    }

    pub(super) fn has_event(&self, event: &OutboxEvent) -> bool {
        let stored = self.events.get(&place(event));
        stored.is_some_and(|stored| OutboxEvent { seq: event.seq, ..stored.clone() } == *event)
    }

    pub(super) fn has_mark(&self, mark: &Aggregate) -> bool {
        let stored = self.aggregates.get(&of(&mark.tenant, &mark.name));
        stored.is_some_and(|stored| stored.same_change(mark))
    }

    pub(super) fn outbox_due(&self, until: Timestamp, limit: u32) -> Vec<Due> {
        let is_due = |aggregate: &&Aggregate| aggregate.is_pending() && aggregate.due_at <= until;
        let mut due: Vec<_> = self.aggregates.values().filter(is_due).collect();
        due.sort_by_key(|aggregate| aggregate.due_at); // stable sort: by tenant and name at one instant
        let mut left = limit as usize;
        let all = due.into_iter().map(|aggregate| {
            let mut events: Vec<_> = self.events_of(aggregate).cloned().collect();
            events.sort_by_key(|event| event.seq);
            events.truncate(left);
            left -= events.len();
            Due { aggregate: aggregate.clone(), events }
        });
        all.take_while(|due| !due.events.is_empty()).collect()
    }

    fn events_of<'t>(&'t self, aggregate: &'t Aggregate) -> impl Iterator<Item = &'t OutboxEvent> {
        self.events.values().filter(move |event| {
            event.tenant == aggregate.tenant
                && event.aggregate == aggregate.name
                && event.seq > aggregate.published
        })
    }

    pub(super) fn outbox_next(&self, after: Timestamp) -> Option<Timestamp> {
        let pending = self.aggregates.values().filter(|aggregate| aggregate.is_pending());
        pending.map(|aggregate| aggregate.due_at).filter(|at| *at > after).min()
    }

    pub(super) fn outbox_published(&self, after: Timestamp, limit: u32) -> Vec<Published> {
        let is_published = |event: &&OutboxEvent| {
            let aggregate = self.aggregates.get(&of(&event.tenant, &event.aggregate));
            event.created_at >= after && aggregate.is_some_and(|a| event.seq <= a.published)
        };
        let published = self.events.values().filter(is_published).map(|event| Published {
            tenant: event.tenant.clone(),
            aggregate: event.aggregate.clone(),
            seq: event.seq,
            created_at: event.created_at,
        });
        let mut published: Vec<_> = published.collect();
        let order = |p: &Published| (p.created_at, p.tenant.clone(), p.aggregate.clone(), p.seq);
        published.sort_by_key(order);
        published.truncate(limit as usize);
        published
    }

    pub(super) fn outbox_find(&self, tenant: &Tenant, id: &str) -> Option<OutboxEvent> {
        self.events.get(&of(tenant, id)).cloned()
    }

    pub(super) fn outbox_aggregate(&self, tenant: &Tenant, name: &str) -> Option<Aggregate> {
        self.aggregates.get(&of(tenant, name)).cloned()
    }

    pub(super) fn outbox_set_aside(&self, tenant: &Tenant, question: QuestionId) -> Option<Aggregate> {
        let is_it = |a: &&Aggregate| a.tenant == *tenant && a.escalation == Some(question);
        self.aggregates.values().find(is_it).cloned()
    }

    pub(super) fn outbox_all_set_aside(
        &self,
        tenant: &Tenant,
        after: QuestionId,
        limit: u32,
    ) -> Vec<Aggregate> {
        let aside = |a: &&Aggregate| a.tenant == *tenant && a.escalation.is_some_and(|id| id > after);
        let mut all: Vec<_> = self.aggregates.values().filter(aside).cloned().collect();
        all.sort_by_key(|aggregate| aggregate.escalation);
        all.truncate(limit as usize);
        all
    }

    pub(super) fn outbox_at(&self, tenant: &Tenant, aggregate: &str, seq: i64) -> Option<OutboxEvent> {
        let is_it = |e: &&OutboxEvent| e.tenant == *tenant && e.aggregate == aggregate && e.seq == seq;
        self.events.values().find(is_it).cloned()
    }

    pub(super) fn is_unpublished(&self) -> bool {
        self.aggregates.values().any(Aggregate::is_pending)
    }
}

fn of(tenant: &Tenant, name: &str) -> Place {
    (tenant.clone(), name.to_owned())
}

fn place(event: &OutboxEvent) -> Place {
    of(&event.tenant, &event.id)
}
