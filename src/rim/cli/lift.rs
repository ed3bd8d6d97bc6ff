//! `counterfoil lift-restored`: ends the restored mode, in which a ledger is taken to be older than the world.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;

use crate::exec::ExecutorBuilder;

/// The ledger, and the person who ends its restored mode.
#[derive(Args)]
pub(super) struct Options {
    /// `sqlite:ledger.db`, whose engine must be shut down, or `postgres://user@host/database`
    ledger: String,
    /// The schema of a PostgreSQL database that the engines use
    #[arg(long, default_value = "counterfoil")]
    schema: String,
    /// The name of the person who lifts it
    #[arg(long)]
    by: String,
    /// The reason: what was checked
    #[arg(long)]
    because: String,
}

impl Options {
    fn builder(&self) -> Result<ExecutorBuilder, String> {
        #[cfg(feature = "sqlite")]
        if self.ledger.starts_with("sqlite:") {
            let path = crate::store::sqlite::file_named(self.ledger.as_ref()).map_err(|e| e.to_string())?;
            let found = path.exists().then(|| ExecutorBuilder::sqlite(&path));
            return found.ok_or_else(|| format!("there is no file {}", path.display()));
        }
        #[cfg(feature = "postgres")]
        if self.ledger.starts_with("postgres:") || self.ledger.starts_with("postgresql:") {
            let options = crate::store::postgres::Options {
                schema: Some(self.schema.clone()),
                ..crate::store::postgres::Options::default()
            };
            return Ok(ExecutorBuilder::postgres_with(&self.ledger, options));
        }
        Err(format!("{:?} is neither a `sqlite:` file nor a `postgres:` database", self.ledger))
    }
}

pub(super) fn run(options: &Options) -> ExitCode {
    let lifting = async {
        let lifted = options.builder()?.lift_restored(&options.by, &options.because).await;
        lifted.map_err(|error| error.to_string())
    };
    let lifted = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(lifting),
        Err(error) => Err(error.to_string()),
    };
    match lifted {
        Ok(()) => {
            let _ = writeln!(std::io::stdout(), "lifted: first sends are no longer preceded by a lookup");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
