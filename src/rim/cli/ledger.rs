//! The ledger that a command works on, and the person who gives the command.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::exec::ExecutorBuilder;
#[cfg(all(feature = "api", feature = "guard-service"))]
use crate::flow::EngineBuilder;
use crate::flow::{Client, ClientBuilder, TenantClient};
use crate::id::IdError;
use crate::store::chain::ChainKey;
#[cfg(feature = "encryption")]
use crate::store::encryption::Keyring;

/// The end of a command: an error is printed, and the exit code is 1.
pub(super) type Done = Result<(), Box<dyn std::error::Error>>;

/// The database of a ledger.
#[derive(Args)]
pub(super) struct Database {
    /// A SQLite file, or `postgres://user@host/database`
    #[arg(long, env = "COUNTERFOIL_DB", hide_env_values = true)]
    db: String,
    /// The schema of a PostgreSQL database that the engines use
    #[arg(long, default_value = "counterfoil")]
    schema: String,
    /// The file with the keys of an encrypted ledger
    #[cfg(feature = "encryption")]
    #[arg(long, env = "COUNTERFOIL_KEYS", value_name = "FILE")]
    keys: Option<std::path::PathBuf>,
    /// The file with the secret of a ledger with a chain of evidence, or `none` if the chain has none
    #[arg(long, env = "COUNTERFOIL_CHAIN", value_name = "FILE")]
    chain: Option<String>,
}

/// The database and the tenant that a command is about.
#[derive(Args)]
pub(super) struct Ledger {
    #[command(flatten)]
    pub(super) database: Database,
    /// The tenant; the default tenant if none is named
    #[arg(long)]
    tenant: Option<String>,
    /// Print JSON instead of text
    #[arg(long)]
    pub(super) json: bool,
}

/// The database that a command about the ledger as a whole is about.
#[derive(Args)]
pub(super) struct Whole {
    #[command(flatten)]
    pub(super) database: Database,
    /// Print JSON instead of text
    #[arg(long)]
    pub(super) json: bool,
}

/// The person who gives a command, and the reason. Both are recorded.
#[derive(Args)]
pub(super) struct Author {
    /// The name of the person
    #[arg(long, env = "USER")]
    pub(super) author: String,
    /// The reason
    #[arg(long, default_value = "")]
    pub(super) reason: String,
}

impl Database {
    /// An executor on the database, from which a client or an engine is made.
    pub(super) fn executor(&self) -> Result<ExecutorBuilder, String> {
        let mut executor = self.unlocked()?;
        if let Some(chain) = &self.chain {
            executor = executor.evidence_chain(ChainKey::named(chain).map_err(|error| error.to_string())?);
        }
        #[cfg(feature = "encryption")]
        if let Some(keys) = self.keyring()? {
            return Ok(executor.encrypted(keys));
        }
        Ok(executor)
    }

    /// The keys of the file that was named.
    #[cfg(feature = "encryption")]
    pub(super) fn keyring(&self) -> Result<Option<Keyring>, String> {
        self.keys.as_ref().map(Keyring::read).transpose().map_err(|error| error.to_string())
    }

    #[cfg_attr(
        all(feature = "sqlite", feature = "postgres"),
        expect(
            clippy::unnecessary_wraps,
            reason = "a build without one of the stores refuses its databases"
        )
    )]
    fn unlocked(&self) -> Result<ExecutorBuilder, String> {
        match self.is_postgres() {
            #[cfg(feature = "postgres")]
            true => {
                let schema = Some(self.schema.clone());
                let options = crate::store::postgres::Options { schema, ..Default::default() };
                Ok(ExecutorBuilder::postgres_with(&self.db, options))
            }
            #[cfg(not(feature = "postgres"))]
            true => {
                Err(format!("this build knows no PostgreSQL database, whose schema {} is named", self.schema))
            }
            #[cfg(feature = "sqlite")]
            false => Ok(ExecutorBuilder::sqlite(&self.db)),
            #[cfg(not(feature = "sqlite"))]
            false => Err(format!("{:?} is no `postgres:` database, and this build knows no other", self.db)),
        }
    }

    /// The path of the SQLite file; of a PostgreSQL database an error with what to use instead.
    pub(super) fn file(&self, instead: &str) -> Result<&Path, String> {
        if self.is_postgres() {
            return Err(format!("this is a PostgreSQL database: {instead}"));
        }
        Ok(Path::new(&self.db))
    }

    fn is_postgres(&self) -> bool {
        self.db.starts_with("postgres:") || self.db.starts_with("postgresql:")
    }

    /// A client on the database.
    pub(super) fn client(&self) -> Result<ClientBuilder, String> {
        self.executor().map(ClientBuilder::on)
    }

    /// Carries a command out with a client, for the tenant that it is about.
    async fn attached(
        &self,
        tenant: impl FnOnce(&Client) -> Result<TenantClient, IdError>,
        command: impl AsyncFnOnce(TenantClient) -> Done,
    ) -> Done {
        let client = self.client()?.open().await?;
        let done = match tenant(&client) {
            Ok(tenant) => command(tenant).await,
            Err(error) => Err(error.into()),
        };
        client.shutdown(Duration::from_secs(5)).await;
        done
    }

    /// An engine on the database.
    #[cfg(all(feature = "api", feature = "guard-service"))]
    pub(super) fn engine(&self) -> Result<EngineBuilder, String> {
        self.executor().map(EngineBuilder::on)
    }
}

impl Ledger {
    /// Runs a command beside the engines that work on the database.
    pub(super) fn run(&self, command: impl AsyncFnOnce(TenantClient) -> Done) -> ExitCode {
        block_on(self.attached(command))
    }

    async fn attached(&self, command: impl AsyncFnOnce(TenantClient) -> Done) -> Done {
        let of = |client: &Client| match &self.tenant {
            Some(name) => client.tenant(name),
            None => Ok(client.default_tenant()),
        };
        self.database.attached(of, command).await
    }
}

impl Whole {
    /// Runs a command beside the engines that work on the database.
    pub(super) fn run(&self, command: impl AsyncFnOnce(TenantClient) -> Done) -> ExitCode {
        block_on(self.database.attached(|client| Ok(client.default_tenant()), command))
    }
}

/// Carries a command out, and prints its error.
pub(super) fn block_on(command: impl Future<Output = Done>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", crate::page::harmless::harmless(&error.to_string()));
            ExitCode::FAILURE
        }
    }
}
