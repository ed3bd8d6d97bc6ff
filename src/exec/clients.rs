//! Clients beside the only worker of a store: what they write is found and taken up, as the heartbeat does beside other
//! workers. Nothing is read before another process has written.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::agenda::Due;
use super::core::Core;
use crate::store::StoreError;

/// The pause after a look that failed.
const AGAIN: Duration = Duration::from_millis(250);

/// Runs until the core is gone or closing.
pub(super) async fn hear(core: Weak<Core>, engine: Option<Weak<dyn Due>>) {
    let mut has_failed = false;
    loop {
        let Some(strong) = core.upgrade() else { return };
        let (store, clock, gone) = (strong.group.store().clone(), strong.clock.clone(), strong.gone.clone());
        drop(strong); // a sleeper must not keep a closed engine
        let woken = async {
            if !has_failed {
                return store.woken().await;
            }
            clock.sleep(AGAIN).await; // what the failed look has missed may be all that is ever written
            Ok(())
        };
        let woken = tokio::select! {
            biased; // no random choice, so that a simulation is repeatable
            () = gone.notified() => return,
            woken = woken => woken,
        };
        drop(store);
        let Some(strong) = core.upgrade().filter(|core| !core.is_closing()) else { return };
        let heard = match woken {
            Ok(()) => look(&strong, engine.as_ref().and_then(Weak::upgrade)).await,
            Err(error) => Err(error),
        };
        has_failed = heard.is_err();
        if let Err(error) = heard {
            log_trouble!(error, worker = %strong.fence, "writes of clients not read, will retry");
        }
    }
}

async fn look(core: &Arc<Core>, engine: Option<Arc<dyn Due>>) -> Result<(), StoreError> {
    core.has_clients.store(true, Ordering::Release); // before the look: a run that parks meanwhile looks by itself
    core.agenda.note(core.now());
    if core.publishing.is_able() {
        core.group.events().notify_one(); // an operator may have released an event that was set aside
    }
    match engine {
        Some(engine) => engine.look(true, true).await,
        None => Ok(()),
    }
}
