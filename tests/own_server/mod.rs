//! A PostgreSQL server that one test has to itself: to stop it in the middle of load, to start it again, to give it
//! a standby, to kill it and promote the standby. Real processes, as in production; the programs are those that
//! `.ci/with-postgres` has found.
//!
//! The server ends with the test however that ends: a shell holds the other end of a pipe, and when the pipe closes
//! it stops the server and removes the folder. A `Drop` alone would leave servers behind at every Ctrl-C.
#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod daemon;
pub(crate) mod port;
pub(crate) mod proxy;
#[cfg(feature = "rabbitmq")]
pub(crate) mod rabbitmq;
#[cfg(feature = "postgres-tls")]
pub(crate) mod tls;

use std::fs::{self, File};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, getuid, kill_process};

use port::Port;

/// A server with its data, running or stopped.
pub(crate) struct Server {
    folder: PathBuf,
    port: Port,
    keeper: Child,
}

impl Server {
    /// A new server, empty. Each setting is a line of `postgresql.conf`, like `synchronous_commit=off`. Files are not
    /// synced unless a setting says `fsync=on`.
    pub(crate) async fn start(settings: &[&str]) -> Self {
        let server = Self::at(folder());
        let data = server.data();
        run(program("initdb").arg("-D").arg(&data).args([
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ]))
        .await;
        server.configure(&[
            "fsync=off",
            "full_page_writes=off",
            "max_connections=100",
            "wal_keep_size=256MB",
        ]);
        server.configure(settings);
        server.start_again().await;
        server
    }

    /// A standby of this server, which follows it as `name`. Without [`Server::wait_for`] nothing waits for it.
    pub(crate) async fn standby(&self, name: &str) -> Self {
        let standby = Self::at(folder());
        let primary =
            format!("host=127.0.0.1 port={} user=postgres application_name={name}", self.port.number);
        run(program("pg_basebackup").arg("-D").arg(standby.data()).args([
            "-d",
            &primary,
            "--write-recovery-conf",
            "--wal-method=stream",
            "--checkpoint=fast",
            "--no-sync",
        ]))
        .await;
        standby.start_again().await;
        standby
    }

    /// From here on every commit waits for the standby of this name; returns when the standby has caught up.
    pub(crate) async fn wait_for(&self, standby: &str) {
        self.configure(&[&format!("synchronous_standby_names='{standby}'")]);
        self.ctl(&["reload"]).await;
        self.until(&format!(
            "SELECT 1 FROM pg_stat_replication WHERE application_name = '{standby}' AND sync_state = 'sync'"
        ))
        .await;
    }

    /// The standby becomes a primary.
    pub(crate) async fn promote(&self) {
        self.ctl(&["-w", "promote"]).await;
    }

