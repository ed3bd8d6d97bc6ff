//! A loopback proxy between a client and its PostgreSQL, to lose connections at a chosen byte of the conversation.
//!
//! It reads the client's messages (a type, a length, a body), so that "the third message" and "the message that says
//! COMMIT" mean the same in every run, however TCP cuts the stream. Tests wait for what has happened, not for time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Forwards to a server, and does to the connections what a test asks for.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    closed: CancellationToken,
}

/// What to do when a message goes by.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// The server never sees the message; both ends see the connection die.
    CutBefore,
    /// The server does what the message asks for and answers; the client sees the connection die instead.
    CutBeforeAnswer,
    /// The message waits for [`Trap::release`].
    Hold,
}

/// A rule that was laid down, once for one message.
pub(crate) struct Trap {
    sprung: oneshot::Receiver<()>,
    release: Option<oneshot::Sender<()>>,
}

impl Trap {
    /// Returns when it has happened: with [`Act::CutBeforeAnswer`], when the server has answered.
    pub(crate) async fn sprung(&mut self) {
        (&mut self.sprung).await.expect("the proxy goes on until its trap has sprung");
    }

    /// Lets the held message go.
    pub(crate) fn release(mut self) {
        let _ = self.release.take().expect("released once").send(());
    }
}

/// What has gone by since the proxy started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Connections that reached the server.
    pub(crate) connections: u64,
    /// Messages of clients, but for their good-byes.
    pub(crate) messages: u64,
    /// Of these, statements that were asked to be run.
    pub(crate) statements: u64,
}

struct Shared {
    server: u16,
    refusing: AtomicBool,
    /// Replaced when all connections are cut.
    alive: Mutex<CancellationToken>,
    rules: Mutex<VecDeque<Rule>>,
    connections: AtomicU64,
    messages: AtomicU64,
    statements: AtomicU64,
}

struct Rule {
    pattern: Vec<u8>,
    /// How many messages with the pattern still go by before.
    skip: u64,
    act: Act,
    sprung: oneshot::Sender<()>,
    released: oneshot::Receiver<()>,
}

impl Proxy {
    /// A proxy in front of the server at this port of this machine.
    pub(crate) async fn start(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let shared = Arc::new(Shared {
            server,
            refusing: AtomicBool::new(false),
            alive: Mutex::default(),
            rules: Mutex::default(),
            connections: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            statements: AtomicU64::new(0),
        });
        let proxy = Self {
            port: listener.local_addr().unwrap().port(),
            shared: shared.clone(),
            closed: CancellationToken::new(),
        };
        let closed = proxy.closed.clone();
        tokio::spawn(closed.run_until_cancelled_owned(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                // In this order: a connection that `shut` does not cut is one that is refused here.
                let alive = shared.alive.lock().unwrap().child_token();
                if !shared.refusing.load(SeqCst) {
                    tokio::spawn(serve(shared.clone(), alive, client));
                }
            }
        }));
        proxy
    }

    /// For clients: the server's database, through this proxy.
    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Cuts all connections that are open now. New ones go through.
    pub(crate) fn cut(&self) {
        std::mem::take(&mut *self.shared.alive.lock().unwrap()).cancel();
    }

    /// Cuts all connections and every new one, until [`Proxy::open`].
    pub(crate) fn shut(&self) {
        self.shared.refusing.store(true, SeqCst);
        self.cut();
    }

    /// Lets new connections through again.
    pub(crate) fn open(&self) {
        self.shared.refusing.store(false, SeqCst);
    }

    /// Acts on the `nth` message from now on, first is 1, that holds the pattern anywhere: in the text of a statement,
    /// in a value that is bound. An empty pattern is in every message.
    pub(crate) fn on(&self, nth: u64, pattern: impl AsRef<[u8]>, act: Act) -> Trap {
        let (sprung, trap_sprung) = oneshot::channel();
        let (trap_release, released) = oneshot::channel();
        let pattern = pattern.as_ref().to_vec();
        self.shared.rules.lock().unwrap().push_back(Rule { pattern, skip: nth - 1, act, sprung, released });
        Trap { sprung: trap_sprung, release: Some(trap_release) }
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            connections: self.shared.connections.load(SeqCst),
            messages: self.shared.messages.load(SeqCst),
            statements: self.shared.statements.load(SeqCst),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.closed.cancel();
        self.cut();
    }
}

