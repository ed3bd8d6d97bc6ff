//! Lookup of effects over HTTP, by our token.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, Method, Request, StatusCode, Url};
use serde_json::Value;

use super::expected::Expected;
use super::pages::{Onward, Pages};
use super::rules::{Rules, States, Token};
use super::seen::{LookupTarget, unclear};
use super::web::{Web, json, refused};
use crate::ledger::{ErrorKind, LookupOffer, LookupResult, Sight};
use crate::tool::ToolError;
use crate::tool::http::percent;

/// A GET by our token: of a list that is searched, or of one thing.
///
/// The token, at `{token}` in the URL, is the call's key. Only a 200 with the announced content is an answer: the list
/// (all its pages, or an error), or the thing. Not found is an empty list, or a 404 for one thing. A 401, 403, 410,
/// 429, 5xx, a redirect, or a body that is cut off or of another form leaves the call ambiguous.
///
/// ```
/// use std::time::Duration;
/// use counterfoil::ledger::LookupResult;
/// use counterfoil::tool::lookup::{Expected, HttpGet, Pages};
/// use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
/// # use counterfoil::Key;
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize)] struct Transfer { invoice: String, amount: u64 }
/// # #[derive(Serialize, Deserialize)] struct Receipt { id: String }
/// struct PayOut { lookup: HttpGet }
///
/// impl PayOut {
///     fn new() -> Result<Self, reqwest::Error> {
///         let transfers = "http://bank.internal/transfers?reference={token}";
///         let lookup = HttpGet::list(transfers, "/data", Duration::from_secs(10))?
///             .carries("/reference") // a search may show more than was asked for
///             .pages(Pages::cursor("/next_cursor", "cursor"));
///         Ok(Self { lookup })
///     }
/// }
///
/// impl Tool for PayOut {
///     # const NAME: &'static str = "pay_out";
///     # type Effect = effect::InternalMutation;
///     # type Contract = contract::Lookup;
///     # type Input = Transfer;
///     # type Output = Receipt;
///     # async fn call(&self, _: &Call, _: &Transfer) -> Result<Done<Receipt>, ToolError> { unimplemented!() }
///     // …
///     fn contract(&self) -> counterfoil::ledger::Contract {
///         <Self::Contract as contract::Contract>::declaration().sight(&HttpGet::SIGHT)
///     }
/// }
///
/// impl Reconcile for PayOut {
///     async fn reconcile(&self, call: &Call, sent: &Transfer) -> Result<LookupResult<Receipt>, ToolError> {
///         let expected = Expected::new().field("/amount", sent.amount);
///         self.lookup.find(call, &expected, serde_json::from_value).await
///     }
/// }
/// ```
#[derive(Clone)]
pub struct HttpGet {
    web: Web,
    url: String,
    shape: Shape,
    rules: Rules,
}

/// The form of the answer.
#[derive(Clone, Debug)]
enum Shape {
    List { items: String, pages: Pages, at_most: u32 },
    One { missing: Option<(String, Value)> },
}

impl HttpGet {
    /// The sight of this lookup.
    pub const SIGHT: Sight = Sight {
        by: "an HTTP GET by client token",
        offer: LookupOffer::Strong,
        settle: Duration::from_mins(1),
        outlives_sender: true,
        knows: &["what the provider shows under our token, over all pages, at the moment of the lookup"],
        blind_spots: &[
            "a provider whose search lags behind its writes: declare LookupOffer::Eventual after the sight",
            "replicas behind a load balancer that disagree: the same",
            "effects that were deleted, archived or moved to another account since",
            "effects that another credential than the lookup's may not see",
            "a gateway's own 404, taken for the provider's (have its words checked: HttpGet::missing)",
            "an effect that slips from one page to another while page numbers are read: page by cursor",
        ],
    };

    /// A lookup in a list: a JSON array at the pointer `items` ("" if the answer itself is the array), searched on all
    /// its pages. A request that is not answered within `timeout` fails.
    ///
    /// # Errors
    /// [`reqwest::Error`] if the HTTP client cannot be built.
    pub fn list(
        url: impl Into<String>,
        items: impl Into<String>,
        timeout: Duration,
    ) -> Result<Self, reqwest::Error> {
        let shape = Shape::List { items: items.into(), pages: Pages::default(), at_most: 100 };
        Web::new(timeout).map(|web| Self::of(web, url.into(), shape))
    }

