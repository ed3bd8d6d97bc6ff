//! HTTP byte by byte, for servers that do what no library would.

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// Reads one request: its head, and its body. `None` if the connection ends before it is whole.
pub(crate) async fn request(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
            });
            if body.len() >= length.unwrap_or(0) {
                return Some((head.to_owned(), body.to_owned()));
            }
        }
        let mut part = [0; 4096];
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => return None,
            Ok(n) => bytes.extend_from_slice(&part[..n]),
        }
    }
}
