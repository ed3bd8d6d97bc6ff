//! Conflicts: requests that were refused because their key belongs to another request. A row for each operation and day is
//! kept, whatever the number of such requests, so that operators see that there were some.

use super::core::Core;
use crate::clock::Timestamp;
#[cfg(feature = "api")]
use crate::id::Tenant;
use crate::ledger::Record;
use crate::store::{Document, Store as _, StoreError};

/// The document kind of conflicts.
const KIND: &str = "conflict";
/// The length of a day, in microseconds.
const DAY: i64 = 86_400_000_000;
/// A day after all others, counted from 1970-01-01.
const LAST_DAY: i64 = 999_999;

/// The id of the row of a record and a day (UTC). The rows of the last day come first.
fn id(record: &Record, now: Timestamp) -> String {
    format!("{:06}/{:x}", LAST_DAY - now.0.div_euclid(DAY), record.id.0)
}

/// Keeps a conflict with a record. The request is refused also if the conflict could not be kept.
pub(super) async fn note(core: &Core, record: &Record) {
    let (now, tenant) = (core.now(), &record.tenant);
    let id = id(record, now);
    let kept = async {
        if core.group.document_find(tenant, KIND, &id).await?.is_none() {
            let mut change = core.change(None);
            change.documents.push(Document::first(tenant, KIND, id, &(), now));
            let _ = core.group.commit_one(change).await?; // another request may have been first
        }
        Ok::<_, StoreError>(())
    };
    if let Err(error) = kept.await {
        log_record!(debug, record, %error, "conflict not kept");
    }
}

/// The instants of the last conflicts of a tenant, those of the last day first: the first conflict of each operation and
/// day.
#[cfg(feature = "api")]
pub(crate) async fn conflicts(
    core: &Core,
    tenant: &Tenant,
    limit: u32,
) -> Result<Vec<Timestamp>, StoreError> {
    let rows = core.group.document_list(tenant, KIND, "", limit).await?;
    Ok(rows.into_iter().map(|row| row.created_at).collect())
}
