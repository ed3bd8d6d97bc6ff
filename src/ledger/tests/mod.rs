//! Tests of the ledger: a file for each file of it, and the records that they share.

mod apply;
mod approval;
mod compensation;
mod contract;
mod decide;
mod declaration;
mod evidence;
mod guarantee;
mod hash;
mod key;
mod look;
mod permit;
mod quota;
mod record;
mod resolve;
mod restored;
mod retention;
mod retry;
mod review;
mod throttle;

use crate::clock::Timestamp;
use crate::id::{DeclarationId, Fence, Name, RecordId, Tenant};
use crate::ledger::{
    EffectClass, ErrorKind, Intent, Key, Owner, Record, RecordedFailure, RequestHash, Retention, State,
};
use crate::payload::{Payload, Stored};

/// The worker that owns these records.
const MINE: Fence = Fence(1);

fn json(text: &str) -> Stored {
    Stored::Inline(Payload::of(text).unwrap())
}

fn failure(message: &str) -> RecordedFailure {
    RecordedFailure { kind: ErrorKind::Server, message: message.to_owned(), detail: serde_json::Value::Null }
}

/// A record as `begin` writes it: the first attempt of worker 1 is about to be dispatched.
fn started() -> Record {
    let intent = Intent {
        id: RecordId(1),
        tenant: Tenant::new("acme").unwrap(),
        key: Key::of("send").target("case").render().unwrap(),
        operation: Name::new("send").unwrap(),
        class: EffectClass::Notification,
        request: json("request"),
        request_hash: RequestHash { version: 1, digest: [1; 32] },
        declaration: DeclarationId(1),
        owner: Owner { call_id: Some("call 1".into()), ..Owner::default() },
        fence: MINE,
        retention: Retention::keep(),
        approval: None,
        scopes: None,
    };
    Record::begin(intent, Timestamp(10))
}

fn record(state: State) -> Record {
    Record { state, ..started() }
}
