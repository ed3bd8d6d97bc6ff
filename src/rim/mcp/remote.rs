//! A server at a URL, over streamable HTTP. Each request goes out once: a session that the server does not know any more is a refusal,
//! after which the call is a new attempt in a new session.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use http::{HeaderName, HeaderValue};
use reqwest::Client;
use rmcp::model::{ClientJsonRpcMessage, JsonRpcError, ServerJsonRpcMessage};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse, StreamableHttpResponseLimits,
};
use sse_stream::Sse;

use super::file::ServerSection;
use crate::ledger::ErrorKind;
use crate::rim::policy::variables::filled;
use crate::tool::{ToolError, sends_once_on_new_connections};

type Headers = HashMap<HeaderName, HeaderValue>;
type Answered<T> = Result<T, StreamableHttpError<reqwest::Error>>;

/// The headers of the requests to a server.
///
/// # Errors
/// What is wrong with the section, in words.
pub(super) fn headers(
    section: &ServerSection,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Headers, String> {
    let pairs = section.headers.iter().flatten().map(|(name, template)| {
        let valid: HeaderName = name.parse().map_err(|_| format!("{name:?} is no name of a header"))?;
        let value = filled(template, &variable)?;
        let value = value.parse::<HeaderValue>();
        let mut value = value.map_err(|_| format!("the value of {name} cannot stand in a header"))?;
        value.set_sensitive(true);
        Ok((valid, value))
    });
    pairs.collect()
}

/// The way to a server at this URL.
pub(super) fn transport(
    url: &str,
    headers: Headers,
) -> Result<StreamableHttpClientTransport<Once>, reqwest::Error> {
    let client = sends_once_on_new_connections(Client::builder()).build()?;
    let config = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(headers)
        // It would send a call again in a new session, and nobody would know.
        .reinit_on_expired_session(false);
    Ok(StreamableHttpClientTransport::with_client(Once(client), config))
}

/// What is known of a request that could not be sent to its end. `None` if the error is not one of HTTP.
pub(super) fn kind(error: &(dyn Error + Send + Sync + 'static)) -> Option<ErrorKind> {
    let error = error.downcast_ref::<StreamableHttpError<reqwest::Error>>()?;
    Some(match error {
        StreamableHttpError::Client(error) if error.is_builder() => ErrorKind::Validation,
        StreamableHttpError::Client(error) if error.is_connect() => ErrorKind::Unreachable,
        StreamableHttpError::Client(error) if error.is_timeout() => ErrorKind::TimeoutDuringEffect,
        StreamableHttpError::HttpStatus(answered) => ToolError::http(answered.status, "").kind,
        StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_) => {
            ErrorKind::Unauthorized
        }
        // The server knows no such session, and has looked at nothing else.
        StreamableHttpError::SessionExpired => ErrorKind::Unreachable,
        StreamableHttpError::ReservedHeaderConflict(_) => ErrorKind::Validation,
        _ => ErrorKind::Disconnected,
    })
}

/// The text of an error and those of its causes. An error of rmcp hides the causes of the error of HTTP that it holds: what is wrong
/// with a certificate, for one.
pub(super) fn in_full(error: &(dyn Error + Send + Sync + 'static)) -> String {
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(error)) => crate::tool::in_full(error),
        _ => crate::tool::in_full(error),
    }
}

/// True if the error is one of HTTP after which the session still counts.
pub(super) fn goes_on(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    let error = error.downcast_ref::<StreamableHttpError<reqwest::Error>>();
    error.is_some_and(|error| !matches!(error, StreamableHttpError::SessionExpired))
}

/// A client that sends each request once, and takes an answer to nobody for what it is.
#[derive(Clone)]
pub(super) struct Once(Client);

/// An answer to a request that names no request would never reach the one that waits for it.
fn addressed(
    message: &ClientJsonRpcMessage,
    answer: StreamableHttpPostResponse,
) -> Answered<StreamableHttpPostResponse> {
    match (message, answer) {
        (
            ClientJsonRpcMessage::Request(_),
            StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), _),
        ) if error.id.is_none() => Err(refusal(&error)),
        (_, answer) => Ok(answer),
    }
}

/// Many servers answer so to a session that they do not know, instead of with the status 404. Other errors without a request's id may
/// have come from the middle of a call.
fn refusal(JsonRpcError { error, .. }: &JsonRpcError) -> StreamableHttpError<reqwest::Error> {
    let of_session = matches!(error.code.0, -32000 | -32001 | -32600)
        && error.message.to_ascii_lowercase().contains("session");
    if of_session {
        StreamableHttpError::SessionExpired
    } else {
        StreamableHttpError::UnexpectedServerResponse(error.message.clone())
    }
}

impl StreamableHttpClient for Once {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> Answered<StreamableHttpPostResponse> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session, token, headers, limits).await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
        limits: StreamableHttpResponseLimits,
    ) -> Answered<StreamableHttpPostResponse> {
        let sent = message.clone();
        let answer =
            self.0.post_message_with_response_limits(uri, sent, session, token, headers, limits).await?;
        addressed(&message, answer)
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> Answered<()> {
        self.0.delete_session(uri, session, token, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Answered<BoxStream<'static, Result<Sse, SseError>>> {
        self.0.get_stream(uri, session, last_event, token, headers).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: Headers,
        limit: usize,
    ) -> Answered<BoxStream<'static, Result<Sse, SseError>>> {
        self.0.get_stream_with_max_sse_event_size(uri, session, last_event, token, headers, limit).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_take_their_secrets_from_the_environment() {
        let variable = |name: &str| (name == "TOKEN").then(|| "s3cret".to_owned());
        assert_eq!(filled("Bearer ${TOKEN}", variable), Ok("Bearer s3cret".to_owned()));
        assert_eq!(filled("$5 {x}", variable), Ok("$5 {x}".to_owned()));
        assert!(filled("${OTHER}", variable).unwrap_err().contains("OTHER"));
        assert!(filled("${TOKEN", variable).is_err());
        let section = ServerSection {
            headers: Some([("Authorization".to_owned(), "Bearer ${TOKEN}".to_owned())].into()),
            ..ServerSection::default()
        };
        let headers = headers(&section, variable).unwrap();
        assert!(!format!("{headers:?}").contains("s3cret"), "a secret is not logged");
    }
}
