//! The row about a takeover: the time from SIGKILL of a worker until another one has carried its run to where it was.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use counterfoil::Engine;

use crate::options::{ChildTask, Options};
use crate::place::{Database, Home, Place, url};
use crate::process::command;
use crate::report::{Finding, Values};
use crate::speed::multi_thread;
use crate::subject::{self, TENANT};

/// The lease of both workers. The default is 10 s; a takeover takes so much longer with it.
const LEASE: Duration = Duration::from_secs(3);
/// The number of recorded calls of the run.
const CALLS: u32 = 100;

pub(crate) fn killed(options: &Options) -> Result<Vec<Finding>, String> {
    let mut seconds = Vec::new();
    for _ in 0..options.rounds {
        let home = Home::of(Database::Postgres, options)?;
        let place = home.place("shared");
        let Place::Schema { name, .. } = &place else { return Err("not a server".into()) };
        let dies = Killed(begun(name)?);
        seconds.push(multi_thread().block_on(taken_over(&place, dies))? / LEASE.as_secs_f64());
    }
    let measure = format!(
        "SIGKILL of a worker until another one has resumed its run of {CALLS} calls ÷ the lease of {LEASE:?}"
    );
    let leases = Values::new("leases", seconds);
    Ok(vec![Finding::absolute("takeover", measure, leases, None).at_most(1.8, 1.4)])
}

/// A process that is killed.
struct Killed(Child);

impl Killed {
    /// Kills it by SIGKILL, and returns the instant.
    fn now(mut self) -> Result<Instant, String> {
        self.0.kill().map_err(|e| format!("the worker was not killed: {e}"))?;
        let at = Instant::now();
        self.0.wait().map_err(|e| e.to_string())?;
        Ok(at)
    }
}

impl Drop for Killed {
    /// Leaves no worker behind where the row cannot be measured.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A worker in a process of its own, whose run has made its calls.
fn begun(schema: &str) -> Result<Child, String> {
    let mut command = command("dies", &PathBuf::from(schema), CALLS);
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|e| format!("a worker: {e}"))?;
    let out = child.stdout.take().ok_or("a child without an output")?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line).map_err(|e| e.to_string())?;
    if line.starts_with("done") { Ok(child) } else { Err(format!("the worker said {line:?}")) }
}

async fn worker(place: &Place) -> Engine {
    subject::builder(place).lease(LEASE).start().await.expect("a worker")
}

async fn taken_over(place: &Place, dies: Killed) -> Result<f64, String> {
    let arrived = subject::arrival();
    let engine = worker(place).await;
    let killed = dies.now()?;
    let at = arrived.await.map_err(|e| e.to_string())?;
    engine.shutdown(Duration::ZERO).await;
    Ok(at.duration_since(killed).as_secs_f64())
}

/// The child process: begins a run that makes its calls and stays, says so, and works on until it is killed.
pub(crate) fn die(task: &ChildTask, done: impl FnOnce()) -> Result<(), Box<dyn std::error::Error>> {
    let name = task.db.to_str().ok_or("not the name of a schema")?.to_owned();
    let place = Place::Schema { url: url()?, name };
    multi_thread().block_on(async {
        let arrived = subject::arrival();
        let engine = worker(&place).await;
        engine.tenant(TENANT)?.run(subject::guarded_and_stay, task.n).start().await?;
        arrived.await?;
        done();
        std::future::pending().await
    })
}
