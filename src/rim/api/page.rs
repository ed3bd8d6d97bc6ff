//! Pages of lists. A cursor is the place of a page's last item: a forged one is only another place in the caller's own list.

use axum::Json;
use axum::extract::{FromRequestParts, Query};
use http::request::Parts;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::problem::Failed;
use crate::clock::Timestamp;
use crate::id::checked;
use crate::ledger::Key;
use crate::rim::run_filter::Start;

/// The maximum number of items on a page.
pub(super) const MOST: u32 = 200;
pub(super) const DEFAULT: u32 = 50;
/// The number of rows that a page of a list with a condition looks at.
const LOOKED_AT: u32 = 1000;

/// The place and the size of a page.
#[derive(Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
pub(super) struct Window {
    /// The cursor of the page before, its `next`
    after: Option<String>,
    /// The maximum number of items: 50 by default, and 200 at most
    limit: Option<u32>,
}

impl Window {
    /// The place behind which the page begins.
    pub(super) fn after(&self) -> Result<Option<&str>, Failed> {
        if let Some(after) = &self.after {
            checked("cursor", after, Key::MAX_BYTES)?;
        }
        Ok(self.after.as_deref())
    }

    /// The same, as the text of a cursor with a form of its own, in which no length is too great.
    pub(super) fn place(&self) -> Option<&str> {
        self.after.as_deref()
    }

    /// The same, as an id or a cursor.
    pub(super) fn after_id<I: std::str::FromStr<Err: ToString>>(&self) -> Result<Option<I>, Failed> {
        self.after.as_deref().map(str::parse).transpose().map_err(Failed::malformed)
    }

    /// The maximum number of items.
    pub(super) fn limit(&self) -> u32 {
        self.limit.unwrap_or(DEFAULT).clamp(1, MOST)
    }

    /// The number of rows to be read for a page: more than the limit if a condition leaves rows out.
    pub(super) fn looked_at(&self, is_narrow: bool) -> u32 {
        if is_narrow { LOOKED_AT } else { self.limit() }
    }
}

/// The times between which the items of a list were opened or made.
#[derive(Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
pub(super) struct Times {
    /// Only what is of this time (UTC) or later: `2026-11-26T09:30` or a beginning of it
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    since: Option<Start>,
    /// Only what is of a time before this one (UTC)
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    before: Option<Start>,
}

impl Times {
    pub(super) const fn is_narrow(&self) -> bool {
        self.since.is_some() || self.before.is_some()
    }

    pub(super) fn take(&self, at: Timestamp) -> bool {
        self.since.is_none_or(|since| at >= since.0) && self.before.is_none_or(|before| at < before.0)
    }
}

/// The beginning of the names to be listed.
#[derive(Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
pub(super) struct Prefix {
    /// Only names that begin so
    #[serde(default)]
    prefix: String,
}

impl Prefix {
    pub(super) const fn is_narrow(&self) -> bool {
        !self.prefix.is_empty()
    }

    pub(super) fn takes(&self, name: &str) -> bool {
        name.starts_with(&self.prefix)
    }
}

/// One page of a list.
#[derive(Serialize)]
pub(in crate::rim) struct Page<T> {
    pub(in crate::rim) items: Vec<T>,
    /// The cursor of the next page; absent on the last one.
    pub(in crate::rim) next: Option<String>,
}

/// An answer with one page.
pub(super) type Paged<T> = Result<Json<Page<T>>, Failed>;

impl<T> Page<T> {
    /// A page of the rows that a condition takes. `looked_at`: the number of rows that were asked for; fewer are the end. The page
    /// looks at no more rows, so it may be short and have a next page.
    pub(super) fn sifted(
        rows: Vec<T>,
        (looked_at, limit): (u32, u32),
        id: impl Fn(&T) -> String,
        takes: impl Fn(&T) -> bool,
    ) -> Self {
        let end = rows.last().filter(|_| rows.len() >= looked_at as usize).map(&id);
        let mut items: Vec<T> = rows.into_iter().filter(|row| takes(row)).collect();
        let is_cut = items.len() > limit as usize;
        items.truncate(limit as usize);
        let next = if is_cut { items.last().map(&id) } else { end };
        Self { items, next }
    }

    /// The page with each item in another form.
    pub(super) fn map<V>(self, view: impl FnMut(T) -> V) -> Page<V> {
        Page { items: self.items.into_iter().map(view).collect(), next: self.next }
    }

    /// A page of a list that was read as a whole. `is_behind`: true of the items behind the page before.
    pub(super) fn of_all(
        mut items: Vec<T>,
        limit: u32,
        id: impl Fn(&T) -> String,
        is_behind: impl Fn(&T) -> bool,
    ) -> Json<Self> {
        items.retain(is_behind);
        let is_more = items.len() > limit as usize;
        items.truncate(limit as usize);
        let next = items.last().filter(|_| is_more).map(id);
        Json(Self { items, next })
    }
}

/// The query of a request.
pub(super) struct Asked<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failed> {
        let Query(query) = Query::from_request_parts(parts, state).await.map_err(Failed::malformed)?;
        Ok(Self(query))
    }
}

/// The parts of a request's path.
pub(super) struct At<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for At<T> {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failed> {
        let path = axum::extract::Path::from_request_parts(parts, state).await;
        Ok(Self(path.map_err(Failed::malformed)?.0))
    }
}