    /// A lookup of one thing, whose address is known before it exists: 200 shows it, 404 says that it is missing.
    ///
    /// # Errors
    /// [`reqwest::Error`] if the HTTP client cannot be built.
    pub fn one(url: impl Into<String>, timeout: Duration) -> Result<Self, reqwest::Error> {
        Web::new(timeout).map(|web| Self::of(web, url.into(), Shape::One { missing: None }))
    }

    fn of(web: Web, url: String, shape: Shape) -> Self {
        Self { web, url, shape, rules: Rules::default() }
    }

    /// Sets a client of your own, with its proxies, certificates, headers and timeouts. The client should follow no
    /// redirects: one that leads to a login page answers 200.
    #[must_use]
    pub fn client(mut self, client: Client) -> Self {
        self.web.client = client;
        self
    }

    /// Sets a function that adds to each request what it needs when it goes out: a token that expires, a signature.
    #[must_use]
    pub fn authorize(mut self, authorize: impl Fn(&mut Request) + Send + Sync + 'static) -> Self {
        self.web.authorize = Some(Arc::new(authorize));
        self
    }

    /// The lookup's URL, with the place of the token.
    #[cfg(feature = "tool-http")]
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// True if a found thing is ours by the call's key in it.
    #[cfg(feature = "tool-http")]
    pub(crate) const fn compares_token(&self) -> bool {
        self.rules.token.is_some()
    }

    /// True if this is a lookup of one thing.
    #[cfg(feature = "tool-http")]
    pub(crate) const fn is_of_one(&self) -> bool {
        matches!(self.shape, Shape::One { .. })
    }

    /// The same lookup at another URL.
    #[cfg(feature = "tool-http")]
    pub(crate) fn at(&self, url: Url) -> Self {
        Self { url: url.into(), ..self.clone() }
    }

    /// Sets the function that authorizes requests, unless there is one.
    #[cfg(feature = "tool-http")]
    pub(crate) fn or_authorize(mut self, authorize: impl Fn(&mut Request) + Send + Sync + 'static) -> Self {
        self.web.authorize.get_or_insert_with(|| Arc::new(authorize));
        self
    }

    /// Sets the pointer to the provider's id in a thing. The id is a string or a number. Default: `/id`.
    #[must_use]
    pub fn id(mut self, pointer: impl Into<String>) -> Self {
        self.rules.id = pointer.into();
        self
    }

    /// Sets the pointer to our token in a thing. A thing with another token is not ours: a search may show more than
    /// was asked for. A thing without the field leaves the call ambiguous; see
    /// [`carries_if_any`](Self::carries_if_any).
    #[must_use]
    pub fn carries(mut self, pointer: impl Into<String>) -> Self {
        self.rules.token = Some(Token { pointer: pointer.into(), may_lack: false });
        self
    }

