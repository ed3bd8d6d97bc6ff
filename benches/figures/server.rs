//! Servers for a row of its own, started as in the tests: they end with this process, however it ends.

#[path = "../../tests/own_server/daemon.rs"]
#[allow(dead_code, reason = "the tests do more with their servers")]
mod daemon;
#[path = "../../tests/own_server/port.rs"]
mod port;

use std::path::Path;
use std::process::Command;

pub(crate) use daemon::Daemon;

/// NATS with JetStream, which keeps its messages in files.
#[cfg(feature = "nats")]
pub(crate) fn nats(port: u16, folder: &Path) -> Command {
    let mut command = Command::new("nats-server");
    command.args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--jetstream", "--store_dir"]);
    command.arg(folder);
    command
}

/// Redis without persistence, the usual setup of a cache.
#[cfg(feature = "redis")]
pub(crate) fn redis(port: u16, folder: &Path) -> Command {
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"]).arg(folder);
    command
}
