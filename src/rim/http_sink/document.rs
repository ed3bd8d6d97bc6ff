//! A sink for search indexes and warehouses that accept documents by id and version: an older version never
//! overwrites a newer one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, StatusCode, Url};

use super::{by_aggregate, client, headers, send, taken};
use crate::exec::outbox::{Event, PublishResult, Sink, SinkError};

/// A document of a search index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDocument {
    /// The id of the document in the index. In a shared index the id must distinguish tenants.
    pub id: String,
    /// The version of the document: the index keeps the highest version that it has seen.
    pub version: i64,
    /// The content of the document, as JSON.
    pub body: String,
}

impl IndexDocument {
    /// The document of an event's aggregate: its id is tenant and aggregate, its version the event's sequence, its
    /// body the event's payload. So the index holds the newest payload of each aggregate.
    pub fn of(event: &Event) -> Self {
        let id = format!("{}/{}", event.tenant_part(), event.aggregate);
        Self { id, version: event.seq, body: event.payload.as_str().to_owned() }
    }
}

/// Puts each event as a document, by id and version: `PUT <url>/<id>?version=<n>&version_type=external`, as
/// Elasticsearch and OpenSearch accept them. Feature `sink-http`.
///
/// Any 2xx accepts the document, and so does 409: the index has this version or a newer one. So a replay changes
/// nothing, and an older version never overwrites a newer one. 408, 429 and 5xx defer the event, for as long as
/// `Retry-After` says (in seconds); any other answer refuses the event. The headers are those of
/// [`HttpSink`](crate::HttpSink).
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

/// The function that makes the document of an event, if the event has one.
type Make = dyn Fn(&Event) -> Option<IndexDocument> + Send + Sync;

impl fmt::Debug for DocumentSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DocumentSink").finish_non_exhaustive() // the URL may hold a password
    }
}

impl DocumentSink {
    /// A sink for documents below this URL. A document without an answer within `timeout` is deferred.
    ///
    /// # Errors
    /// If the URL is invalid, or the client cannot be built.
    pub fn new(url: &str, timeout: Duration) -> Result<Self, SinkError> {
        let client = client(timeout).map_err(|error| SinkError::unavailable(error.to_string()))?;
        Self::with(client, url)
    }

    /// A sink with a client of your own, with its proxies, certificates, headers and timeouts.
    ///
    /// # Errors
    /// If the URL is invalid.
    pub fn with(client: Client, url: &str) -> Result<Self, SinkError> {
        let no_url = |why: &str| SinkError::unavailable(format!("the index has no usable URL: {why}"));
        let url = Url::parse(url).map_err(|error| no_url(&error.to_string()))?;
        if url.cannot_be_a_base() || url.query().is_some() || url.fragment().is_some() {
            return Err(no_url("it must go on with the documents' ids"));
        }
        Ok(Self { client, url, document: Arc::new(|event| Some(IndexDocument::of(event))) })
    }

    /// Sets the function that makes the documents. Default: [`IndexDocument::of`]. An event without a document counts
    /// as published.
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
        // As path segments these three ids mean another path, in any encoding.
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
