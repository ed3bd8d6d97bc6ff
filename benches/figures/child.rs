//! What a child process does: work whose whole process is measured from outside.

use std::error::Error;
use std::io::Write as _;

use counterfoil::flow::Workflow;

use crate::options::ChildTask;
use crate::speed::multi_thread;
use crate::{raw, subject};

/// Says on its standard output when its work is done and durable, and how much memory it has by then.
pub(crate) fn run(task: &ChildTask) -> Result<(), Box<dyn Error>> {
    match task.name.as_str() {
        "guarded" => in_engine(task, 1),
        "guarded-runs" => in_engine(task, 1000),
        "plain" => in_run(task, subject::plain),
        "asynchronous" => in_run(task, subject::asynchronous),
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

/// One run of `n` steps.
fn in_run(task: &ChildTask, workflow: impl Workflow<u32, usize>) -> Result<(), Box<dyn Error>> {
    multi_thread().block_on(async {
        let engine = subject::engine(&task.db.clone().into()).await;
        engine.tenant(subject::TENANT)?.run(workflow, task.n).await?;
        done()?;
        engine.shutdown(subject::DRAIN).await;
        Ok(())
    })
}

/// So many runs at once, each of `n` guarded calls.
fn in_engine(task: &ChildTask, runs: usize) -> Result<(), Box<dyn Error>> {
    multi_thread().block_on(async {
        let engine = subject::engine(&task.db.clone().into()).await;
        subject::guarded_runs(&engine, runs, task.n).await;
        done()?;
        engine.shutdown(subject::DRAIN).await;
        Ok(())
    })
}

fn done() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "done {}", resident_kb()?)?;
    out.flush()?;
    Ok(())
}

fn resident_kb() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
