//! What an HTTP request comes back with, as a tool says it: `?` sorts a request without an answer, and `unless_ok` an answer that is
//! an error.

use std::time::Duration;

use counterfoil::ledger::ErrorKind;
use counterfoil::tool::ToolError;
use counterfoil::types::reqwest::Client;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use crate::wire::request;

/// Asks a server that answers the one request with these bytes, and then closes the connection. Without an answer it keeps silent.
async fn asked(answer: Option<&'static str>) -> Result<String, ToolError> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://ann:secret@{}/refunds", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        request(&mut stream).await.unwrap();
        match answer {
            Some(answer) => stream.write_all(answer.as_bytes()).await.unwrap(),
            None => std::future::pending().await,
        }
    });
    let client = Client::builder().timeout(Duration::from_millis(500)).build()?;
    let answered = async {
        let sent = client.post(url).body("{}").send().await?;
        Ok(ToolError::unless_ok(sent).await?.text().await?)
    };
    let answered = answered.await;
    serving.abort();
    answered
}

#[tokio::test]
async fn an_answer_is_given_back_and_an_error_is_sorted_by_its_status() {
    let ok = asked(Some("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone")).await;
    assert_eq!(ok.unwrap(), "done");
    let busy = "HTTP/1.1 503 Busy\r\nretry-after: 7\r\ncontent-length: 13\r\n\r\ntoo much work";
    let busy = asked(Some(busy)).await.unwrap_err();
    assert_eq!((busy.kind, busy.retry_after), (ErrorKind::Server, Some(Duration::from_secs(7))));
    assert!(busy.message.contains("HTTP 503") && busy.message.contains("too much work"), "{busy}");
    let cut = asked(Some("HTTP/1.1 422 No\r\ncontent-length: 400\r\n\r\nno such order")).await.unwrap_err();
    assert_eq!(cut.kind, ErrorKind::Validation, "the status is known, whatever becomes of the text: {cut}");
}

#[tokio::test]
async fn a_request_without_an_answer_says_what_may_have_reached_the_provider() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = format!("http://ann:secret@{}/", listener.local_addr().unwrap());
    drop(listener);
    let unreachable = ToolError::from(Client::new().get(nobody).send().await.unwrap_err());
    let unsendable = ToolError::from(Client::new().get("http://").send().await.unwrap_err());
    let silent = asked(None).await.unwrap_err();
    let cut_off = asked(Some("")).await.unwrap_err();
    let in_the_middle = asked(Some("HTTP/1.1 200 OK\r\ncontent-length: 400\r\n\r\nha")).await.unwrap_err();
    let kinds = [&unreachable, &unsendable, &silent, &cut_off, &in_the_middle].map(|error| error.kind);
    let [sent, broken] = [ErrorKind::TimeoutDuringEffect, ErrorKind::Disconnected];
    assert_eq!(kinds, [ErrorKind::Unreachable, ErrorKind::Validation, sent, broken, broken]);
    for error in [unreachable, silent, cut_off, in_the_middle] {
        assert!(!error.message.contains("secret"), "{error}");
    }
}

/// A tool that speaks a protocol of its own over TCP, with `?` alone.
async fn sent_raw(address: std::net::SocketAddr) -> Result<(), ToolError> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    stream.write_all(b"refund\n").await?;
    tokio::io::AsyncReadExt::read_u8(&mut stream).await?; // the acknowledgement
    Ok(())
}

#[tokio::test]
async fn an_io_error_is_ambiguous_unless_the_connection_was_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let cut_off = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::io::AsyncReadExt::read_u8(&mut stream).await.unwrap(); // it has begun to read, and dies
    });
    assert_eq!(sent_raw(address).await.unwrap_err().kind, ErrorKind::Unknown);
    cut_off.await.unwrap();
    let refused = sent_raw(address).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unreachable, "{refused}");
    let timed_out = std::io::Error::from(std::io::ErrorKind::TimedOut);
    assert_eq!(ToolError::from(timed_out).kind, ErrorKind::TimeoutDuringEffect);
}