impl Shared {
    /// The rule that this message springs.
    fn sprung_by(&self, message: &[u8]) -> Option<Rule> {
        let mut rules = self.rules.lock().unwrap();
        for (at, rule) in rules.iter_mut().enumerate() {
            let holds = rule.pattern.is_empty()
                || message.windows(rule.pattern.len()).any(|window| window == rule.pattern);
            match rule.skip {
                0 if holds => return rules.remove(at),
                _ if holds => rule.skip -= 1,
                _ => {}
            }
        }
        None
    }
}

/// One connection: what both directions know of it.
struct Connection {
    shared: Arc<Shared>,
    dead: CancellationToken,
    answers: Mutex<Answers>,
}

/// The server ends each answer with "ready for the next": one for the start, one for each request.
#[derive(Default)]
struct Answers {
    asked: u64,
    ended: u64,
    /// The answer that the client does not get.
    kept: Option<(u64, oneshot::Sender<()>)>,
}

const CANCEL: u32 = 80_877_102;
const WITH_TLS: u32 = 80_877_103;
const WITH_GSS: u32 = 80_877_104;

async fn serve(shared: Arc<Shared>, dead: CancellationToken, mut client: TcpStream) {
    // The first message has no type. A client that would rather encrypt is told no, and goes on without.
    let first = loop {
        let mut length = [0; 4];
        let Ok(_) = client.read_exact(&mut length).await else { return };
        let mut message = length.to_vec();
        message.resize(u32::from_be_bytes(length) as usize, 0);
        let Ok(_) = client.read_exact(&mut message[4..]).await else { return };
        match u32::from_be_bytes(message[4..8].try_into().unwrap()) {
            WITH_TLS | WITH_GSS => {
                let Ok(()) = client.write_all(b"N").await else { return };
            }
            CANCEL => {
                if let Ok(mut server) = TcpStream::connect(("127.0.0.1", shared.server)).await {
                    let _ = server.write_all(&message).await;
                }
                return;
            }
            _ => break message,
        }
    };
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", shared.server)).await else { return };
    let Ok(()) = server.write_all(&first).await else { return };
    shared.connections.fetch_add(1, SeqCst);
    let _ = (client.set_nodelay(true), server.set_nodelay(true));

    let answers = Mutex::new(Answers { asked: 1, ..Answers::default() });
    let connection = Connection { shared, dead: dead.clone(), answers };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let both = async {
        tokio::select! {
            biased;
            _ = requests(&connection, from_client, to_server) => {}
            _ = answers_of(&connection, from_server, to_client) => {}
        }
    };
    // Both sockets are dropped here, and both ends see it.
    dead.run_until_cancelled(both).await;
}

/// One message with a type. `None`: the connection is over.
async fn message(from: &mut OwnedReadHalf) -> Option<Vec<u8>> {
    let mut message = vec![0; 5];
    from.read_exact(&mut message).await.ok()?;
    let length = u32::from_be_bytes(message[1..5].try_into().unwrap());
    message.resize(1 + length as usize, 0);
    from.read_exact(&mut message[5..]).await.ok()?;
    Some(message)
}

async fn requests(
    connection: &Connection,
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
) -> Option<()> {
    loop {
        let message = message(&mut client).await?;
        let shared = &connection.shared;
        if message[0] != b'X' {
            shared.messages.fetch_add(1, SeqCst);
        }
        if matches!(message[0], b'Q' | b'E') {
            shared.statements.fetch_add(1, SeqCst);
        }
        if let Some(rule) = shared.sprung_by(&message) {
            match rule.act {
                Act::CutBefore => {
                    connection.dead.cancel();
                    let _ = rule.sprung.send(());
                    return None;
                }
                Act::CutBeforeAnswer => {
                    let mut answers = connection.answers.lock().unwrap();
                    answers.kept = Some((answers.asked, rule.sprung));
                }
                Act::Hold => {
                    let _ = rule.sprung.send(());
                    let _ = rule.released.await;
                }
            }
        }
        // A simple statement, a sync and a function call each end a request.
        if matches!(message[0], b'Q' | b'S' | b'F') {
            connection.answers.lock().unwrap().asked += 1;
        }
        server.write_all(&message).await.ok()?;
    }
}

async fn answers_of(
    connection: &Connection,
    mut server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
) -> Option<()> {
    loop {
        let message = message(&mut server).await?;
        let mut forward = true;
        {
            let mut answers = connection.answers.lock().unwrap();
            if let Some((before, _)) = &answers.kept {
                forward = answers.ended < *before;
            }
            if message[0] == b'Z' {
                answers.ended += 1;
                if !forward {
                    let (_, sprung) = answers.kept.take()?;
                    connection.dead.cancel();
                    let _ = sprung.send(());
                    return None;
                }
            }
        }
        if forward {
            client.write_all(&message).await.ok()?;
        }
    }
}
