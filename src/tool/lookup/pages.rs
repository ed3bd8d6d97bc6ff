//! The pages of a list over HTTP, read to the end.

use reqwest::Url;
use reqwest::header::{HeaderMap, LINK};
use serde_json::Value;

use super::seen::unclear;
use crate::tool::ToolError;

/// The rule by which a list goes on after one page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages(How);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum How {
    /// By `Link: <…>; rel="next"`. A page without it is the last one, unless the body says that there are more.
    #[default]
    Link,
    /// By a cursor in the body, which becomes a parameter.
    Cursor { pointer: String, parameter: String },
    /// By the next page's URL in the body.
    Url { pointer: String },
    /// By the id of the last thing, which becomes a parameter, while the body says that there are more.
    After { id: String, parameter: String, more: String },
    /// By page numbers from `first` on, until a page is empty.
    Numbers { parameter: String, first: u64 },
}

/// The next step after a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Onward {
    To(Url),
    Done,
}

/// The fields by which bodies of many providers say that there are more pages.
const MORE: [&str; 9] = [
    "/has_more",
    "/hasMore",
    "/next",
    "/next_cursor",
    "/nextCursor",
    "/next_page",
    "/next_page_token",
    "/nextPageToken",
    "/links/next",
];

impl Pages {
    /// Pages by the header `Link: <…>; rel="next"` (RFC 8288). The default. If the header is missing and the body says
    /// that there are more pages, the lookup is an error.
    pub const fn link() -> Self {
        Self(How::Link)
    }

    /// Pages by the cursor at this pointer, as a parameter of this name. A page whose cursor is missing, null or empty
    /// is the last one.
    pub fn cursor(pointer: impl Into<String>, parameter: impl Into<String>) -> Self {
        Self(How::Cursor { pointer: pointer.into(), parameter: parameter.into() })
    }

    /// Pages by the URL at this pointer. The URL must stay at the same host.
    pub fn url(pointer: impl Into<String>) -> Self {
        Self(How::Url { pointer: pointer.into() })
    }

    /// Pages by the last thing's id, at the pointer `id` in it, as a parameter of this name, while the body has `true`
    /// at the pointer `more`.
    pub fn after(id: impl Into<String>, parameter: impl Into<String>, more: impl Into<String>) -> Self {
        Self(How::After { id: id.into(), parameter: parameter.into(), more: more.into() })
    }

    /// Pages by numbers from `first` on, until a page is empty. A thing that moves from one page to another meanwhile
    /// is missed or seen twice; only the second case is noticed.
    pub fn numbers(parameter: impl Into<String>, first: u64) -> Self {
        Self(How::Numbers { parameter: parameter.into(), first })
    }

    /// The first page's address.
    pub(super) fn first(&self, url: Url) -> Url {
        match &self.0 {
            How::Numbers { parameter, first } => with(&url, parameter, &first.to_string()),
            _ => url,
        }
    }

    /// The next step of the list after this page.
    pub(super) fn onward(
        &self,
        at: &Url,
        headers: &HeaderMap,
        page: &Value,
        items: &str,
    ) -> Result<Onward, ToolError> {
        let things = page.pointer(items).and_then(Value::as_array);
        match &self.0 {
            How::Link => match linked(headers)? {
                Some(next) => same_host(at, &next),
                None => match MORE.iter().find(|sign| says_more(page.pointer(sign))) {
                    Some(sign) => Err(unclear(format!(
                        "{sign} says that there are more pages, and it is not said how to get them"
                    ))),
                    None => Ok(Onward::Done),
                },
            },
            How::Cursor { pointer, parameter } => match page.pointer(pointer) {
                None | Some(Value::Null) => Ok(Onward::Done),
                Some(Value::String(cursor)) if cursor.is_empty() => Ok(Onward::Done),
                Some(Value::String(cursor)) => Ok(Onward::To(with(at, parameter, cursor))),
                Some(Value::Number(cursor)) => Ok(Onward::To(with(at, parameter, &cursor.to_string()))),
                Some(other) => Err(unclear(format!("{other} is no cursor"))),
            },
            How::Url { pointer } => match page.pointer(pointer) {
                None | Some(Value::Null) => Ok(Onward::Done),
                Some(Value::String(next)) if next.is_empty() => Ok(Onward::Done),
                Some(Value::String(next)) => same_host(at, next),
                Some(other) => Err(unclear(format!("{other} is no URL"))),
            },
            How::After { id, parameter, more } => match page.pointer(more) {
                Some(Value::Bool(false)) => Ok(Onward::Done),
                Some(Value::Bool(true)) => match things.and_then(|things| things.last()?.pointer(id)) {
                    Some(Value::String(id)) => Ok(Onward::To(with(at, parameter, id))),
                    Some(Value::Number(id)) => Ok(Onward::To(with(at, parameter, &id.to_string()))),
                    _ => Err(unclear("there are more pages, and the last thing has no id")),
                },
                // A wrong pointer would make the first page the only one.
                _ => Err(unclear(format!("nothing at {more:?} says whether there are more pages"))),
            },
            How::Numbers { .. } if things.is_some_and(Vec::is_empty) => Ok(Onward::Done),
            How::Numbers { parameter, first } => {
                let last = at.query_pairs().filter(|(name, _)| name == parameter).last();
                let last = last.and_then(|(_, number)| number.parse().ok()).unwrap_or(*first);
                Ok(Onward::To(with(at, parameter, &(last + 1).to_string())))
            }
        }
    }
}

