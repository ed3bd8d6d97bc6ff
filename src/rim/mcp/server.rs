//! What a server sends on its own: notifications and questions, which are passed on to the clients.
#![allow(deprecated, reason = "sampling, roots and logging are passed on for as long as servers use them")]

use std::sync::Arc;

use rmcp::model::{
    ClientCapabilities, ClientConfig, ClientResult, CreateMessageRequest, CreateMessageRequestParams,
    CreateMessageResult, CustomNotification, ElicitRequest, ElicitRequestParams, ElicitResult,
    Implementation, ListRootsRequest, ListRootsResult, LoggingMessageNotification,
    LoggingMessageNotificationParam, ProgressNotificationParam, PromptListChangedNotification,
    ResourceListChangedNotification, ResourceUpdatedNotification, ResourceUpdatedNotificationParam,
    ServerNotification, ServerRequest, ToolListChangedNotification,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use rmcp::{ClientHandler, ErrorData};

use super::catalogue::Catalogue;
use super::open::Requests;
use super::progress::Clients;

/// The gateway as one of its servers sees it.
pub(super) struct FromServer {
    pub(super) server: String,
    /// The position of the server in the configuration.
    pub(super) number: usize,
    pub(super) clients: Arc<Clients>,
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) capabilities: ClientCapabilities,
    pub(super) requests: Arc<Requests>,
}

type Context = NotificationContext<RoleClient>;

/// The notification that the user is done at the URL of an elicitation.
const ELICITATION_COMPLETE: &str = "notifications/elicitation/complete";

fn unexpected() -> ErrorData {
    ErrorData::internal_error("the client has answered with something else", None)
}

impl ClientHandler for FromServer {
    fn get_info(&self) -> ClientConfig {
        let own = Implementation::new("counterfoil", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(self.capabilities.clone(), own)
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        self.requests.note_sign();
        let question = ServerRequest::CreateMessageRequest(CreateMessageRequest::new(params));
        match self.clients.ask(&self.server, question, &context.ct).await? {
            ClientResult::CreateMessageResult(result) => Ok(*result),
            _ => Err(unexpected()),
        }
    }

    async fn list_roots(&self, context: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        self.requests.note_sign();
        let question = ServerRequest::ListRootsRequest(ListRootsRequest::default());
        match self.clients.ask(&self.server, question, &context.ct).await? {
            ClientResult::ListRootsResult(result) => Ok(result),
            _ => Err(unexpected()),
        }
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.requests.note_sign();
        let question = ServerRequest::ElicitRequest(ElicitRequest::new(params));
        match self.clients.ask(&self.server, question, &context.ct).await? {
            ClientResult::ElicitResult(result) => Ok(result),
            _ => Err(unexpected()),
        }
    }

    async fn on_custom_notification(&self, notification: CustomNotification, _: Context) {
        self.requests.note_sign();
        if notification.method == ELICITATION_COMPLETE {
            let CustomNotification { method, params, .. } = notification;
            let notification = CustomNotification::new(method, params);
            self.clients.elicitation_complete(&self.server, notification).await;
        }
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: Context) {
        self.requests.note_sign();
        self.clients.progress(&self.server, params).await;
    }

    async fn on_logging_message(&self, params: LoggingMessageNotificationParam, _: Context) {
        self.requests.note_sign();
        self.clients.tell(ServerNotification::from(LoggingMessageNotification::new(params))).await;
    }

    async fn on_resource_updated(&self, params: ResourceUpdatedNotificationParam, _: Context) {
        self.requests.note_sign();
        self.clients.tell(ServerNotification::from(ResourceUpdatedNotification::new(params))).await;
    }

    async fn on_resource_list_changed(&self, _: Context) {
        self.requests.note_sign();
        self.clients.tell(ServerNotification::from(ResourceListChangedNotification::default())).await;
    }

    async fn on_tool_list_changed(&self, _: Context) {
        self.requests.note_sign();
        self.catalogue.forget(self.number);
        self.clients.tell(ServerNotification::from(ToolListChangedNotification::default())).await;
    }

    async fn on_prompt_list_changed(&self, _: Context) {
        self.requests.note_sign();
        self.catalogue.forget(self.number);
        self.clients.tell(ServerNotification::from(PromptListChangedNotification::default())).await;
    }
}
