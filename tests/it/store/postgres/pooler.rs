//! A pooler between the store and the server: a real one (`pgbouncer`), in front of the tests' server.

use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use counterfoil::store::conformance::sample::Sample;
use counterfoil::store::postgres::Postgres;
use counterfoil::store::{OpenError, Store as _, StoreError, Verdict};
use counterfoil::{Clock as _, SystemClock};
use sqlx::Connection as _;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use tempfile::TempDir;

use super::{Schema, url};

/// A pooler of its own for one test. It ends when its standard input closes, at the latest with the test's process.
struct PgBouncer {
    port: u16,
    shell: Child,
    _folder: TempDir,
}

impl PgBouncer {
    async fn start(settings: &str) -> Self {
        let server: PgConnectOptions = url().parse().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = tempfile::Builder::new().prefix("counterfoil-pgbouncer.").tempdir_in("/tmp").unwrap();
        let file = folder.path().join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host={} port={} user={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = any\nignore_startup_parameters = extra_float_digits\n{settings}\n",
            server.get_host(),
            server.get_port(),
            server.get_username(),
        );
        std::fs::write(&file, text).unwrap();
        // It refuses to run as root. The file and its folder hold no secret.
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let user = if rustix::process::getuid().is_root() { "-u nobody" } else { "" };
        let script =
            format!("PATH=$PATH:/usr/sbin; pgbouncer -q {user} \"$0\" <&- & read -r _; kill $!; wait");
        let shell = Command::new("sh")
            .args(["-c", &script])
            .arg(&file)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let pooler = Self { port, shell, _folder: folder };
        let began = SystemClock.boot();
        while began.until(SystemClock.boot()) < Duration::from_secs(30) {
            if pooler.connect().await.is_ok() {
                return pooler;
            }
            tokio::task::yield_now().await;
        }
        panic!(
            "this test needs PgBouncer, and it does not start: `apt install pgbouncer`, or `./test`, which does it"
        );
    }

    fn url(&self) -> String {
        format!("postgres://someone@127.0.0.1:{}/postgres", self.port)
    }

    async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        PgConnection::connect(&self.url()).await
    }

    /// What whoever comes next finds set on the connection that was used last.
    async fn left_behind(&self) -> (String, String, String) {
        let sql = "SELECT current_setting('search_path'), current_setting('enable_seqscan'), \
                   current_setting('statement_timeout')";
        let mut next = self.connect().await.unwrap();
        sqlx::query_as(sql).persistent(false).fetch_one(&mut next).await.unwrap()
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

fn untouched() -> (String, String, String) {
    ("\"$user\", public".to_owned(), "on".to_owned(), "0".to_owned())
}

#[tokio::test]
async fn a_pooler_that_shares_connections_between_transactions_is_refused_and_left_as_it_was() {
    for more in ["", "server_round_robin = 1", "default_pool_size = 1"] {
        let pooler = PgBouncer::start(&format!("pool_mode = transaction\n{more}")).await;
        let schema = Schema::new();
        let refused = Postgres::open_with(&pooler.url(), schema.options()).await.map(drop);
        let named = matches!(refused, Err(StoreError::Open(OpenError::TransactionPooling { .. })));
        assert!(named, "{more}: {refused:?}");
        assert_eq!(pooler.left_behind().await, untouched(), "{more}");
    }
}

#[tokio::test]
async fn a_pooler_that_keeps_a_connection_for_a_session_works_and_is_left_clean() {
    let pooler = PgBouncer::start("pool_mode = session").await;
    let schema = Schema::new();
    let store = Postgres::open_with(&pooler.url(), schema.options()).await.unwrap();
    let sample = Sample::enrol(&store, "ann").await;
    let verdicts = store.commit(&[sample.change().record(sample.record("one"))]).await.unwrap();
    assert_eq!(verdicts, [Verdict::Admitted]);
    drop(store);
    assert_eq!(pooler.left_behind().await, untouched());
}
