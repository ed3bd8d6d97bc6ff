//! The order of events, which all sinks share: events of one aggregate are sent one after the other, several
//! aggregates concurrently.

use std::collections::BTreeMap;

use futures_util::future::{BoxFuture, join_all};

use crate::exec::outbox::{Event, PublishResult, SinkError};

/// Sends each event of a batch separately. A failed event holds back the later events of its aggregate, and no
/// others.
///
/// # Errors
/// If nothing was accepted, and no event was refused: the sink as a whole is deferred, and the failure counts against
/// no event.
pub(super) async fn by_aggregate<'a>(
    batch: &'a [Event],
    send: impl Fn(&'a Event) -> BoxFuture<'a, Result<(), SinkError>> + Sync,
) -> Result<PublishResult, SinkError> {
    let send = &send;
    let mut aggregates = BTreeMap::<_, Vec<_>>::new();
    for (place, event) in batch.iter().enumerate() {
        aggregates.entry((&event.tenant, &event.aggregate)).or_default().push((place, event));
    }
    let done = join_all(aggregates.into_values().map(|events| async move {
        for (done, (place, event)) in events.iter().enumerate() {
            if let Err(error) = send(event).await {
                return (done, Some((*place, error)));
            }
        }
        (events.len(), None)
    }));
    let done = done.await;
    let nothing =
        done.iter().all(|(done, failed)| *done == 0 && failed.as_ref().is_some_and(|(_, e)| !e.is_refusal()));
    let mut failed = done.into_iter().filter_map(|(_, failed)| failed);
    if nothing && let Some((_, error)) = failed.next() {
        return Err(error);
    }
    Ok(failed.fold(PublishResult::all(), |acked, (place, error)| acked.except(place, error)))
}
