//! Several processes on one ledger's file are one gateway: the first that takes the file's lock is the gateway, and the others pass their
//! clients on to it, over a socket beside the file. When it dies, one of them takes the lock and goes on.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
    BufReader,
};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::config::McpConfig;
use super::error::McpError;
use super::gateway::McpGateway;
use super::lines::{AHEAD, Line, next_line, too_long};
use super::relay::Relay;
use super::socket::Socket;
use crate::clock::{Clock as _, SystemClock};
use crate::exec::StartError;
use crate::store::{OpenError, StoreError};

/// The pause between attempts to find the gateway's socket.
const PAUSE: Duration = Duration::from_millis(20);
/// The time for a process at the socket to say who it is.
const GREETING: Duration = Duration::from_secs(5);
/// The longest greeting, in bytes.
const LONGEST_GREETING: u64 = 4096;
/// The time for calls in flight when the client has left.
const DRAIN: Duration = Duration::from_secs(10);
/// The bytes that are on their way between a client and a gateway in the same process.
const PIPE: usize = 1 << 16;

impl McpGateway {
    /// Serves one client on the ledger that the configuration names, until it leaves. Any number of processes do so on one ledger's file:
    /// one of them is the gateway, and the others pass their clients on to it. When the gateway dies, another process takes its
    /// place, and the clients notice nothing: their sessions begin again, and requests without an answer are made again,
    /// which are the same operations.
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`serve`](Self::serve); [`McpError::Joined`] if the gateway has another configuration.
    pub async fn serve_together(
        config: McpConfig,
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Result<(), McpError> {
        let mut client = Client::Unread(Box::new(input), Box::new(output));
        loop {
            let found = tokio::select! {
                biased;
                joined = join(&config) => Found::Gateway(joined?),
                opened = Box::pin(Self::open(config.clone())) => match opened {
                    Ok(gateway) => Found::Lock(gateway),
                    // Another process has taken the place of a gateway that has died, and is not ready yet.
                    Err(McpError::Start(StartError::Store(StoreError::Open(OpenError::Owned { .. }))))
                        if client.is_passed() => continue,
                    Err(error) => return Err(error),
                },
            };
            match found {
                Found::Gateway((read, write)) => {
                    let mut passed = client.passed();
                    if passed.pass(read, write).await == Left::Client {
                        return Ok(());
                    }
                    tracing::warn!("gateway of another process ended, next one is looked for");
                    client = Client::Passed(passed);
                }
                Found::Lock(gateway) => {
                    let others = gateway
                        .accept_others()
                        .inspect_err(|error| tracing::warn!(%error, "socket for other processes not made"));
                    let served = client.served(&gateway).await;
                    drop(others); // before the lock is released: nobody joins a gateway that ends
                    gateway.shutdown(DRAIN).await;
                    return served;
                }
            }
        }
    }

    /// Serves the clients that other processes on the same ledger's file pass on, for as long as the result is kept.
    ///
    /// # Errors
    /// [`McpError::Socket`] if the socket beside the file cannot be made.
    pub fn accept_others(&self) -> Result<Others, McpError> {
        let mut socket = Socket::beside(&self.config().ledger)?;
        let listener = socket.listen()?;
        let gateway = self.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut sessions = JoinSet::new();
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => drop(sessions.spawn(admit(gateway.clone(), stream))),
                    Err(error) => {
                        tracing::warn!(%error, "another gateway's client not accepted");
                        SystemClock.sleep(PAUSE).await;
                    }
                }
                while sessions.try_join_next().is_some() {}
            }
        });
        Ok(Others { _socket: socket, _tasks: tasks })
    }
}

/// The way by which other processes pass their clients on. It is closed when this is dropped.
#[must_use]
pub struct Others {
    _socket: Socket,
    _tasks: JoinSet<()>,
}

impl std::fmt::Debug for Others {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Others").finish_non_exhaustive()
    }
}

type Joined = (BufReader<OwnedReadHalf>, OwnedWriteHalf);

enum Found {
    Gateway(Joined),
    Lock(McpGateway),
}

/// Joins the gateway on the ledger's file, as soon as there is one.
async fn join(config: &McpConfig) -> Result<Joined, McpError> {
    loop {
        // The file may not be there yet, and its socket is named after it.
        let stream = match Socket::beside(&config.ledger) {
            Ok(socket) => socket.connect().await.ok(),
            Err(_) => None,
        };
        if let Some(stream) = stream
            && let Some(joined) = greet(config, stream).await?
        {
            return Ok(joined);
        }
        SystemClock.sleep(PAUSE).await;
    }
}

/// The greeting of a process that joins.
const JOIN: &str = "counterfoil/join";

/// Says who joins, and waits for the welcome. `None` if the gateway has ended meanwhile.
async fn greet(config: &McpConfig, stream: UnixStream) -> Result<Option<Joined>, McpError> {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    let greeting = json!({ JOIN: config.digest, "client": config.client });
    if write.write_all(format!("{greeting}\n").as_bytes()).await.is_err() {
        return Ok(None);
    }
    let Some(welcome) = greeted(&mut read).await else { return Ok(None) };
    match welcome["refused"].as_str() {
        Some(reason) => Err(McpError::Joined { reason: reason.to_owned() }),
        None => Ok(Some((read, write))),
    }
}

