//! Permits: a client that was given one may carry out its task, and reply.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha2::Sha256;
use tokio::sync::oneshot;

use super::line::{Line, Reply, Taker, Task};
use crate::id::{Fence, Tenant};
use crate::ledger::OperationKey;
use crate::payload::DigestKey;

/// The task that a permit allows, and the way to its executor.
pub(super) struct Permit {
    pub(super) task: Task,
    /// The client that was given it.
    pub(super) taker: Taker,
    pub(super) line: Arc<Line>,
    pub(super) input: Value,
    pub(super) reply: oneshot::Sender<Reply>,
}

/// The permits whose tasks are under way, by their texts.
#[derive(Default)]
pub(super) struct Permits(Mutex<HashMap<String, Permit>>);

impl Permits {
    pub(super) fn open(&self, text: String, permit: Permit) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(text, permit);
    }

    /// Takes a permit for the reply of its client. `None` if its task is over, or is another one.
    pub(super) fn take(&self, text: &str, task: Task, tenant: &Tenant) -> Option<Permit> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let permit = open.get(text)?;
        if permit.task == task && permit.line.tenant == *tenant { open.remove(text) } else { None }
    }

    /// Forgets a permit whose task is over.
    pub(super) fn forget(&self, text: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(text);
    }
}

/// The attempt that a permit names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) task: Task,
    pub(super) fence: Fence,
    /// The number of the attempt, or of the lookup in this process.
    pub(super) number: u32,
    pub(super) key: OperationKey,
}

impl Attempt {
    /// The text of a permit. It proves, also to another process and after a restart, that this ledger has given the
    /// attempt to a client: nobody makes one without the tenant's key.
    pub(super) fn permit(&self, secret: &DigestKey, tenant: &Tenant) -> String {
        let named = format!("{}.{}.{}.{}", self.task.name(), self.fence.0, self.number, self.key.as_str());
        let proof = mac(secret, &named, tenant).finalize().into_bytes();
        format!("{}.{}", URL_SAFE_NO_PAD.encode(&named), URL_SAFE_NO_PAD.encode(proof))
    }

    /// The attempt that a permit names, if this ledger has given the permit to the tenant.
    pub(super) fn of(permit: &str, secret: &DigestKey, tenant: &Tenant) -> Option<Self> {
        let (named, proof) = permit.split_once('.')?;
        let named = String::from_utf8(URL_SAFE_NO_PAD.decode(named).ok()?).ok()?;
        let proof = URL_SAFE_NO_PAD.decode(proof).ok()?;
        // In constant time: the time of a comparison must not tell how much of a guess was right.
        mac(secret, &named, tenant).verify_slice(&proof).ok()?;
        let mut parts = named.splitn(4, '.');
        let task = Task::named(parts.next()?)?;
        let (fence, number) = (Fence(parts.next()?.parse().ok()?), parts.next()?.parse().ok()?);
        Some(Self { task, fence, number, key: OperationKey::stored(parts.next()?) })
    }
}

#[allow(clippy::expect_used, reason = "HMAC takes keys of any length (RFC 2104)")]
fn mac(secret: &DigestKey, named: &str, tenant: &Tenant) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.bytes()).expect("any length is a key");
    for part in ["counterfoil/permit/1", named, tenant.as_str()] {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part.as_bytes());
    }
    mac
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Key;

    #[test]
    fn a_permit_counts_only_as_it_was_given_and_for_its_tenant() {
        let (secret, other) = (DigestKey::new([7; 32]), DigestKey::new([8; 32]));
        let (acme, evil) = (Tenant::new("acme").unwrap(), Tenant::new("evil").unwrap());
        let key = Key::given("refund", "order.9").render().unwrap();
        let attempt = Attempt { task: Task::Send, fence: Fence(3), number: 2, key };
        let permit = attempt.permit(&secret, &acme);
        assert_eq!(Attempt::of(&permit, &secret, &acme), Some(attempt.clone()));
        assert_eq!(Attempt::of(&permit, &other, &acme), None);
        assert_eq!(Attempt::of(&permit, &secret, &evil), None);
        let (_, proof) = permit.split_once('.').unwrap();
        let forged = format!("{}.{proof}", URL_SAFE_NO_PAD.encode("send.3.1.refund"));
        for forged in ["", ".", "send.3.2", &forged, &permit[..permit.len() - 2]] {
            assert_eq!(Attempt::of(forged, &secret, &acme), None, "{forged}");
        }
    }
}
