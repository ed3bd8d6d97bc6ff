//! Certificates that sign themselves, and a PostgreSQL server that lets nobody in without TLS.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Server, as_postgres, run};

/// No authority: a client that is told of this certificate trusts this server alone.
const CERTIFICATE: &str = "
[req]
prompt = no
distinguished_name = name
x509_extensions = extensions
[name]
CN = counterfoil
[extensions]
basicConstraints = critical, CA:FALSE
subjectAltName = IP:127.0.0.1
";

/// Writes a key and a certificate for 127.0.0.1 into a folder, by a command that runs `openssl`. Returns both files.
pub(crate) async fn self_signed(mut openssl: Command, scratch: &Path, folder: &Path) -> (PathBuf, PathBuf) {
    let request = scratch.join("certificate.cnf");
    fs::write(&request, CERTIFICATE).unwrap();
    let (key, certificate) = (folder.join("server.key"), folder.join("server.crt"));
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]);
    run(openssl.arg("-config").arg(request).arg("-keyout").arg(&key).arg("-out").arg(&certificate)).await;
    (key, certificate)
}

impl Server {
    /// From here on a connection over TCP is made over TLS, or is refused. Returns the file of the certificate.
    pub(crate) async fn demand_tls(&self) -> PathBuf {
        let data = self.data();
        // As PostgreSQL's user, because PostgreSQL takes no key that others can read.
        let openssl = as_postgres(Path::new("openssl"));
        let (_, certificate) = self_signed(openssl, &self.folder, &data).await;
        fs::write(data.join("pg_hba.conf"), "local all all trust\nhostssl all all 127.0.0.1/32 trust\n")
            .unwrap();
        self.configure(&["ssl=on"]);
        self.stop_fast().await;
        self.start_again().await;
        certificate
    }
}
