//! The meaning of a provider's answer: by its status, and by fields of its body.

use reqwest::Response;
use reqwest::header::{HeaderMap, HeaderName, LOCATION};
use serde_json::Value;

use crate::ledger::ErrorKind;
use crate::tool::declared::{Meaning, id_at};
use crate::tool::{Done, ToolError, retry_after};

/// The maximum number of bytes of an error's text that go into the record.
const TEXT: usize = 500;

/// The place of the provider's id for the effect.
#[derive(Clone, Debug)]
pub(super) enum ExternalId {
    /// A JSON pointer into the body.
    Body(String),
    /// The last path segment of the header `Location`.
    Location,
}

/// The rules for answers.
#[derive(Clone, Debug)]
pub(super) struct Answers {
    pub(super) statuses: Vec<(u16, Meaning)>,
    /// A field of a refusal that says: the key is known.
    pub(super) duplicate: Option<(String, Value)>,
    /// A header that marks a refusal as one that each request under the key gets.
    pub(super) replayed: Option<HeaderName>,
    pub(super) external_id: Option<ExternalId>,
    /// The pointer to the output in the body.
    pub(super) output: String,
    pub(super) max_bytes: usize,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            statuses: Vec::new(),
            duplicate: None,
            replayed: None,
            external_id: None,
            output: String::new(),
            max_bytes: 1024 * 1024,
        }
    }
}

impl Answers {
    pub(super) async fn read(&self, mut response: Response) -> Result<Done<Value>, ToolError> {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let mut body = Vec::new();
        let read = loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() > self.max_bytes => {
                    body.extend_from_slice(&chunk[..self.max_bytes - body.len()]);
                    break Err(ToolError::unknown(format!(
                        "the answer has more than {} bytes",
                        self.max_bytes
                    )));
                }
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error.into()),
            }
        };
        self.judge(status, &headers, &body, read)
    }

    /// The result of an answer. `whole` is an error if the body was not read to its end. The status of an error is enough
    /// without its body; a call that is done needs all of it.
    fn judge(
        &self,
        status: u16,
        headers: &HeaderMap,
        body: &[u8],
        whole: Result<(), ToolError>,
    ) -> Result<Done<Value>, ToolError> {
        let json = || serde_json::from_slice::<Value>(body);
        let declared =
            self.statuses.iter().find(|(declared, _)| *declared == status).map(|(_, meaning)| *meaning);
        let usual = match status {
            202 => Some(Meaning::Accepted),
            200..=299 => Some(Meaning::Done),
            _ => None, // as `ToolError::http` sorts it
        };
        let is_known = || {
            let (pointer, value) = self.duplicate.as_ref()?;
            Some(status >= 400 && json().ok()?.pointer(pointer) == Some(value))
        };
        let shown = String::from_utf8_lossy(&body[..body.len().min(TEXT)]);
        let error = ToolError { retry_after: retry_after(headers), ..ToolError::http(status, shown.trim()) };
        let kind = match declared.or(usual) {
            _ if is_known() == Some(true) => ErrorKind::Duplicate,
            Some(Meaning::Done) => {
                whole?;
                return self.done(headers, body);
            }
            Some(Meaning::Accepted) => {
                let accepted = ToolError::accepted(self.external_id(headers, json().ok().as_ref()));
                return Err(ToolError { retry_after: error.retry_after, ..accepted });
            }
            Some(meaning) => meaning.kind().unwrap_or(ErrorKind::Unknown),
            None => error.kind,
        };
        let says_so = |name| headers.get(name).is_some_and(|value| value == "true");
        let replayed = self.replayed.as_ref().is_some_and(says_so);
        Err(ToolError { kind, replayed, ..error })
    }

    fn done(&self, headers: &HeaderMap, body: &[u8]) -> Result<Done<Value>, ToolError> {
        let unclear =
            |what: String| ToolError::unknown(format!("the provider answered with success, and {what}"));
        let mut body = match body {
            [] => Value::Null,
            _ => serde_json::from_slice(body).map_err(|error| unclear(format!("not with JSON: {error}")))?,
        };
        let external_ref = self.external_id(headers, Some(&body));
        let output = body.pointer_mut(&self.output).map(Value::take);
        let output = output.ok_or_else(|| unclear(format!("its body has no {:?}", self.output)))?;
        Ok(Done { external_ref, ..Done::new(output) })
    }

    fn external_id(&self, headers: &HeaderMap, body: Option<&Value>) -> Option<String> {
        match self.external_id.as_ref()? {
            ExternalId::Body(pointer) => id_at(body?, pointer),
            ExternalId::Location => {
                let place = headers.get(LOCATION)?.to_str().ok()?.split(['?', '#']).next()?;
                place.rsplit('/').find(|segment| !segment.is_empty()).map(str::to_owned)
            }
        }
    }
}
