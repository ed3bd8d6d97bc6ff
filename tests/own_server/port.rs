//! Ports for servers that tests start themselves.

use std::fs::File;

/// Above the ports that `.ci/with-postgres` draws from and below those the system gives to clients: a server that
/// starts again must find its port free.
const PORTS: std::ops::Range<u16> = 26_000..32_000;

/// A port that is this process's own while it lives, even while no server listens there.
pub(crate) struct Port {
    pub(crate) number: u16,
    _lock: File,
}

impl Port {
    pub(crate) fn free() -> Self {
        let chance = uuid::Uuid::now_v7().as_u128();
        let count = PORTS.end - PORTS.start;
        let first = u16::try_from(chance % u128::from(count)).unwrap();
        (0..count)
            .map(|n| PORTS.start + (first + n) % count)
            .find_map(|number| {
                let lock = File::create(format!("/tmp/counterfoil-port-{number}.lock")).ok()?;
                lock.try_lock().ok()?;
                // Somebody else's, who does not know of our locks.
                std::net::TcpListener::bind(("127.0.0.1", number)).ok()?;
                Some(Self { number, _lock: lock })
            })
            .expect("no free port for a server")
    }
}
