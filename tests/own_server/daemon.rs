//! A server that stays in the foreground: a broker, a Redis. On a port and in a folder of its own, to be killed and started again.
//!
//! It ends with the test however that ends: a shell holds the other end of a pipe, and when the pipe closes it kills everything
//! that it has started. A `Drop` alone would leave servers behind at every Ctrl-C.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use counterfoil::{Clock as _, SystemClock};
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use super::port::Port;

/// A server with its data, running or killed.
pub(crate) struct Daemon {
    command: fn(u16, &Path) -> Command,
    folder: TempDir,
    port: Port,
    shell: Option<Child>,
}

impl Daemon {
    /// Starts what `command` gives for a port and a folder, and returns when the port is open.
    pub(crate) async fn start(command: fn(u16, &Path) -> Command) -> Self {
        let folder = tempfile::Builder::new().prefix("counterfoil-server.").tempdir_in("/tmp").unwrap();
        let mut server = Self { command, folder, port: Port::free(), shell: None };
        server.start_again().await;
        server
    }

    /// Where clients find it, also after it was started again.
    pub(crate) fn port(&self) -> u16 {
        self.port.number
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What it has written about itself so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// SIGKILL to it and to whatever it has started.
    pub(crate) fn kill(&mut self) {
        let Some(mut shell) = self.shell.take() else { return };
        let group = Pid::from_raw(i32::try_from(shell.id()).unwrap()).unwrap();
        kill_process_group(group, Signal::KILL).unwrap();
        shell.wait().unwrap();
    }

    /// Starts it where it was, with the data that it has, and returns when its port is open.
    pub(crate) async fn start_again(&mut self) {
        assert!(self.shell.is_none(), "the server is running");
        let command = (self.command)(self.port.number, self.folder.path());
        let log = File::options().create(true).append(true).open(self.log_file()).unwrap();
        // The server does not read from the pipe, or it would take its end away from the shell.
        let mut shell = Command::new("sh");
        shell.args(["-c", r#""$@" </dev/null & read -r _; kill -9 -$$"#, "keeper"]);
        shell.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            shell.env(name, value.unwrap_or_default());
        }
        shell.current_dir(self.folder.path()).process_group(0);
        shell.stdin(Stdio::piped()).stdout(log.try_clone().unwrap()).stderr(log);
        self.shell = Some(shell.spawn().unwrap());
        for _ in 0..6000 {
            if tokio::net::TcpStream::connect(("127.0.0.1", self.port.number)).await.is_ok() {
                return;
            }
            SystemClock.sleep(Duration::from_millis(20)).await;
            let ended = self.shell.as_mut().and_then(|shell| shell.try_wait().unwrap());
            assert!(ended.is_none(), "the server does not start:\n{}", self.log());
        }
        panic!("the server does not open its port:\n{}", self.log());
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("what the server at port {} says:\n{}", self.port.number, self.log());
        }
        self.kill();
    }
}
