//! A proxy in front of a server, whose connections can be cut.

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Passes bytes on in both directions, until it is told to cut.
pub(crate) struct Proxy {
    port: u16,
    cuts: watch::Sender<u32>,
}

impl Proxy {
    /// To the server at this port, on a port of its own.
    pub(crate) async fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cuts, cut) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut cut = cut.clone();
                cut.mark_unchanged();
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(("127.0.0.1", server)).await else { return };
                    tokio::select! {
                        biased;
                        _ = cut.changed() => {}
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                    }
                });
            }
        });
        Self { port, cuts }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Closes all connections that are open. New ones are taken.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}