    /// Where programs find it, also after it was started again.
    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port.number)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.number
    }

    /// What the server has written about itself so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Stops it as a crash does: connections are cut, nothing is flushed, the next start recovers.
    pub(crate) async fn stop_immediate(&self) {
        self.ctl(&["-w", "-m", "immediate", "stop"]).await;
    }

    /// Stops it in order: open transactions are rolled back, connections are told.
    pub(crate) async fn stop_fast(&self) {
        self.ctl(&["-w", "-m", "fast", "stop"]).await;
    }

    /// SIGKILL to its first process. The others see that and end a little later, each by itself.
    pub(crate) fn kill(&self) {
        let file = fs::read_to_string(self.data().join("postmaster.pid")).unwrap();
        let pid: i32 = file.lines().next().unwrap().parse().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }

    /// Starts it where it was, with the data that it has.
    pub(crate) async fn start_again(&self) {
        let log = self.folder.join("log");
        let options =
            format!("-p {} -k '{}' -c listen_addresses=127.0.0.1", self.port.number, self.folder.display());
        let mut command = program("pg_ctl");
        command.arg("-D").arg(self.data()).args(["-w", "-t", "60", "-o", &options, "start", "-l"]).arg(log);
        // After a SIGKILL, PostgreSQL refuses while a process of the former server is still there.
        for _ in 0..50 {
            if attempt(&mut command).await.is_ok() {
                return;
            }
        }
        panic!("the server does not start:\n{}", self.log());
    }

    /// Lines for `postgresql.conf`; the last one of a name counts. Known to the server at its next start or reload.
    pub(crate) fn configure(&self, settings: &[&str]) {
        let mut file = File::options().append(true).open(self.data().join("postgresql.conf")).unwrap();
        for setting in settings {
            writeln!(file, "{setting}").unwrap();
        }
    }

    /// Runs a statement as a client of its own; returns what `psql` prints, bare.
    pub(crate) async fn sql(&self, statement: &str) -> String {
        psql(self.port.number, statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"))
    }

    /// Asks until the statement returns a row. Each question is a new connection, so this does not spin.
    pub(crate) async fn until(&self, statement: &str) {
        for _ in 0..1000 {
            if !self.sql(statement).await.is_empty() {
                return;
            }
        }
        panic!("never true: {statement}\n{}", self.log());
    }

    fn at(folder: PathBuf) -> Self {
        let keeper = keeper(&folder);
        Self { folder, port: Port::free(), keeper }
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    async fn ctl(&self, arguments: &[&str]) {
        run(program("pg_ctl").arg("-D").arg(self.data()).args(arguments)).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("what the PostgreSQL server at port {} says:\n{}", self.port.number, self.log());
        }
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// A statement through `psql`, a client that is not ours. `Err` is what it complains of.
pub(crate) async fn psql(port: u16, statement: &str) -> Result<String, String> {
    let mut command = program("psql");
    command.args([
        "-X",
        "-q",
        "-A",
        "-t",
        "-v",
        "ON_ERROR_STOP=1",
        "-h",
        "127.0.0.1",
        "-U",
        "postgres",
        "-p",
    ]);
    command.arg(port.to_string()).args(["-c", statement, "postgres"]);
    let output = tokio::process::Command::from(command).kill_on_drop(true).output().await.unwrap();
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// A new folder, for PostgreSQL's user. In `/tmp`: a socket's path must be short, and that user must get there.
fn folder() -> PathBuf {
    let folder = tempfile::Builder::new().prefix("counterfoil-postgres.").tempdir_in("/tmp").unwrap().keep();
    if let Some((user, group)) = postgres_user() {
        std::os::unix::fs::chown(&folder, Some(user), Some(group)).unwrap();
    }
    folder
}

/// PostgreSQL refuses to run as root. For root: the user and the group to run it as.
fn postgres_user() -> Option<(u32, u32)> {
    if !getuid().is_root() {
        return None;
    }
    let accounts = fs::read_to_string("/etc/passwd").unwrap();
    let find = |name: &str| {
        let account = accounts.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut ids = account.split(':').skip(2).map(|id| id.parse().unwrap());
        Some((ids.next()?, ids.next()?))
    };
    Some(find("postgres").or_else(|| find("nobody")).expect("a user other than root to run PostgreSQL as"))
}

/// One of PostgreSQL's programs, as the user that may run it.
fn program(name: &str) -> Command {
    let bin = std::env::var_os("PG_BIN").expect(
        "this test starts PostgreSQL servers of its own, and PG_BIN does not say where the programs are: run `./test`, \
         which finds them, or set it to the folder that holds `initdb`",
    );
    as_postgres(&Path::new(&bin).join(name))
}

/// A program, as the user that may run PostgreSQL.
fn as_postgres(path: &Path) -> Command {
    let mut command = match postgres_user() {
        Some((user, group)) => {
            let mut command = Command::new("setpriv");
            command.args([format!("--reuid={user}"), format!("--regid={group}")]);
            command.arg("--clear-groups").arg(path);
            command.env("HOME", "/"); // psql over TLS looks for a certificate at home, and root's home is closed to it
            command
        }
        None => Command::new(path),
    };
    command.current_dir("/").stdin(Stdio::null());
    command
}

async fn run(command: &mut Command) {
    attempt(command).await.unwrap_or_else(|said| panic!("{command:?}: {said}"));
}

/// `Err` is what the program said.
async fn attempt(command: &mut Command) -> Result<(), String> {
    // Into a file: the server inherits it from `pg_ctl`, and a pipe would not end before the server does.
    let mut said = tempfile::tempfile().unwrap();
    command.stdout(said.try_clone().unwrap()).stderr(said.try_clone().unwrap());
    let mut child = command.spawn().unwrap();
    let status = tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap();
    if status.success() {
        return Ok(());
    }
    said.rewind().unwrap();
    Err(io::read_to_string(said).unwrap())
}

/// Stops the server and removes the folder when its standard input closes, which happens at the latest with the end
/// of this process. In a group of its own, so that what ends the test does not end it too.
fn keeper(folder: &Path) -> Child {
    let stop = program("pg_ctl");
    Command::new("sh")
        .args(["-c", r#"read -r _; "$@" -D "$0/data" -m immediate -w stop; rm -rf "$0""#])
        .arg(folder)
        .arg(stop.get_program())
        .args(stop.get_args())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/")
        .process_group(0)
        .spawn()
        .unwrap()
}
