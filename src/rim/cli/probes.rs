//! The probes of an orchestrator: `GET /healthz` and `GET /readyz`. They need no token, and tell of no tenant.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use http::StatusCode;

use crate::clock::{Clock as _, SystemClock};
use crate::exec::Core;
use crate::store::Store as _;

/// The time within which a database that is there answers.
const PATIENCE: Duration = Duration::from_secs(2);

/// The routes of the probes, of the process that has this core.
pub(super) fn router(core: Arc<Core>) -> Router {
    Router::new().route("/healthz", get(live)).route("/readyz", get(ready)).with_state(core)
}

/// Whether the process is to go on. It asks nothing, because a restart mends no database.
async fn live(State(core): State<Arc<Core>>) -> (StatusCode, String) {
    let health = core.health();
    (code(health.is_live()), format!("{health}\n"))
}

/// Whether requests are to come here: the database has answered just now.
async fn ready(State(core): State<Arc<Core>>) -> (StatusCode, String) {
    let health = core.health();
    if !health.is_ready() {
        return (code(false), format!("{health}\n"));
    }
    let answered = tokio::select! {
        biased;
        answered = core.group.worker_at(core.fence) => answered.map_err(|error| error.to_string()),
        () = SystemClock.sleep(PATIENCE) => Err("it gave no answer in time".to_owned()),
    };
    match answered {
        Ok(_) => (code(true), "ready\n".to_owned()),
        Err(detail) => {
            tracing::warn!(detail, "database gave no answer to the probe of readiness");
            (code(false), "not ready: the database gives no answer\n".to_owned())
        }
    }
}

const fn code(is_well: bool) -> StatusCode {
    if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}
