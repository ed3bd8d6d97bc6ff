//! `counterfoil backup`: a copy of a SQLite ledger while an engine works on it. `counterfoil restore`: such a copy takes
//! the place of a ledger, and every first send of a key is looked up until a person lifts that.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::ledger::{Whole, block_on};
use super::shown;
use crate::exec::ExecutorBuilder;
use crate::store::sqlite::backup::{Copied, Restore, backup as copy};

/// The ledger, and the file that its copy is written to.
#[derive(Args)]
pub(super) struct Backup {
    #[command(flatten)]
    whole: Whole,
    /// The new file
    file: PathBuf,
}

/// The copy, and the ledger whose place it takes.
#[derive(Args)]
pub(super) struct Replacement {
    #[command(flatten)]
    whole: Whole,
    /// The copy, which stays as it is
    file: PathBuf,
}

pub(super) fn backup(options: &Backup) -> ExitCode {
    block_on(async {
        let instead = "take `pg_dump --format=custom --schema=…`, or the server's own backup with its archive of WAL; \
                       docs/backup.md says what happens after a restore";
        let from = options.whole.database.file(instead)?;
        let Copied { as_of, bytes } = copy(from, &options.file).await?;
        let file = options.file.display().to_string();
        if options.whole.json {
            return Ok(shown::json(&json!({ "file": file, "bytes": bytes, "as_of": as_of.to_string() }))?);
        }
        Ok(shown::text(&format!("{file}: {bytes} bytes, everything that was committed at {as_of}"))?)
    })
}

pub(super) fn restore(options: &Replacement) -> ExitCode {
    block_on(async {
        let instead = "take `pg_restore` or the server's own recovery; the next engine recognises most restores, and \
                       `Engine::postgres(…).restored(…)` names one; docs/backup.md";
        let target = options.whole.database.file(instead)?;
        let restore = Restore::begin(&options.file, target).await?;
        let as_of = restore.as_of();
        ExecutorBuilder::sqlite(restore.path()).quarantine(as_of).await?;
        let replaced = restore.put_into_place()?;
        if options.whole.json {
            let (as_of, replaced) =
                (as_of.map(|at| at.to_string()), replaced.map(|path| path.display().to_string()));
            return Ok(shown::json(&json!({ "restored": target, "as_of": as_of, "replaced": replaced }))?);
        }
        let of = as_of.map_or_else(|| "of an unknown instant".to_owned(), |at| format!("of {at}"));
        shown::text(&format!("{} is the ledger {of} now", target.display()))?;
        if let Some(replaced) = replaced {
            shown::text(&format!("the former file is {}", replaced.display()))?;
        }
        let next = "Each first send of a key is looked up from now on, and asks if it cannot be. See to what the question of the tenant \
                    ~counterfoil lists; then lift it: `counterfoil lift-restored`.";
        Ok(shown::text(next)?)
    })
}
