//! The gateway at an address: streamable HTTP, for clients with a bearer token of the ledger. A token's name is the name of the client,
//! so that a session belongs to one client, and nobody else goes on with it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::Value;

use super::call::KEY;
use super::gateway::McpGateway;
use super::inner::Inner;
use super::lines::{LONGEST, key_into_meta};
use super::session::Session;
use crate::rim::api::{Authenticate as _, Role, TenantScope, Tokens};

/// The names of the machine itself, for which no other machine can be taken.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

type Service = StreamableHttpService<Session, LocalSessionManager>;

/// The state that all requests share.
struct Door {
    inner: Arc<Inner>,
    tokens: Tokens,
    hosts: Vec<String>,
    /// The sessions of each client.
    clients: Mutex<HashMap<String, Service>>,
}

impl McpGateway {
    /// The gateway over streamable HTTP, at `/mcp`, for clients with a bearer token of the ledger whose role is
    /// [`Role::Call`]. The name of a token is the name of the client.
    ///
    /// A request must name a loopback host or one of `hosts` in `Host`, and in `Origin` if it has one, so that no page in a
    /// browser reaches the gateway by a name of its own (DNS rebinding).
    ///
    /// ```
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # let dir = tempfile::tempdir()?;
    /// use counterfoil::Executor;
    /// use counterfoil::mcp::{McpConfig, McpGateway};
    ///
    /// let file = "ledger: calls.db\nservers:\n  notes: { command: notes-server }\n";
    /// let ledger = Executor::sqlite(dir.path().join("calls.db"));
    /// let gateway = McpGateway::open_on(McpConfig::parse(file)?, ledger).await?;
    /// let app = gateway.router(&["tools.example"]); // behind a proxy of this name
    /// # let _ = app;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn router(&self, hosts: &[&str]) -> Router {
        let hosts = LOOPBACK.iter().chain(hosts).map(|host| (*host).to_owned()).collect();
        let tokens = Tokens::of_core(self.executor().core());
        let door = Door { inner: self.inner.clone(), tokens, hosts, clients: Mutex::default() };
        Router::new().route("/mcp", any(serve)).with_state(Arc::new(door))
    }
}

/// The answer to a request that reaches nothing.
struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.0, self.1).into_response();
        if self.0 == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

async fn serve(State(door): State<Arc<Door>>, request: Request) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let client = door.client(&parts).await?;
    let body = told(&parts, body).await?;
    let service = door.service(&client);
    Ok(service.handle(Request::from_parts(parts, body)).await.map(Body::new))
}

impl Door {
    /// The name of the client that makes a request.
    async fn client(&self, parts: &Parts) -> Result<String, Refusal> {
        let refused = |status, told: &str| Refusal(status, format!("{told} Nothing was done."));
        let caller = self.tokens.caller(parts).await.map_err(|error| {
            tracing::warn!(%error, "token of an MCP client not read");
            refused(StatusCode::SERVICE_UNAVAILABLE, "The ledger cannot be read at the moment.")
        })?;
        let nobody = || refused(StatusCode::UNAUTHORIZED, "Send a valid token.");
        let caller = caller.ok_or_else(nobody)?;
        if !caller.role.allows(Role::Call) {
            let told = format!("This needs the role {}, and the caller has {}.", Role::Call, caller.role);
            return Err(refused(StatusCode::FORBIDDEN, &told));
        }
        let own = TenantScope::One(self.inner.config.tenant.clone());
        if caller.tenants != TenantScope::All && caller.tenants != own {
            return Err(refused(StatusCode::FORBIDDEN, "The caller belongs to another tenant."));
        }
        Ok(caller.name)
    }

    /// The sessions of a client.
    fn service(&self, client: &str) -> Service {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = clients.get(client) {
            return known.clone();
        }
        let (inner, name) = (self.inner.clone(), Arc::<str>::from(client));
        let session = move || Ok(Session { inner: inner.clone(), client: name.clone() });
        let service = Service::new(session, Arc::default(), self.config());
        clients.insert(client.to_owned(), service.clone());
        service
    }

    fn config(&self) -> StreamableHttpServerConfig {
        let origins = self.hosts.iter().flat_map(|host| {
            // A host that is given with its port is meant with that one.
            let port = if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
                ""
            } else {
                ":*"
            };
            ["http", "https"].map(|scheme| format!("{scheme}://{host}{port}"))
        });
        StreamableHttpServerConfig::default()
            .with_allowed_hosts(&self.hosts)
            .with_allowed_origins(origins)
            .enforce_origin_validation()
            .with_max_request_body_bytes(LONGEST)
    }
}

/// The body of a request, with the key of a call where requests have their metadata.
async fn told(parts: &Parts, body: Body) -> Result<Body, Refusal> {
    if parts.method != Method::POST {
        return Ok(body);
    }
    let bytes = to_bytes(body, LONGEST).await.map_err(|_| {
        let told = format!("The message has more than {LONGEST} bytes, or was cut off. Nothing was done.");
        Refusal(StatusCode::PAYLOAD_TOO_LARGE, told)
    })?;
    let names_a_key = bytes.windows(KEY.len()).any(|bytes| bytes == KEY.as_bytes());
    if names_a_key
        && let Ok(mut message) = serde_json::from_slice::<Value>(&bytes)
        && key_into_meta(&mut message)
    {
        return Ok(message.to_string().into());
    }
    Ok(bytes.into())
}