fn says_more(sign: Option<&Value>) -> bool {
    match sign {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(_) => true,
    }
}

/// The same address with this parameter, and no other of its name.
fn with(url: &Url, parameter: &str, value: &str) -> Url {
    let kept: Vec<_> = url
        .query_pairs()
        .filter(|(name, _)| name != parameter)
        .map(|(n, v)| (n.into_owned(), v.into_owned()))
        .collect();
    let mut url = url.clone();
    url.query_pairs_mut().clear().extend_pairs(kept).append_pair(parameter, value);
    url
}

/// Refuses another host, so that our credentials do not go to a host because an answer named it.
fn same_host(at: &Url, next: &str) -> Result<Onward, ToolError> {
    let next = at.join(next).map_err(|e| unclear(format!("the next page's URL is none: {e}")))?;
    if next.origin() == at.origin() {
        Ok(Onward::To(next))
    } else {
        Err(unclear(format!(
            "the next page is said to be at another host: {}",
            next.origin().ascii_serialization()
        )))
    }
}

/// The target of `rel="next"`, of all `Link` headers.
fn linked(headers: &HeaderMap) -> Result<Option<String>, ToolError> {
    for header in headers.get_all(LINK) {
        let header = header.to_str().map_err(|_| unclear("a Link header that is no text"))?;
        // A URL may contain a comma, so the links are split at `<`.
        for link in header.split('<').skip(1) {
            let Some((target, parameters)) = link.split_once('>') else { continue };
            if parameters.split([';', ',']).any(is_next) {
                return Ok(Some(target.to_owned()));
            }
        }
    }
    Ok(None)
}

fn is_next(parameter: &str) -> bool {
    parameter.split_once('=').is_some_and(|(name, relations)| {
        name.trim().eq_ignore_ascii_case("rel")
            && relations
                .trim()
                .trim_matches('"')
                .split_whitespace()
                .any(|relation| relation.eq_ignore_ascii_case("next"))
    })
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;
    use serde_json::json;

    use super::*;

    fn at(url: &str) -> Url {
        Url::parse(url).unwrap()
    }

    fn onward(pages: &Pages, link: Option<&'static str>, page: &Value) -> Result<Onward, ToolError> {
        let mut headers = HeaderMap::new();
        if let Some(link) = link {
            headers.insert(LINK, HeaderValue::from_static(link));
        }
        pages.onward(&at("http://a/list?q=x%20y&cursor=1&page=2"), &headers, page, "/data")
    }

    fn to(url: &str) -> Onward {
        Onward::To(at(url))
    }

    #[test]
    fn a_list_goes_on_as_it_says() {
        let cursor = Pages::cursor("/next", "cursor");
        let page = json!({"data": [{"id": "i1"}, {"id": "i2"}], "next": "c2", "has_more": true, "url": "/list?cursor=9"});
        for (pages, link, expected) in [
            (&cursor, None, "http://a/list?q=x+y&page=2&cursor=c2"),
            (&Pages::url("/url"), None, "http://a/list?cursor=9"),
            (&Pages::after("/id", "cursor", "/has_more"), None, "http://a/list?q=x+y&page=2&cursor=i2"),
            (&Pages::numbers("page", 1), None, "http://a/list?q=x+y&cursor=1&page=3"),
            (
                &Pages::link(),
                Some("<http://a/?p=1>; rel=\"prev\", </b?x=1,2>; title=\"t\"; rel=\"last next\""),
                "http://a/b?x=1,2",
            ),
        ] {
            assert_eq!(onward(pages, link, &page).unwrap(), to(expected), "{pages:?}");
        }
    }

    #[test]
    fn a_list_ends_only_where_it_says_so() {
        let last = json!({"data": [], "next": null, "has_more": false});
        for pages in [
            Pages::cursor("/next", "cursor"),
            Pages::url("/next"),
            Pages::after("/id", "cursor", "/has_more"),
            Pages::numbers("page", 1),
            Pages::link(),
        ] {
            assert_eq!(onward(&pages, None, &last).unwrap(), Onward::Done, "{pages:?}");
        }
        let more = json!({"data": [{"id": 1}], "has_more": true});
        assert!(onward(&Pages::link(), None, &more).is_err(), "it says that there are more, and not how");
        assert!(onward(&Pages::after("/no", "cursor", "/has_more"), None, &more).is_err());
        assert!(onward(&Pages::after("/id", "cursor", "/typo"), None, &more).is_err());
    }

    #[test]
    fn no_page_leads_to_another_host() {
        let page = json!({"data": [], "next": "http://evil/list"});
        assert!(onward(&Pages::url("/next"), None, &page).is_err());
        assert!(onward(&Pages::link(), Some("<https://a/list>; rel=next"), &page).is_err());
    }
}
