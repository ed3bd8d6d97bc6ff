//! A proxy that speaks TLS in front of a plain server, with a certificate that it has signed itself.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::own_server::tls::self_signed;

/// The proxy: a client that trusts its certificate reaches the server through it, and no other client does.
pub(crate) struct TlsProxy {
    folder: TempDir,
    /// The URL of the proxy, without a path.
    pub(crate) url: String,
}

impl TlsProxy {
    /// Stands in front of the server at this address, such as `127.0.0.1:8080`.
    pub(crate) async fn of(server: String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (key, certificate) = self_signed(Command::new("openssl"), folder.path(), folder.path()).await;
        let certificate = CertificateDer::from_pem_file(certificate).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], PrivateKeyDer::from_pem_file(key).unwrap())
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        tokio::spawn(accept(listener, TlsAcceptor::from(Arc::new(config)), server));
        Self { folder, url }
    }

    /// The file of the certificate, as PEM.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.path().join("server.crt")
    }
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, server: String) {
    while let Ok((client, _)) = listener.accept().await {
        let (tls, server) = (tls.clone(), server.clone());
        tokio::spawn(async move {
            // A client that does not trust the certificate breaks off here, and the server sees nothing of it.
            let Ok(mut client) = tls.accept(client).await else { return };
            let mut server = TcpStream::connect(server).await.unwrap();
            let _ = copy_bidirectional(&mut client, &mut server).await;
        });
    }
}
