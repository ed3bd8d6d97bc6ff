//! The records of a tenant: listed by filters, shown, and their evidence.

use axum::{Extension, Json};
use serde::Deserialize;

use super::page::{Asked, At, Page, Paged, Window};
use super::problem::{Failed, Problem};
use crate::exec::{Evidence, QuestionCall};
use crate::flow::TenantClient;
use crate::id::checked;
use crate::ledger::Key;
use crate::rim::record_list::{Keys, ListedRecord, RecordConditions};

/// The beginning of the keys to be listed.
#[derive(Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
pub(super) struct Beginning {
    /// Only records whose keys begin so
    #[serde(default)]
    key: String,
}

/// The record that a path names.
#[derive(Deserialize)]
pub(super) struct OfRecord {
    key: String,
}

impl OfRecord {
    fn key(&self) -> Result<&str, Failed> {
        checked("key", &self.key, Key::MAX_BYTES)?;
        Ok(&self.key)
    }
}

fn unknown() -> Failed {
    Failed::of(Problem::NotFound, "This tenant has no operation with that key.")
}

/// A page in the order of the keys. A page with a condition beside the key may be short and have a next page.
pub(super) async fn list(
    Extension(client): Extension<TenantClient>,
    Asked(window): Asked<Window>,
    Asked(beginning): Asked<Beginning>,
    Asked(conditions): Asked<RecordConditions>,
) -> Paged<ListedRecord> {
    if !beginning.key.is_empty() {
        checked("key", &beginning.key, Key::MAX_BYTES)?;
    }
    let after = window.after()?.unwrap_or_default();
    let keys = Keys { prefix: &beginning.key, after, limit: window.limit() };
    let (core, tenant) = client.core();
    let (items, next) = conditions.page(&core, &tenant, &keys).await?;
    Ok(Json(Page { items, next }))
}

pub(super) async fn show(
    Extension(client): Extension<TenantClient>,
    At(of): At<OfRecord>,
) -> Result<Json<QuestionCall>, Failed> {
    let (core, tenant) = client.core();
    Ok(Json(crate::exec::view_record(&core, &tenant, of.key()?).await?.ok_or_else(unknown)?))
}

/// Everything that the ledger knows about the operation.
pub(super) async fn evidence(
    Extension(client): Extension<TenantClient>,
    At(of): At<OfRecord>,
) -> Result<Json<Evidence>, Failed> {
    Ok(Json(client.evidence(of.key()?).await?.ok_or_else(unknown)?))
}
