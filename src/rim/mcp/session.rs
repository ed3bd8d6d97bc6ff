//! A client of the gateway: what it asks, and the server that answers.
#![allow(
    deprecated,
    reason = "logging, roots and subscriptions are passed on for as long as clients use them"
)]

use std::sync::Arc;

use futures_util::future::join_all;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientNotification, ClientRequest, CompleteRequest,
    CompleteRequestParams, CompleteResult, GetPromptRequest, GetPromptRequestParams, GetPromptResponse,
    Implementation, InitializeRequestParams, InitializeResult, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequest, ReadResourceRequestParams, ReadResourceResponse, Reference,
    RootsListChangedNotification, ServerCapabilities, ServerConfig, ServerResult, SetLevelRequest,
    SetLevelRequestParams, SubscribeRequest, SubscribeRequestParams, UnsubscribeRequest,
    UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};

use super::inner::{Inner, Origin};
use super::upstream::Upstream;

/// The gateway as one of its clients sees it.
pub(super) struct Session {
    pub(super) inner: Arc<Inner>,
    /// The name of the client.
    pub(super) client: Arc<str>,
}

type Context = RequestContext<RoleServer>;
type Page = Option<PaginatedRequestParams>;

fn unexpected() -> ErrorData {
    ErrorData::internal_error("the server has answered with something else", None)
}

impl Session {
    const fn origin<'c>(&'c self, context: &'c Context) -> Origin<'c> {
        Origin { client: &self.client, context }
    }

    /// Asks the servers with resources one by one, until one knows the resource. The answer comes with its server.
    async fn ask_for_resource(
        &self,
        request: impl Fn() -> ClientRequest,
        context: &Context,
    ) -> Result<(&Upstream, ServerResult), ErrorData> {
        let mut refusal = ErrorData::resource_not_found("no server has this resource", None);
        for server in &self.inner.servers {
            if server.with_resources().await.is_none() {
                continue;
            }
            match self.inner.forward(server.number, request(), &self.origin(context)).await {
                Ok(answer) => return Ok((&**server, answer)),
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }

    /// Sets the level of log messages at a server, now and whenever it is started anew.
    async fn set_level_at(
        &self,
        server: &Upstream,
        params: SetLevelRequestParams,
        context: &Context,
    ) -> Result<(), ErrorData> {
        server.remembered.set_level(params.level);
        let Some(peer) = server.peer_unless_down().await else { return Ok(()) };
        if peer.peer_info().is_none_or(|info| info.capabilities.logging.is_none()) {
            return Ok(());
        }
        let request = ClientRequest::SetLevelRequest(SetLevelRequest::new(params));
        self.inner.forward(server.number, request, &self.origin(context)).await.map(drop)
    }

    async fn prompt(&self, name: &str) -> Result<(usize, String), ErrorData> {
        let listed = self.inner.listed().await;
        let unknown = || ErrorData::invalid_params(format!("there is no prompt {name:?}"), None);
        listed.prompt(name).cloned().ok_or_else(unknown)
    }
}

impl ServerHandler for Session {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
            .enable_logging()
            .enable_completions()
            .build();
        let own = Implementation::new("counterfoil", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities).with_server_info(own)
    }

    async fn initialize(
        &self,
        params: InitializeRequestParams,
        context: Context,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(params.clone());
        self.inner.clients.connect(&self.client, &context.peer);
        self.negotiate_initialize(&params)
    }

    async fn on_roots_list_changed(&self, _: NotificationContext<RoleServer>) {
        for server in &self.inner.servers {
            if let Some(peer) = server.peer_unless_down().await {
                let notification = ClientNotification::from(RootsListChangedNotification::default());
                drop(peer.send_notification(notification).await); // it may have ended
            }
        }
    }

    async fn list_tools(&self, _: Page, _: Context) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.inner.listed().await.tools.clone()))
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        self.inner.call(&params.name, params.arguments, &self.origin(&context)).await
    }

    async fn list_prompts(&self, _: Page, _: Context) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(self.inner.listed().await.prompts.clone()))
    }

    async fn get_prompt(
        &self,
        mut params: GetPromptRequestParams,
        context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        let (server, name) = self.prompt(&params.name).await?;
        params.name = name;
        let request = ClientRequest::GetPromptRequest(GetPromptRequest::new(params));
        match self.inner.forward(server, request, &self.origin(&context)).await? {
            ServerResult::GetPromptResult(result) => Ok(result.into()),
            _ => Err(unexpected()),
        }
    }

    async fn list_resources(&self, _: Page, _: Context) -> Result<ListResourcesResult, ErrorData> {
        let of_servers = join_all(self.inner.servers.iter().map(|server| server.resources())).await;
        Ok(ListResourcesResult::with_all_items(of_servers.concat()))
    }

    async fn list_resource_templates(
        &self,
        _: Page,
        _: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let of_servers = join_all(self.inner.servers.iter().map(|server| server.resource_templates())).await;
        Ok(ListResourceTemplatesResult::with_all_items(of_servers.concat()))
    }

    async fn read_resource(
        &self,
        params: ReadResourceRequestParams,
        context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let request = || ClientRequest::ReadResourceRequest(ReadResourceRequest::new(params.clone()));
        match self.ask_for_resource(request, &context).await?.1 {
            ServerResult::ReadResourceResult(result) => Ok(result.into()),
            _ => Err(unexpected()),
        }
    }

    async fn subscribe(&self, params: SubscribeRequestParams, context: Context) -> Result<(), ErrorData> {
        let request = || ClientRequest::SubscribeRequest(SubscribeRequest::new(params.clone()));
        let (server, _) = self.ask_for_resource(request, &context).await?;
        server.remembered.subscribe(params.uri);
        Ok(())
    }

    async fn unsubscribe(&self, params: UnsubscribeRequestParams, context: Context) -> Result<(), ErrorData> {
        let request = || ClientRequest::UnsubscribeRequest(UnsubscribeRequest::new(params.clone()));
        let Some(server) =
            self.inner.servers.iter().find(|server| server.remembered.is_subscribed(&params.uri))
        else {
            return self.ask_for_resource(request, &context).await.map(drop);
        };
        self.inner.forward(server.number, request(), &self.origin(&context)).await?;
        server.remembered.unsubscribe(&params.uri);
        Ok(())
    }

    async fn complete(
        &self,
        mut params: CompleteRequestParams,
        context: Context,
    ) -> Result<CompleteResult, ErrorData> {
        let answer = if let Reference::Prompt(prompt) = &mut params.r#ref {
            let (server, name) = self.prompt(&prompt.name).await?;
            prompt.name = name;
            let request = ClientRequest::CompleteRequest(CompleteRequest::new(params));
            self.inner.forward(server, request, &self.origin(&context)).await?
        } else {
            let request = || ClientRequest::CompleteRequest(CompleteRequest::new(params.clone()));
            self.ask_for_resource(request, &context).await?.1
        };
        match answer {
            ServerResult::CompleteResult(result) => Ok(result),
            _ => Err(unexpected()),
        }
    }

    async fn set_level(&self, params: SetLevelRequestParams, context: Context) -> Result<(), ErrorData> {
        let set = self.inner.servers.iter().map(|server| self.set_level_at(server, params.clone(), &context));
        join_all(set).await.into_iter().collect()
    }
}
