//! `POST /{author}/notes`: a note that a client sends twice within five minutes is made once.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Extension, Json, Router};
use counterfoil::nonce::{Made, Nonce, NonceRequest, Nonces};
use serde::Deserialize;

use super::books::Books;
use super::user::User;

#[derive(Deserialize)]
struct Note {
    text: String,
    nonce: Option<Nonce>,
    #[serde(default)]
    enforce_nonce: bool,
}

pub(crate) fn routes<C: Books>(notes: Nonces) -> Router {
    Router::new().route("/{author}/notes", post(take::<C>)).with_state(notes)
}

/// The answer is the note's place among all notes.
async fn take<C: Books>(
    State(notes): State<Nonces>,
    Extension(User(tenant)): Extension<User>,
    Path(author): Path<String>,
    Json(note): Json<Note>,
) -> Result<Json<i64>, (StatusCode, String)> {
    let Note { text, nonce, enforce_nonce } = note;
    let sent = NonceRequest { author: &author, nonce: nonce.as_ref(), enforce: enforce_nonce };
    let made = notes.once_in_transaction(&tenant, sent, |db: &mut C| db.enter("note", text));
    let made = made.await.map(Made::into_inner).map(Json);
    made.map_err(|error| (StatusCode::CONFLICT, error.to_string()))
}