/// The first line of the other side. `None` if it says nothing in time, or nothing that is one.
async fn greeted(read: &mut (impl AsyncBufRead + Unpin)) -> Option<Value> {
    let mut line = Vec::new();
    let mut read = read.take(LONGEST_GREETING);
    tokio::select! {
        biased;
        read = read.read_until(b'\n', &mut line) => {
            read.ok()?;
        }
        () = SystemClock.sleep(GREETING) => return None,
    }
    serde_json::from_slice(&line).ok()
}

/// Serves a client that another process passes on.
async fn admit(gateway: McpGateway, stream: UnixStream) {
    let own = rustix::process::geteuid().as_raw();
    if !stream.peer_cred().is_ok_and(|peer| peer.uid() == own) {
        return;
    }
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    let Some(greeting) = greeted(&mut read).await else { return };
    let is_alike = greeting[JOIN] == gateway.config().digest;
    let answer = if is_alike {
        json!({ "welcome": env!("CARGO_PKG_VERSION") })
    } else {
        json!({ "refused": format!("process {} serves it with another configuration", std::process::id()) })
    };
    if write.write_all(format!("{answer}\n").as_bytes()).await.is_err() || !is_alike {
        return;
    }
    let name = greeting["client"].as_str().unwrap_or_default();
    tracing::info!(client = name, "client of another process joined");
    if let Err(error) = gateway.serve_client(name, read, write).await {
        tracing::debug!(%error, "client of another process not served");
    }
}

/// The client of this process.
enum Client {
    /// Nothing was read from it.
    Unread(Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>),
    /// Its lines are passed on.
    Passed(Passed),
}

impl Client {
    fn passed(self) -> Passed {
        match self {
            Self::Unread(input, output) => Passed::of(input, output),
            Self::Passed(passed) => passed,
        }
    }

    const fn is_passed(&self) -> bool {
        matches!(self, Self::Passed(_))
    }

    /// Serves the client by a gateway in this process, until it leaves.
    async fn served(self, gateway: &McpGateway) -> Result<(), McpError> {
        let mut passed = match self {
            Self::Unread(input, output) => return gateway.serve(input, output).await,
            Self::Passed(passed) => passed,
        };
        let (own, other) = tokio::io::duplex(PIPE);
        let (read, write) = tokio::io::split(other);
        let serving = gateway.serve(read, write);
        let (read, write) = tokio::io::split(own);
        let passing = passed.pass(BufReader::new(read), write);
        tokio::select! {
            biased;
            served = serving => served,
            _ = passing => Ok(()),
        }
    }
}

/// A client whose lines are passed on to a gateway.
struct Passed {
    lines: mpsc::Receiver<Line>,
    output: Box<dyn AsyncWrite + Send + Unpin>,
    relay: Relay,
    /// True if the lines went to a gateway that has died.
    was_cut: bool,
}

/// Who has left first.
#[derive(Debug, PartialEq, Eq)]
enum Left {
    Client,
    Gateway,
}

impl Passed {
    fn of(input: Box<dyn AsyncRead + Send + Unpin>, output: Box<dyn AsyncWrite + Send + Unpin>) -> Self {
        let (read, lines) = mpsc::channel(AHEAD);
        // Reading must not be cut off in the middle of a line.
        drop(tokio::spawn(async move {
            let mut input = BufReader::new(input);
            while let Ok(Some(line)) = next_line(&mut input).await {
                if read.send(line).await.is_err() {
                    return;
                }
            }
        }));
        Self { lines, output, relay: Relay::default(), was_cut: false }
    }

    /// Passes lines to and fro until one side leaves.
    async fn pass(&mut self, read: impl AsyncBufRead + Unpin, mut write: impl AsyncWrite + Unpin) -> Left {
        if std::mem::replace(&mut self.was_cut, true) {
            for line in self.relay.again() {
                if send(&mut write, &line).await.is_err() {
                    return Left::Gateway;
                }
            }
        }
        let mut answers = read.lines();
        loop {
            tokio::select! {
                biased;
                line = answers.next_line() => {
                    let Ok(Some(line)) = line else { return Left::Gateway };
                    if let Some(line) = self.relay.gateway_says(line)
                        && send(&mut self.output, &line).await.is_err()
                    {
                        return Left::Client;
                    }
                }
                line = self.lines.recv() => match line {
                    None => return Left::Client,
                    Some(Line::TooLong) => {
                        if send(&mut self.output, &too_long().to_string()).await.is_err() {
                            return Left::Client;
                        }
                    }
                    Some(Line::Of(line)) => {
                        let line = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
                        if let Some(line) = self.relay.client_says(line, SystemClock.now())
                            && send(&mut write, &line).await.is_err()
                        {
                            return Left::Gateway;
                        }
                    }
                },
            }
        }
    }
}

async fn send(output: &mut (impl AsyncWrite + Unpin), line: &str) -> std::io::Result<()> {
    output.write_all(line.as_bytes()).await?;
    output.write_all(b"\n").await?;
    output.flush().await
}
