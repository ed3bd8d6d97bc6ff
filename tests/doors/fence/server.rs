//! A Redis server of a test's own.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use redis::{FromRedisValue, RedisError};
use rustix::process::{Pid, Signal, kill_process};

use crate::own_server::daemon::Daemon;

pub(crate) struct Redis {
    daemon: Daemon,
    pid: Pid,
}

/// Without persistence: it forgets everything with its process, as caches do.
fn forgetful(port: u16, folder: &Path) -> Command {
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"]).arg(folder);
    command
}

/// Each write is on the disk before it is answered.
fn durable(port: u16, folder: &Path) -> Command {
    let mut command = forgetful(port, folder);
    command.args(["--appendonly", "yes", "--appendfsync", "always"]);
    command
}

impl Redis {
    pub(crate) async fn start() -> Self {
        Self::of(Daemon::start(forgetful).await).await
    }

    pub(super) async fn durable() -> Self {
        Self::of(Daemon::start(durable).await).await
    }

    async fn of(daemon: Daemon) -> Self {
        let pid = pid(daemon.port()).await;
        Self { daemon, pid }
    }

    pub(super) fn port(&self) -> u16 {
        self.daemon.port()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port())
    }

    pub(super) fn kill(&mut self) {
        self.daemon.kill();
    }

    pub(super) async fn start_again(&mut self) {
        self.daemon.start_again().await;
        self.pid = pid(self.port()).await;
    }

    /// It answers nobody until it is thawed; connections stay open, and are even accepted.
    pub(super) fn freeze(&self) {
        kill_process(self.pid, Signal::STOP).unwrap();
    }

    pub(super) fn thaw(&self) {
        kill_process(self.pid, Signal::CONT).unwrap();
    }

    /// A command, over a connection of its own.
    pub(crate) async fn tell<T: FromRedisValue>(&self, command: &[&str]) -> T {
        tell(self.port(), command).await.unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// Makes it follow another server, and returns when it has all that the other one has.
    pub(super) async fn follow(&self, primary: &Self) {
        () = self.tell(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]).await;
        while !self.tell::<String>(&["INFO", "replication"]).await.contains("master_link_status:up") {
            tokio::task::yield_now().await;
        }
    }

    /// The network to the server that it follows is cut. What the other one is told from now on does not get here.
    pub(super) async fn lose_sight(&self) {
        () = self.tell(&["REPLICAOF", "127.0.0.1", "1"]).await;
    }
}

async fn tell<T: FromRedisValue>(port: u16, command: &[&str]) -> Result<T, RedisError> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/"))?;
    let patient = redis::AsyncConnectionConfig::new()
        .set_response_timeout(Some(Duration::from_mins(1)))
        .set_connection_timeout(Some(Duration::from_mins(1)));
    let mut connection = client.get_multiplexed_async_connection_with_config(&patient).await?;
    let mut asked = redis::cmd(command[0]);
    asked.arg(&command[1..]).query_async(&mut connection).await
}

/// The server's process, once it has loaded its data.
async fn pid(port: u16) -> Pid {
    loop {
        if let Ok(info) = tell::<String>(port, &["INFO", "all"]).await
            && info.contains("loading:0")
        {
            let pid = info.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap();
            return Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        }
        tokio::task::yield_now().await;
    }
}
