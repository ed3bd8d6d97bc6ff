//! Rows about a whole process: its start, its memory, its system calls.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::options::Options;
use crate::report::{Finding, Values, median};

/// The number of starts per round; their median counts.
const STARTS: usize = 5;

/// The report of a child process.
pub(crate) struct Done {
    ms: f64,
    /// The memory of the child, in MB: all that it has, or how much more than before its work.
    pub(crate) memory_mb: f64,
}

pub(crate) fn start(options: &Options) -> Result<Vec<Finding>, String> {
    let folder = options.folder();
    let [ours, raws] = ["existing.db", "raw.db"].map(|name| folder.path().join(name));
    let [mut existing, mut new, mut raw] = [const { Vec::new() }; 3];
    for round in 0..=options.rounds {
        let [mut existing_ms, mut new_ms, mut raw_ms] = [const { Vec::new() }; 3];
        for _ in 0..STARTS {
            existing_ms.push(child("guarded", &ours, 1)?.ms);
            raw_ms.push(child("raw-inserts", &raws, 1)?.ms);
            // The file has a folder of its own, so that removing it is no part of the next start.
            new_ms.push(child("guarded", &options.folder().path().join("new.db"), 1)?.ms);
        }
        if round > 0 {
            existing.push(median(&existing_ms));
            new.push(median(&new_ms));
            raw.push(median(&raw_ms));
        }
    }
    let raw = || Some(Values::new("ms", raw.clone()));
    let measure = "process start to first run finished, existing database".to_owned();
    let existing = Finding::absolute("start", measure, Values::new("ms", existing), raw()).at_most(12.0, 6.0);
    let measure = "process start to first run finished, new database".to_owned();
    let new = Finding::absolute("start", measure, Values::new("ms", new), raw()).at_most(25.0, 12.0);
    Ok(vec![existing, new])
}

pub(crate) fn memory(options: &Options) -> Result<Vec<Finding>, String> {
    let (mut subject, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let folder = options.folder();
        subject.push(child("guarded-runs", &folder.path().join("runs.db"), 5)?.memory_mb);
        raw.push(child("raw-inserts", &folder.path().join("raw.db"), 5000)?.memory_mb);
    }
    let measure = "memory (RSS) after 1000 runs of 5 calls".to_owned();
    let raw = Some(Values::new("MB", raw));
    Ok(vec![Finding::absolute("memory", measure, Values::new("MB", subject), raw).at_most(20.0, 14.0)])
}

/// Measures the syncs of a thousand calls: those of a process that makes a thousand, less those of one that makes none.
pub(crate) fn syncs(options: &Options) -> Result<Vec<Finding>, String> {
    const CALLS: u32 = 1000;
    let (mut subject, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        for (child, counted) in [("guarded", &mut subject), ("raw-inserts", &mut raw)] {
            let (some, none) = (traced(options, child, CALLS)?, traced(options, child, 0)?);
            counted.push((some - none) / f64::from(CALLS));
        }
    }
    let measure = "syncs per guarded call in a row, 1000 calls, checkpoints included".to_owned();
    let raw = Some(Values::new("a row", raw));
    Ok(vec![Finding::absolute("syncs", measure, Values::new("a call", subject), raw).at_most(1.03, 1.02)])
}

/// Runs a child until its work is done, and then to its end.
pub(crate) fn child(name: &str, db: &Path, n: u32) -> Result<Done, String> {
    let start = Instant::now();
    let mut child =
        command(name, db, n).stdout(Stdio::piped()).spawn().map_err(|e| format!("{name}: {e}"))?;
    let mut line = String::new();
    let out = child.stdout.take().ok_or("a child without an output")?;
    BufReader::new(out).read_line(&mut line).map_err(|e| format!("{name}: {e}"))?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    let status = child.wait().map_err(|e| format!("{name}: {e}"))?;
    let kb: Option<f64> = line.strip_prefix("done ").and_then(|kb| kb.trim().parse().ok());
    match kb {
        Some(kb) if status.success() => Ok(Done { ms, memory_mb: kb / 1024.0 }),
        _ => Err(format!("{name}: ended with {status} after {line:?}")),
    }
}

pub(crate) fn command(name: &str, db: &Path, n: u32) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path of this binary"));
    command.args(["--child", name, "--n", &n.to_string(), "--db"]).arg(db);
    command
}

/// The number of calls of fsync or fdatasync by a child.
fn traced(options: &Options, name: &str, n: u32) -> Result<f64, String> {
    let folder = options.folder();
    let summary = folder.path().join("strace");
    let child = command(name, &folder.path().join("traced.db"), n);
    let status = Command::new("strace")
        .args(["-f", "-c", "-e", "trace=fsync,fdatasync", "-o"])
        .arg(&summary)
        .arg(child.get_program())
        .args(child.get_args())
        .stdout(Stdio::null())
        .status()
        .map_err(|e| format!("strace missing ({e}): install it, as in `apt-get install strace`"))?;
    if !status.success() {
        return Err(format!("strace ended with {status}"));
    }
    let summary = std::fs::read_to_string(summary).map_err(|e| e.to_string())?;
    Ok(count(&summary))
}

/// The sum of the fourth column of the lines that end in the name of a call.
fn count(summary: &str) -> f64 {
    let lines = summary.lines().filter(|line| line.ends_with("fsync") || line.ends_with("fdatasync"));
    lines.filter_map(|line| line.split_whitespace().nth(3)?.parse::<f64>().ok()).sum()
}
