//! A chat server with two doors, HTTP and WebSocket, and one function behind both: a message that a client sends twice within five
//! minutes, on whichever door, is posted once.
//!
//! ```text
//! cargo run --features nonce --example chat_server              # in a temporary folder, and shows itself
//! cargo run --features nonce --example chat_server -- folder    # serves until it is killed; kill it anywhere and run it again
//! ```

#![allow(missing_docs, reason = "an example")]

use std::error::Error;
use std::path::Path;

use axum::extract::ws::{Message as Frame, WebSocket, WebSocketUpgrade};
use axum::extract::{Path as Segment, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use counterfoil::nonce::{Made, Nonce, NonceError, NonceRequest, Nonces};
use counterfoil::{Executor, Tenant};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Executor as _};

/// What a client sends.
#[derive(Deserialize)]
struct Draft {
    text: String,
    nonce: Option<Nonce>,
    #[serde(default)]
    enforce_nonce: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Posted {
    pub id: i64,
    pub author: String,
    pub text: String,
}

#[derive(Clone)]
pub struct Chat {
    tenant: Tenant,
    messages: Nonces,
}

impl Chat {
    /// On this file, which holds the messages, too.
    pub async fn open(file: &Path) -> Result<Self, Box<dyn Error>> {
        let executor = Executor::sqlite(file).open().await?;
        let mut own = SqliteConnectOptions::new().filename(file).connect().await?;
        let table = "CREATE TABLE IF NOT EXISTS message (id INTEGER PRIMARY KEY, author TEXT NOT NULL, text TEXT NOT NULL)";
        own.execute(table).await?;
        Ok(Self { tenant: Tenant::new("acme")?, messages: Nonces::new(&executor, "message")? })
    }

    /// The one function behind both doors.
    async fn post(&self, author: String, draft: Draft) -> Result<Posted, NonceError> {
        let Draft { text, nonce, enforce_nonce } = draft;
        let (messages, by) = (&self.messages, author.clone());
        let sent = NonceRequest { author: &author, nonce: nonce.as_ref(), enforce: enforce_nonce };
        let made = messages.once_in_transaction(&self.tenant, sent, |db| insert(db, by, text));
        made.await.map(Made::into_inner)
    }
}

fn insert(
    db: &mut SqliteConnection,
    author: String,
    text: String,
) -> futures_util::future::BoxFuture<'_, Result<Posted, sqlx::Error>> {
    Box::pin(async move {
        let insert = sqlx::query_scalar("INSERT INTO message (author, text) VALUES (?, ?) RETURNING id");
        let id = insert.bind(&author).bind(&text).fetch_one(db).await?;
        Ok(Posted { id, author, text })
    })
}

async fn over_http(
    State(chat): State<Chat>,
    Segment(author): Segment<String>,
    Json(draft): Json<Draft>,
) -> Result<Json<Posted>, (StatusCode, String)> {
    chat.post(author, draft).await.map(Json).map_err(|error| (StatusCode::CONFLICT, error.to_string()))
}

async fn over_websocket(
    State(chat): State<Chat>,
    Segment(author): Segment<String>,
    upgrade: WebSocketUpgrade,
) -> Response {
    upgrade.on_upgrade(move |socket| talk(socket, chat, author))
}

/// Each frame is a draft, and is answered with the message.
async fn talk(mut socket: WebSocket, chat: Chat, author: String) {
    while let Some(Ok(frame)) = socket.recv().await {
        let Frame::Text(text) = frame else { continue };
        let answer = match serde_json::from_str(&text) {
            Ok(draft) => match chat.post(author.clone(), draft).await {
                Ok(posted) => serde_json::to_string(&posted).unwrap_or_default(),
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        if socket.send(Frame::text(answer)).await.is_err() {
            return; // the client is gone; its message is posted, and it may ask again
        }
    }
}

pub fn app(chat: Chat) -> Router {
    let doors = Router::new()
        .route("/{author}/messages", post(over_http))
        .route("/{author}/socket", get(over_websocket));
    doors.with_state(chat)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1);
    let temporary = tempfile::tempdir()?;
    let place = folder.as_deref().map_or(temporary.path(), Path::new);
    std::fs::create_dir_all(place)?;
    let chat = Chat::open(&place.join("chat.db")).await?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let server = tokio::spawn(axum::serve(listener, app(chat)).into_future());
    if folder.is_some() {
        println!("{url}");
        return Ok(server.await??);
    }
    let drafts = [
        r#"{"text":"hello","nonce":7,"enforce_nonce":true}"#,
        r#"{"text":"hello","nonce":"7","enforce_nonce":true}"#,
        r#"{"text":"hello","nonce":7}"#,
    ];
    for draft in drafts {
        let request = reqwest::Client::new()
            .post(format!("{url}/ann/messages"))
            .header("content-type", "application/json");
        println!("{draft}: {}", request.body(draft).send().await?.text().await?);
    }
    Ok(())
}
