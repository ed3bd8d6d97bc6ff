//! A question to a client: one of a server, or the gateway's own.
#![allow(deprecated, reason = "sampling and roots are passed on for as long as servers use them")]

use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientResult, ElicitRequestParams, ErrorCode,
    RequestId, ServerNotification, ServerRequest,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleServer};
use rmcp::{ErrorData, ServiceError};
use tokio::runtime::Handle;

/// The error for a question that no client can answer. A client gives the same one for a method that it does not know.
pub(super) fn unable(question: &ServerRequest) -> ErrorData {
    let ability = match question {
        ServerRequest::CreateMessageRequest(_) => "`sampling`",
        ServerRequest::ListRootsRequest(_) => "`roots`",
        ServerRequest::ElicitRequest(_) => "`elicitation`",
        _ => "to answer it",
    };
    let told = format!("the client has not declared the ability {ability}");
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, told, None)
}

/// Checks that a client has declared the ability to answer a question.
///
/// # Errors
/// The answer to whoever asks.
pub(super) fn check(client: &Peer<RoleServer>, question: &ServerRequest) -> Result<(), ErrorData> {
    let declared = client.peer_info().map(|info| info.capabilities.clone()).unwrap_or_default();
    let is_declared = match question {
        ServerRequest::CreateMessageRequest(_) => declared.sampling.is_some(),
        ServerRequest::ListRootsRequest(_) => declared.roots.is_some(),
        ServerRequest::ElicitRequest(_) => declared.elicitation.is_some(),
        _ => true,
    };
    if !is_declared {
        return Err(unable(question));
    }
    let (ServerRequest::ElicitRequest(request), Some(modes)) = (question, declared.elicitation) else {
        return Ok(());
    };
    // A client that declares no mode has that of forms, as all had it once.
    let has_mode = match &request.params {
        ElicitRequestParams::UrlElicitationParams { .. } => modes.url.is_some(),
        _ => modes.form.is_some() || modes.url.is_none(),
    };
    let refused = || ErrorData::invalid_params("the client has not declared this mode of elicitation", None);
    has_mode.then_some(()).ok_or_else(refused)
}

/// Asks a client. Where the future is dropped before the answer has come, the client is told that the question is over, and a later
/// answer reaches nobody.
pub(super) async fn ask(
    client: &Peer<RoleServer>,
    question: ServerRequest,
) -> Result<ClientResult, ServiceError> {
    let asked = client.send_request_with_option(question, PeerRequestOptions::no_options()).await?;
    let mut open = Open { client, id: Some(asked.id.clone()) };
    let answer = asked.await_response().await;
    open.answered();
    answer
}

/// A question that has no answer yet.
struct Open<'c> {
    client: &'c Peer<RoleServer>,
    id: Option<RequestId>,
}

impl Open<'_> {
    fn answered(&mut self) {
        self.id = None;
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        // Without a runtime the gateway has ended, and nothing is sent any more.
        let (Some(id), Ok(runtime)) = (self.id.take(), Handle::try_current()) else { return };
        let client = self.client.clone();
        drop(runtime.spawn(async move {
            let params = CancelledNotificationParam::new(Some(id), None);
            let over = ServerNotification::from(CancelledNotification::new(params));
            drop(client.send_notification(over).await); // it may have left
        }));
    }
}