    /// Sets the pointer to our token in our things, for a list to which others write, too: metadata of a payment, for
    /// example. A thing without the field belongs to others.
    ///
    /// With a wrong pointer each of our things would seem to belong to others. The error is noticed at the first thing
    /// whose id the record knows: that lookup is an error that names the pointer, so a call is never taken for missing.
    /// Have the id noted as early as possible ([`Call::note`](crate::tool::Call::note)).
    ///
    /// ```
    /// use std::time::Duration;
    /// use counterfoil::tool::lookup::HttpGet;
    /// let charges = HttpGet::list("https://pay.example/charges", "/data", Duration::from_secs(10))?
    ///     .carries_if_any("/metadata/operation");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn carries_if_any(mut self, pointer: impl Into<String>) -> Self {
        self.rules.token = Some(Token { pointer: pointer.into(), may_lack: true });
        self
    }

    /// Sets the words for a thing that is accepted and not finished, and the pointer to them. The thing is looked up
    /// again after this pause: see [`LookupResult::Pending`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// use counterfoil::ledger::ErrorKind;
    /// use counterfoil::tool::lookup::HttpGet;
    /// let jobs = HttpGet::list("http://studio.internal/jobs?reference={token}", "/jobs", Duration::from_secs(10))?
    ///     .carries("/reference")
    ///     .pending("/status", ["queued", "rendering"], Duration::from_secs(30))
    ///     .failed("/status", ["refused"], ErrorKind::Validation);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn pending(
        mut self,
        pointer: impl Into<String>,
        words: impl IntoIterator<Item = impl Into<String>>,
        look_again: Duration,
    ) -> Self {
        self.rules.pending = Some((States::of(pointer, words), look_again));
        self
    }

    /// Sets the words for a thing that had no effect and will have none, and the pointer to them: see
    /// [`LookupResult::Failed`].
    #[must_use]
    pub fn failed(
        mut self,
        pointer: impl Into<String>,
        words: impl IntoIterator<Item = impl Into<String>>,
        kind: ErrorKind,
    ) -> Self {
        self.rules.failed = Some((States::of(pointer, words), kind));
        self
    }

    /// Sets how the list goes on. Default: by `Link: …; rel="next"`, if the answer has one.
    #[must_use]
    pub fn pages(mut self, how: Pages) -> Self {
        if let Shape::List { pages, .. } = &mut self.shape {
            *pages = how;
        }
        self
    }

    /// Sets the maximum number of pages. Default: 100. If there are more, the call stays ambiguous.
    #[must_use]
    pub fn at_most(mut self, bound: u32) -> Self {
        if let Shape::List { at_most, .. } = &mut self.shape {
            *at_most = bound;
        }
        self
    }

    /// Declares that the list begins with the newest: of several effects, the last one shown is the first one.
    #[must_use]
    pub fn newest_first(mut self) -> Self {
        self.rules.newest_first = true;
        self
    }

    /// Sets the value at a pointer in the body of the provider's own 404. A 404 without it, such as a gateway's, is not
    /// believed.
    #[must_use]
    pub fn missing(mut self, pointer: impl Into<String>, value: impl Into<Value>) -> Self {
        if let Shape::One { missing } = &mut self.shape {
            *missing = Some((pointer.into(), value.into()));
        }
        self
    }

    /// Looks for the effect. A thing with our token must also match `expected`. `output` turns the thing into the
    /// call's output ([`serde_json::from_value`] does that if the output is the provider's own form).
    ///
    /// # Errors
    /// [`ToolError`] if the provider has not clearly shown everything under the token.
    pub async fn find<'a, T: Send>(
        &self,
        sought: impl Into<LookupTarget<'a>> + Send,
        expected: &Expected,
        output: impl Fn(Value) -> Result<T, serde_json::Error> + Send + Sync,
    ) -> Result<LookupResult<T>, ToolError> {
        let sought = sought.into();
        let url = self.url.replace("{token}", &percent(sought.token));
        let url = Url::parse(&url).map_err(|e| unclear(format!("the lookup's URL is none: {e}")))?;
        let things = match &self.shape {
            Shape::List { items, pages, at_most } => self.all(url, items, pages, *at_most).await?,
            Shape::One { missing } => self.single(url, missing.as_ref()).await?.into_iter().collect(),
        };
        self.rules.finding(things, sought, expected, output)
    }

    /// All things in the list, or an error.
    async fn all(
        &self,
        first: Url,
        items: &str,
        pages: &Pages,
        at_most: u32,
    ) -> Result<Vec<Value>, ToolError> {
        let (mut things, mut url, mut asked) = (Vec::new(), pages.first(first), Vec::new());
        loop {
            let answer = self.web.get(Method::GET, url.clone(), &[]).await?;
            let (headers, status) = (answer.headers().clone(), answer.status());
            if status != StatusCode::OK {
                return Err(refused(&answer));
            }
            let mut page = json(answer).await?;
            let onward = pages.onward(&url, &headers, &page, items)?;
            match page.pointer_mut(items).map(Value::take) {
                Some(Value::Array(more)) => things.extend(more),
                _ => return Err(unclear(format!("an answer without a list at {items:?}"))),
            }
            let Onward::To(next) = onward else { return Ok(things) };
            asked.push(std::mem::replace(&mut url, next));
            if asked.contains(&url) {
                return Err(unclear(format!("its pages go round in a circle after {}", asked.len())));
            }
            if asked.len() >= at_most as usize {
                return Err(unclear(format!("{at_most} pages were read, and there are more")));
            }
        }
    }

    async fn single(&self, url: Url, missing: Option<&(String, Value)>) -> Result<Option<Value>, ToolError> {
        let answer = self.web.get(Method::GET, url, &[]).await?;
        match answer.status() {
            StatusCode::OK => json(answer).await.map(Some),
            StatusCode::NOT_FOUND => {
                let Some((pointer, value)) = missing else { return Ok(None) };
                match json(answer).await?.pointer(pointer) {
                    Some(said) if said == value => Ok(None),
                    said => {
                        Err(unclear(format!("HTTP 404 with {said:?} at {pointer:?}, not the provider's own")))
                    }
                }
            }
            _ => Err(refused(&answer)),
        }
    }
}

impl fmt::Debug for HttpGet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpGet").field("url", &self.url).field("shape", &self.shape).finish_non_exhaustive()
    }
}
