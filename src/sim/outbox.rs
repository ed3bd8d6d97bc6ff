//! The comparison of the published events with the durable ones: none is missing, none came too early, and all are in
//! order.

use std::collections::BTreeSet;

use super::check::Rule;
use crate::exec::outbox::Event;
use crate::store::{Aggregate, Question, QuestionKind, Resolution};

/// Reports the violations at rest. Duplicates are allowed: consumers drop them.
pub(super) fn compare(
    aggregates: &[Aggregate],
    heard: &[Event],
    questions: &[Question],
    violated: &mut impl FnMut(Rule, String),
) {
    for aggregate in aggregates {
        let (mut known, mut dropped) = (BTreeSet::new(), dropped(aggregate, questions));
        for event in heard.iter().filter(|event| is_of(event, aggregate)) {
            if event.seq > aggregate.last {
                let what = format!("{} #{} was published and is not there", aggregate.name, event.seq);
                violated(Rule::NothingPromisedEarly, what);
            }
            if known.insert(event.seq) && known.last() != Some(&event.seq) {
                let what = format!("{} #{} came behind {:?}", aggregate.name, event.seq, known.last());
                violated(Rule::EventsInOrder, what);
            }
        }
        let end = if aggregate.escalation.is_some() { aggregate.published } else { aggregate.last };
        for missing in (1..=end).filter(|seq| !known.contains(seq)) {
            if dropped == 0 {
                violated(Rule::SilentLoss, format!("{} #{missing} was never published", aggregate.name));
            } else {
                dropped -= 1;
            }
        }
    }
    for event in heard.iter().filter(|event| !aggregates.iter().any(|aggregate| is_of(event, aggregate))) {
        violated(Rule::NothingPromisedEarly, format!("{} was published and is not there", event.id));
    }
}

fn is_of(event: &Event, aggregate: &Aggregate) -> bool {
    (&event.tenant, &event.aggregate) == (&aggregate.tenant, &aggregate.name)
}

/// The number of events that a person has decided to leave out.
fn dropped(aggregate: &Aggregate, questions: &[Question]) -> usize {
    let about = |q: &&Question| {
        q.kind == QuestionKind::Unpublished
            && q.tenant == aggregate.tenant
            && q.question.contains(&aggregate.name)
            && q.answer.as_ref().is_some_and(|answer| answer.resolution != Resolution::Again)
    };
    questions.iter().filter(about).count()
}
