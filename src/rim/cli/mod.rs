//! The command line: a file for each command. The program that calls [`main`] names its workflows, because the
//! library knows none.

mod approvals;
#[cfg(feature = "sqlite")]
mod backup;
#[cfg(feature = "policy")]
mod check;
mod commands;
mod doctor;
mod erase;
mod evidence;
mod export;
mod guarantees;
mod ledger;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod lift;
#[cfg(feature = "api")]
mod listen;
#[cfg(all(feature = "mcp", feature = "sqlite"))]
mod mcp;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
mod move_;
mod outbox;
#[cfg(feature = "api")]
mod probes;
mod questions;
mod records;
mod retention;
mod runs;
#[cfg(feature = "schedule")]
mod schedules;
#[cfg(all(feature = "api", feature = "prometheus"))]
mod scrape;
#[cfg(feature = "api")]
mod serve;
mod shown;
mod simulate;
#[cfg(feature = "api")]
mod tokens;
mod workers;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

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
    /// Lists the runs of a tenant, the oldest first
    Runs(runs::Options),
    /// Shows a run: its state, steps and calls
    Run(runs::One),
    /// Exports runs as lines of JSON: their turns, and the evidence of their calls
    Export(export::Options),
    /// Lists the open questions of a tenant, the oldest first
    Questions(questions::Options),
    /// Shows a question with the answers that it takes
    Question(questions::One),
    /// Answers a question
    Answer(questions::Answer),
    /// Lists what waits for the approval of people
    Approvals(approvals::Options),
    /// Shows the content that is to be approved
    Approval(approvals::One),
    /// Approves a version of what waits
    Approve(approvals::Decision),
    /// Rejects a version of what waits
    Reject(approvals::Decision),
    /// Starts a run by the name of its workflow
    Start(commands::Start),
    /// Sends a signal to a run
    Signal(commands::Signal),
    /// Pauses a run where it is durable
    Pause(commands::Options),
    /// Resumes a run that was paused
    Resume(commands::Options),
    /// Cancels a run: its effects are undone or asked about
    Cancel(commands::Options),
    /// Begins a run that has ended once more
    Retry(commands::Options),
    /// Begins a new run with what a run has done
    Fork(commands::Options),
    /// Tells everything that the ledger knows about a call
    Evidence(evidence::Options),
    /// Lists the calls of a tenant, by the beginning of their keys
    Records(records::Options),
    /// Shows a call: its state, attempts, and request
    Record(records::One),
    /// Lists the queues in which runs wait or have a place
    Queues(workers::Options),
    /// Lists the schedules of a tenant
    #[cfg(feature = "schedule")]
    Schedules(schedules::Options),
    /// Lists the workers, and those whose work is still to be taken over
    Workers(workers::Options),
    /// Lists, releases and leaves out events that could not be published
    #[command(subcommand)]
    Outbox(outbox::Command),
    /// Counts what is kept for a time, and what of it is over
    Retention(retention::Options),
    /// Names what is wrong with a ledger, and what to do about it
    Doctor(doctor::Options),
    /// Erases a tenant, or the content of one of its calls
    Erase(erase::Options),
    /// Copies a SQLite ledger to a new file, also while an engine works on it
    #[cfg(feature = "sqlite")]
    Backup(backup::Backup),
    /// Puts a copy into the place of a SQLite ledger, and has every first send looked up until that is lifted
    #[cfg(feature = "sqlite")]
    Restore(backup::Replacement),
    /// Serves the HTTP API, until the process is told to end
    #[cfg(feature = "api")]
    Serve(serve::Options),
    /// Makes, lists and revokes the tokens of the HTTP API
    #[cfg(feature = "api")]
    #[command(subcommand)]
    Token(tokens::Command),
    /// Prints the manual page of the program, or of one of its commands
    Man {
        /// The command
        command: Option<String>,
    },
    /// Prints the completions of these commands for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// A value that an argument names as JSON.
fn json_value(text: &str) -> Result<serde_json::Value, String> {
    serde_json::from_str(text)
        .map_err(|error| format!("this is no JSON: {error}; a text needs quotes of its own"))
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
        Command::Runs(options) => runs::list(&options),
        Command::Run(options) => runs::show(&options),
        Command::Export(options) => export::run(&options),
        Command::Questions(options) => questions::list(&options),
        Command::Question(options) => questions::show(&options),
        Command::Answer(options) => questions::answer(&options),
        Command::Approvals(options) => approvals::list(&options),
        Command::Approval(options) => approvals::show(&options),
        Command::Approve(options) => approvals::approve(&options),
        Command::Reject(options) => approvals::reject(&options),
        Command::Start(options) => commands::start(&options),
        Command::Signal(options) => commands::signal(&options),
        Command::Pause(options) => commands::pause(&options),
        Command::Resume(options) => commands::resume(&options),
        Command::Cancel(options) => commands::cancel(&options),
        Command::Retry(options) => commands::retry(&options),
        Command::Fork(options) => commands::fork(&options),
        Command::Evidence(options) => evidence::run(&options),
        Command::Records(options) => records::list(&options),
        Command::Record(options) => records::show(&options),
        Command::Queues(options) => workers::queues(&options),
        #[cfg(feature = "schedule")]
        Command::Schedules(options) => schedules::list(&options),
        Command::Workers(options) => workers::workers(&options),
        Command::Outbox(command) => outbox::run(&command),
        Command::Retention(options) => retention::show(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Erase(options) => erase::run(&options),
        #[cfg(feature = "sqlite")]
        Command::Backup(options) => backup::backup(&options),
        #[cfg(feature = "sqlite")]
        Command::Restore(options) => backup::restore(&options),
        #[cfg(feature = "api")]
        Command::Serve(options) => serve::run(&options),
        #[cfg(feature = "api")]
        Command::Token(command) => tokens::run(&command),
        Command::Man { command } => manual(command.as_deref()),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Arguments::command(), "counterfoil", &mut std::io::stdout());
            ExitCode::SUCCESS
        }
    }
}

/// Prints a manual page.
fn manual(command: Option<&str>) -> ExitCode {
    let mut program = Arguments::command();
    program.build(); // each command learns its whole name
    let page = match command {
        None => Some(program),
        Some(name) => program.find_subcommand(name).cloned(),
    };
    let Some(page) = page else {
        eprintln!("error: there is no such command");
        return ExitCode::from(2);
    };
    match clap_mangen::Man::new(page).render(&mut std::io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
