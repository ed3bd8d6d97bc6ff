//! The child processes: work whose whole process is measured, from outside or by itself.

use std::error::Error;
use std::io::Write as _;

use counterfoil::flow::{TenantClient, WorkflowFn};

use crate::options::ChildTask;
use crate::speed::multi_thread;
use crate::waiting::{self, For};
use crate::{raw, subject};

/// Runs the task. Writes to standard output when its work is done and durable, and how much memory the process has
/// then.
pub(crate) fn run(task: &ChildTask) -> Result<(), Box<dyn Error>> {
    match task.name.as_str() {
        "guarded" => in_engine(task, 1),
        "guarded-runs" => in_engine(task, 1000),
        "plain" => in_run(task, subject::plain),
        "asynchronous" => in_run(task, subject::asynchronous),
        "waiting" => waiting(task),
        #[cfg(feature = "postgres")]
        "dies" => crate::takeover::die(task, || done().expect("an output")),
        #[cfg(feature = "mcp")]
        "mcp-server" => crate::gateway::server(),
        "raw-inserts" => multi_thread().block_on(async {
            let mut raw = raw::open(&task.db.clone().into()).await;
            raw.inserts(task.n).await;
            done()?;
            raw.close().await;
            Ok(())
        }),
        other => Err(format!("unknown child: {other}").into()),
    }
}

/// Runs one workflow of `n` steps.
fn in_run(task: &ChildTask, workflow: impl WorkflowFn<u32, usize>) -> Result<(), Box<dyn Error>> {
    multi_thread().block_on(async {
        let engine = subject::engine(&task.db.clone().into()).await;
        engine.tenant(subject::TENANT)?.run(workflow, task.n).await?;
        done()?;
        engine.shutdown(subject::DRAIN).await;
        Ok(())
    })
}

/// Runs `runs` workflows at once, each with `n` guarded calls.
fn in_engine(task: &ChildTask, runs: usize) -> Result<(), Box<dyn Error>> {
    multi_thread().block_on(async {
        let engine = subject::engine(&task.db.clone().into()).await;
        subject::guarded_runs(&engine, runs, task.n).await;
        done()?;
        engine.shutdown(subject::DRAIN).await;
        Ok(())
    })
}

/// Leaves `n` waiting runs, and reports the memory that they added after as many runs before them: by then caches and
/// queues have reached their size.
fn waiting(task: &ChildTask) -> Result<(), Box<dyn Error>> {
    const AT_ONCE: u32 = 5000;
    let park = async |tenant: &TenantClient, n: u32| {
        for slice in 0..n / AT_ONCE {
            let wait = if slice % 2 == 0 { For::Signal } else { For::Timer };
            waiting::park(tenant, AT_ONCE as usize, wait).await;
        }
    };
    multi_thread().block_on(async {
        let engine = subject::engine(&task.db.clone().into()).await;
        let tenant = engine.tenant(subject::TENANT)?;
        park(&tenant, task.n).await;
        let before = resident_kb()?;
        park(&tenant, task.n).await;
        said(resident_kb()?.saturating_sub(before))?;
        engine.shutdown(subject::DRAIN).await;
        Ok(())
    })
}

fn done() -> Result<(), Box<dyn Error>> {
    said(resident_kb()?)
}

fn said(kb: u64) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "done {kb}")?;
    out.flush()?;
    Ok(())
}

fn resident_kb() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
