//! Retention: published events are deleted when their time is over, a few at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::exec::core::Core;
use crate::store::{OrderingKey, Published, Refusal, Store as _, StoreError, Verdict};

/// The maximum number of events that are deleted in one transaction.
const AT_ONCE: u32 = 200;
/// The shortest interval between two sweeps. Without it, an aggregate that is published to all the time would be swept
/// for each of its events.
const SELDOM: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(super) struct Sweep {
    keep: Duration,
    /// The instant of the next sweep. `None` while there are no published events.
    next: Option<Timestamp>,
}

/// The end of a sweep.
pub(super) enum Swept {
    /// The sweep is done. Holds the instant of the next one, if there is one.
    Until(Option<Timestamp>),
    /// Another worker has taken over.
    Fenced,
}

impl Sweep {
    pub(super) const fn new(keep: Duration) -> Self {
        Self { keep, next: Some(Timestamp::MIN) } // the rows that are there are not known yet
    }

    /// Notes that an event is published, so that a sweep will be due.
    pub(super) fn note(&mut self, now: Timestamp) {
        self.next.get_or_insert(now.after(self.keep.max(SELDOM)));
    }

    /// Deletes the events that have been kept for long enough, if a sweep is due.
    pub(super) async fn sweeps(&mut self, core: &Core, lane: OrderingKey) -> Result<Swept, StoreError> {
        let now = core.now();
        if self.next.is_none_or(|next| now < next) {
            return Ok(Swept::Until(self.next));
        }
        let mut after = Timestamp::MIN;
        loop {
            let page = core.group.outbox_published(after, AT_ONCE).await?;
            let is_old = |event: &Published| event.created_at.after(self.keep) <= now;
            let old: Vec<_> = page.iter().take_while(|event| is_old(event)).collect();
            if let Some(young) = page.get(old.len()) {
                self.next = Some(young.created_at.after(self.keep).max(now.after(SELDOM)));
                if old.is_empty() {
                    return Ok(Swept::Until(self.next));
                }
            }
            let Some(last) = old.last() else {
                self.next = None;
                return Ok(Swept::Until(None));
            };
            after = last.created_at;
            let last = last_of_each(&old);
            for of_tenant in last.chunk_by(|one, next| one.tenant == next.tenant) {
                let mut change = core.change(Some(lane));
                change.forgotten = of_tenant.to_vec();
                match core.group.commit_one(change).await? {
                    Verdict::Admitted => {}
                    // A repeat would be refused again, for as long as this process lives.
                    Verdict::Refused(Refusal::Fenced) => return Ok(Swept::Fenced),
                    Verdict::Refused(refusal) => {
                        tracing::info!(%refusal, "outbox sweep refused");
                        core.group.end_lane(lane); // a lane takes nothing more after a refusal
                        self.next = Some(now.after(SELDOM));
                        return Ok(Swept::Until(self.next));
                    }
                }
            }
        }
    }
}

/// The last event of each aggregate, by tenant: with it all earlier ones are deleted.
fn last_of_each(events: &[&Published]) -> Vec<Published> {
    let mut last = BTreeMap::new();
    for event in events {
        let place = (event.tenant.as_str(), event.aggregate.as_str());
        let known = last.entry(place).or_insert(*event);
        if known.seq < event.seq {
            *known = event;
        }
    }
    last.into_values().cloned().collect()
}
