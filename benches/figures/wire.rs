//! A server on a port of this machine, and an HTTP client that does no more than it must, so that the server is measured.

use std::net::SocketAddr;

use axum::Router;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Serves until this program ends.
pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// A connection to a server on this machine.
pub(crate) struct Wire {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Wire {
    pub(crate) async fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("the server");
        stream.set_nodelay(true).expect("a socket");
        Self { stream, answer: vec![0; 4096] }
    }

    /// Posts a JSON text with one header more, and returns the body of the answer.
    pub(crate) async fn post(&mut self, path: &str, header: &str, body: &str) -> &[u8] {
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{header}\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        self.stream.write_all(request.as_bytes()).await.expect("a connection");
        let mut read = 0;
        let from = loop {
            let more = self.stream.read(&mut self.answer[read..]).await.expect("a connection");
            assert!(more > 0, "the server has hung up");
            read += more;
            if let Some(from) = body_of(&self.answer[..read]) {
                break from;
            }
        };
        let status = &self.answer[9..12];
        assert!(status == b"200" || status == b"201", "{}", String::from_utf8_lossy(&self.answer[..read]));
        &self.answer[from..read]
    }
}

/// The place of the body, if the answer has its headers and a body of the announced length.
fn body_of(answer: &[u8]) -> Option<usize> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    (length.parse() == Ok(body.len())).then_some(head.len() + 4)
}
