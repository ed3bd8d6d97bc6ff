//! The options on the command line.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// The task of this process.
pub(crate) enum Task {
    Measure(Options),
    Child(ChildTask),
}

/// The options of the measurement.
pub(crate) struct Options {
    pub(crate) rounds: usize,
    pub(crate) json: bool,
    /// True to see that a row can be measured: no figure counts.
    pub(crate) small: bool,
    only: Vec<String>,
    dir: PathBuf,
}

/// The part of a measurement that needs a process of its own.
pub(crate) struct ChildTask {
    pub(crate) name: String,
    pub(crate) db: PathBuf,
    pub(crate) n: u32,
}

impl Options {
    pub(crate) fn wants(&self, row: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| row.starts_with(wanted.as_str()))
    }

    /// The number of rows to fill in: a hundredth with `--small`.
    pub(crate) const fn number(&self, rows: u32) -> u32 {
        if self.small { rows / 100 } else { rows }
    }

    /// A new folder on the measured disk, removed when dropped.
    pub(crate) fn folder(&self) -> TempDir {
        tempfile::Builder::new()
            .prefix("figures-")
            .tempdir_in(&self.dir)
            .expect("a folder on the measured disk")
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Task, String> {
    let mut options =
        Options { rounds: 5, json: false, small: false, only: Vec::new(), dir: beside_the_binary() };
    let mut child = ChildTask { name: String::new(), db: PathBuf::new(), n: 0 };
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        let number = |text: String| text.parse::<u32>().map_err(|_| format!("{text:?} is not a number"));
        match argument.as_str() {
            "--bench" => {} // cargo adds it
            "--json" => options.json = true,
            "--small" => options.small = true,
            "--only" => options.only.push(value()?),
            "--rounds" => options.rounds = number(value()?)?.max(1) as usize,
            "--dir" => options.dir = value()?.into(),
            "--child" => child.name = value()?,
            "--db" => child.db = value()?.into(),
            "--n" => child.n = number(value()?)?,
            other => return Err(format!("unknown: {other}; see the head of benches/figures/main.rs")),
        }
    }
    if child.name.is_empty() { Ok(Task::Measure(options)) } else { Ok(Task::Child(child)) }
}

/// The folder of this binary. The target folder is on a disk; a system's temporary folder may be memory.
fn beside_the_binary() -> PathBuf {
    let binary = std::env::current_exe().expect("the path of this binary");
    binary.parent().expect("a binary is in a folder").to_owned()
}
