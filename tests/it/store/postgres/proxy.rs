//! A TCP proxy in front of the server, which loses what it is told to lose.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// A commit as it goes over the wire: it is the whole of its message. (READ COMMITTED is not meant.)
pub(super) const COMMIT: &str = "COMMIT\0";

/// What is lost of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// The connection is cut before the server has it.
    Request,
    /// The connection is cut when the server has answered it.
    Answer,
    /// Nothing comes through any more, and nobody is told.
    Silence,
}

/// Stands between a store and the server.
#[derive(Clone)]
pub(super) struct Proxy {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// What to lose of the next request with these words in it. Once.
    loss: Mutex<Option<(Loss, Vec<u8>)>>,
    lost: AtomicUsize,
    accepted: AtomicUsize,
    refuses: AtomicBool,
    /// Everything that the server said, for each connection.
    heard: Mutex<Vec<Vec<u8>>>,
    cut: Notify,
}

impl Proxy {
    pub(super) async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self { port: listener.local_addr().unwrap().port(), state: Arc::default() };
        let state = proxy.state.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if state.refuses.load(Ordering::SeqCst) {
                    continue; // dropped, and with it the connection
                }
                state.accepted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(state.clone().carry(client));
            }
        });
        proxy
    }

    /// The server's URL, by way of this proxy.
    pub(super) fn url(&self) -> String {
        url_of(&[self])
    }

    /// Loses the next request that holds these words, or its answer.
    pub(super) fn lose(&self, loss: Loss, words: &str) {
        *self.state.loss.lock().unwrap() = Some((loss, words.as_bytes().to_vec()));
    }

    /// How much was lost so far.
    pub(super) fn lost(&self) -> usize {
        self.state.lost.load(Ordering::SeqCst)
    }

    /// How many connections there have been.
    pub(super) fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::SeqCst)
    }

    /// Cuts all connections, and lets none through from now on, or lets them through again.
    pub(super) fn refuse(&self, refuses: bool) {
        self.state.refuses.store(refuses, Ordering::SeqCst);
        if refuses {
            self.state.cut.notify_waiters();
        }
    }

    /// Cuts all connections that there are.
    pub(super) fn cut(&self) {
        self.state.cut.notify_waiters();
    }

    /// Everything that the server said, for each connection.
    pub(super) fn heard(&self) -> Vec<Vec<u8>> {
        self.state.heard.lock().unwrap().clone()
    }
}

/// A URL that names several proxies as hosts.
pub(super) fn url_of(proxies: &[&Proxy]) -> String {
    let server: PgConnectOptions = super::url().parse().unwrap();
    let hosts: Vec<_> = proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port)).collect();
    let url = super::url();
    let (scheme, rest) = url.split_once("://").unwrap();
    let user = rest.rfind('@').map_or("", |at| &rest[..=at]);
    let database = server.get_database().unwrap_or("postgres");
    format!("{scheme}://{user}{}/{database}?sslmode=disable", hosts.join(","))
}

impl State {
    async fn carry(self: Arc<Self>, client: TcpStream) {
        let server: PgConnectOptions = super::url().parse().unwrap();
        let Ok(server) = TcpStream::connect((server.get_host(), server.get_port())).await else { return };
        let which = {
            let mut heard = self.heard.lock().unwrap();
            heard.push(Vec::new());
            heard.len() - 1
        };
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        let (mute, silent) = (AtomicBool::new(false), AtomicBool::new(false));
        let requests = async {
            let mut buffer = vec![0; 65536];
            while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
                let request = &buffer[..length];
                match self.loss_of(request) {
                    Some(Loss::Request) => return,
                    Some(Loss::Answer) => mute.store(true, Ordering::SeqCst),
                    Some(Loss::Silence) => silent.store(true, Ordering::SeqCst),
                    None => {}
                }
                if !silent.load(Ordering::SeqCst) && to_server.write_all(request).await.is_err() {
                    return;
                }
            }
        };
        let answers = async {
            let mut buffer = vec![0; 65536];
            while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
                if mute.load(Ordering::SeqCst) {
                    return;
                }
                self.heard.lock().unwrap()[which].extend(&buffer[..length]);
                if to_client.write_all(&buffer[..length]).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = requests => {}
            () = answers => {}
            () = self.cut.notified() => {}
        }
    }

    fn loss_of(&self, request: &[u8]) -> Option<Loss> {
        let mut loss = self.loss.lock().unwrap();
        let (what, words) = loss.as_ref()?;
        let what = request.windows(words.len()).any(|part| part == words.as_slice()).then_some(*what)?;
        *loss = None;
        self.lost.fetch_add(1, Ordering::SeqCst);
        Some(what)
    }
}
