//! A sink for search indexes and warehouses that take documents by id and version: an older version never overwrites a newer one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, StatusCode, Url};

use super::{by_aggregate, client, headers, send, taken};
use crate::exec::outbox::{Event, PublishResult, Sink, SinkError};

/// A document, as an index keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDocument {
    /// Its id in the index. It holds whatever tells tenants apart, if the index is shared.
    pub id: String,
    /// Its version: the index keeps the highest one that it has seen.
    pub version: i64,
    /// JSON.
    pub body: String,
}

impl IndexDocument {
    /// The document of an event's aggregate: its id is tenant and aggregate, its version the event's sequence, its body the
    /// event's payload. So the index holds the newest payload of each aggregate.
    pub fn of(event: &Event) -> Self {
        // A slash in a tenant's name is none that ends it, or two tenants could share an id.
        let tenant = event.tenant.as_str().replace('%', "%25").replace('/', "%2F");
        let id = format!("{tenant}/{}", event.aggregate);
        Self { id, version: event.seq, body: event.payload.as_str().to_owned() }
    }
}

/// Puts each event as a document, by id and version: `PUT <url>/<id>?version=<n>&version_type=external`, as Elasticsearch and
/// OpenSearch take them. Feature `sink-http`.
///
/// Any 2xx takes the document, and so does 409: the index has this version or a newer one. So a replay changes nothing, and an older
/// version never overwrites a newer one. 408, 429 and 5xx put it off, for as long as `Retry-After` says (in seconds); any other
/// answer refuses it. The headers are those of [`HttpSink`](crate::HttpSink).
///
/// ```
/// # fn engine() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use counterfoil::{DocumentSink, Engine, IndexDocument};
///
/// let sink = DocumentSink::new("http://search.internal:9200/orders/_doc", Duration::from_secs(5))?
///     .documents(|event| (event.kind != "internal").then(|| IndexDocument::of(event)));
/// let engine = Engine::sqlite("agents.db").sink(sink);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct DocumentSink {
    client: Client,
    url: Url,
    document: Arc<Make>,
}

/// Makes the document of an event, if it has one.
type Make = dyn Fn(&Event) -> Option<IndexDocument> + Send + Sync;

impl fmt::Debug for DocumentSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DocumentSink").finish_non_exhaustive() // the URL may hold a password
    }
}

impl DocumentSink {
    /// To the documents below this URL. A document that is not answered within `timeout` is put off.
    ///
    /// # Errors
    /// If the URL is none, or the client cannot be built.
    pub fn new(url: &str, timeout: Duration) -> Result<Self, SinkError> {
        let client = client(timeout).map_err(|error| SinkError::unavailable(error.to_string()))?;
        Self::with(client, url)
    }

    /// By a client of your own, with its proxies, certificates, headers and timeouts.
    ///
    /// # Errors
    /// If the URL is none.
    pub fn with(client: Client, url: &str) -> Result<Self, SinkError> {
        let no_url = |why: &str| SinkError::unavailable(format!("the index has no usable URL: {why}"));
        let url = Url::parse(url).map_err(|error| no_url(&error.to_string()))?;
        if url.cannot_be_a_base() || url.query().is_some() || url.fragment().is_some() {
            return Err(no_url("it must go on with the documents' ids"));
        }
        Ok(Self { client, url, document: Arc::new(|event| Some(IndexDocument::of(event))) })
    }

    /// Makes the documents by a function of your own; [`IndexDocument::of`] by default. An event without a document counts as taken.
    #[must_use]
    pub fn documents(
        self,
        document: impl Fn(&Event) -> Option<IndexDocument> + Send + Sync + 'static,
    ) -> Self {
        Self { document: Arc::new(document), ..self }
    }

    async fn put(&self, event: &Event) -> Result<(), SinkError> {
        let Some(document) = (self.document)(event) else { return Ok(()) };
        let request = self.client.put(self.place(&document)?).headers(headers(event)?).body(document.body);
        let answer = send(request).await?;
        if answer.status() == StatusCode::CONFLICT {
            return Ok(());
        }
        taken(&answer)
    }

    fn place(&self, document: &IndexDocument) -> Result<Url, SinkError> {
        let IndexDocument { id, version, .. } = document;
        // As parts of a path these three mean another place, however they are written.
        if matches!(id.as_str(), "" | "." | "..") {
            return Err(SinkError::refused(format!("{id:?} cannot be the id of a document")));
        }
        let mut url = self.url.clone();
        url.path_segments_mut()
            .map_err(|()| SinkError::refused("the index has no usable URL"))?
            .pop_if_empty()
            .push(id);
        url.query_pairs_mut()
            .append_pair("version", &version.to_string())
            .append_pair("version_type", "external");
        Ok(url)
    }
}

impl Sink for DocumentSink {
    async fn publish(&self, batch: &[Event]) -> Result<PublishResult, SinkError> {
        by_aggregate(batch, |event| Box::pin(self.put(event))).await
    }
}
