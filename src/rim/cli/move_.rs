//! `counterfoil move`: from the embedded store to the shared one.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::store::postgres::Options as Postgres;
use crate::store::transfer::{MoveError, Moved, Progress, move_all};

/// The source and the target of a move.
#[derive(Args)]
pub(super) struct Options {
    /// The SQLite file of the ledger: `sqlite:ledger.db`
    #[arg(long, value_parser = sqlite_path)]
    from: PathBuf,
    /// The database to fill, which must be empty: `postgres://user@host/database`
    #[arg(long)]
    to: String,
    /// The schema in that database that the engines use
    #[arg(long, default_value = "counterfoil")]
    schema: String,
    /// Print one JSON object a line instead of text
    #[arg(long)]
    json: bool,
}

fn sqlite_path(text: &str) -> Result<PathBuf, String> {
    if !text.starts_with("sqlite:") {
        return Err("a move is from a `sqlite:` file to a `postgres:` database".into());
    }
    crate::store::sqlite::file_named(text.as_ref()).map_err(|error| error.to_string())
}

pub(super) fn run(options: Options) -> ExitCode {
    let moving = async {
        let Options { from, to, schema, json } = options;
        let database = Postgres { schema: Some(schema), ..Postgres::default() };
        let told = |progress: Progress| if json { tell_json(progress) } else { tell(progress) };
        tell_end(move_all(from, &to, database, told).await, json)
    };
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(moving),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the progress: on a terminal a counting line for each table; elsewhere a line for each finished table.
fn tell(Progress { stage, table, rows, of }: Progress) {
    let line = format!("{:<6} {table:<12} {rows:>10} of {of}", stage.name());
    let mut out = std::io::stdout();
    // The output may be closed, and the move continues all the same.
    let _ = match (out.is_terminal(), rows >= of) {
        (true, false) => write!(out, "\r{line}").and_then(|()| out.flush()),
        (true, true) => writeln!(out, "\r{line}"),
        (false, true) => writeln!(out, "{line}"),
        (false, false) => Ok(()),
    };
}

fn tell_json(Progress { stage, table, rows, of }: Progress) {
    let line = json!({ "stage": stage.name(), "table": table, "rows": rows, "of": of });
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn tell_end(moved: Result<Moved, MoveError>, json: bool) -> ExitCode {
    match moved {
        Ok(moved) if json => {
            let tables: Vec<_> = moved
                .tables
                .iter()
                .map(|table| json!({ "table": table.table, "rows": table.rows, "digest": table.digest }))
                .collect();
            let _ = writeln!(std::io::stdout(), "{}", json!({ "moved": tables }));
            ExitCode::SUCCESS
        }
        Ok(moved) => {
            let rows: u64 = moved.tables.iter().map(|table| table.rows).sum();
            let _ = writeln!(
                std::io::stdout(),
                "moved: {rows} rows, the same on both sides by SHA-256. Start the engine on the database; the file is \
                 given up."
            );
            ExitCode::SUCCESS
        }
        Err(error) if json => {
            let _ = writeln!(std::io::stdout(), "{}", json!({ "error": error.to_string() }));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
