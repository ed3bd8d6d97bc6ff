//! The command line: a file for each command. The program that calls [`main`] names its workflows, because the
//! library knows none.

#[cfg(feature = "policy")]
mod check;
mod guarantees;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod lift;
#[cfg(all(feature = "mcp", feature = "sqlite"))]
mod mcp;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod move_;
mod simulate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::sim::{Options, Suite};

/// Durable workflows for processes that may die anywhere: no silent duplicate, no silent loss.
#[derive(Parser)]
#[command(name = "counterfoil", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Crashes workflows in a simulated world wherever a process can die, and counts their effects
    Simulate(Options),
    /// Reports the guarantees of each call of the workflows, without running any
    Guarantees(guarantees::Options),
    /// Fails on unsafe settings in a policy of the doors, or in the guarantee report of an application
    #[cfg(feature = "policy")]
    Check(check::Options),
    /// Stands between an MCP client and its servers, and records each call that writes
    #[cfg(all(feature = "mcp", feature = "sqlite"))]
    Mcp(mcp::Options),
    /// Moves everything from a SQLite file to an empty PostgreSQL database, checks it, and gives the file up
    #[cfg(all(feature = "sqlite", feature = "postgres"))]
    Move(move_::Options),
    /// Ends the restored mode of a ledger: first sends of a key are no longer preceded by a lookup
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    LiftRestored(lift::Options),
}

/// Runs the command that the arguments of this process name, for a program that knows these workflows.
pub fn main(suite: Suite) -> ExitCode {
    match Arguments::parse().command {
        Command::Simulate(options) => suite.command("counterfoil simulate").run(&options),
        Command::Guarantees(options) => guarantees::run(&suite, &options),
        #[cfg(feature = "policy")]
        Command::Check(options) => check::run(&options),
        #[cfg(all(feature = "mcp", feature = "sqlite"))]
        Command::Mcp(options) => mcp::run(&options),
        #[cfg(all(feature = "sqlite", feature = "postgres"))]
        Command::Move(options) => move_::run(options),
        #[cfg(any(feature = "sqlite", feature = "postgres"))]
        Command::LiftRestored(options) => lift::run(&options),
    }
}
