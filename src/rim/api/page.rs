//! Pages of lists. A cursor is the place of a page's last item: a forged one is only another place in the caller's own list.

use axum::Json;
use axum::extract::{FromRequestParts, Query};
use http::request::Parts;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::problem::Failed;
use crate::id::checked;
use crate::ledger::Key;

/// The maximum number of items on a page.
const MOST: u32 = 200;
const DEFAULT: u32 = 50;

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
}

/// One page of a list.
#[derive(Serialize)]
pub(super) struct Page<T> {
    pub(super) items: Vec<T>,
    /// The cursor of the next page; absent on the last one.
    pub(super) next: Option<String>,
}

/// An answer with one page.
pub(super) type Paged<T> = Result<Json<Page<T>>, Failed>;

impl<T> Page<T> {
    /// A page of a list whose source returns fewer items than the limit at its end alone.
    pub(super) fn cut(mut items: Vec<T>, limit: u32, id: impl Fn(&T) -> String) -> Json<Self> {
        let is_more = items.len() >= limit as usize;
        items.truncate(limit as usize);
        let next = items.last().filter(|_| is_more).map(id);
        Json(Self { items, next })
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
