//! One run of a process, in a process group of its own. No process of the group outlives the run: the group is killed when its
//! first process has ended, when the time is over, and when nobody waits for the run any more.

use std::io;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use futures_util::future::{Either, join3, select};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};

use super::template::Invocation;
use crate::clock::{Clock as _, SystemClock};
use crate::ledger::ErrorKind;
use crate::tool::ToolError;

/// The maximum number of bytes of the standard error that go into the record.
const TEXT: usize = 500;
/// The time for which output is still read after the group has ended. A process that has left the group may hold it open.
const GRACE: Duration = Duration::from_secs(1);

/// The limits of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The time after which the process group is killed.
    pub(super) time: Option<Duration>,
    /// The maximum size of the standard output in bytes.
    pub(super) output: usize,
}

/// The end of a run.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) output: Vec<u8>,
    /// False if the output is more than its limit. The rest was read, and is lost.
    pub(super) whole: bool,
    /// The beginning of the standard error.
    pub(super) told: String,
}

/// Runs a process to its end.
///
/// # Errors
/// [`ToolError`]: the process was not started, or was killed because its time was over.
pub(super) async fn run(invocation: Invocation, limits: Limits) -> Result<Ended, ToolError> {
    let Invocation { program, args, env, dir, stdin } = invocation;
    let mut command = Command::new(&program);
    command.args(args).env_clear().envs(env).process_group(0).kill_on_drop(true);
    command.stdin(if stdin.is_empty() { Stdio::null() } else { Stdio::piped() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(dir) = dir {
        command.current_dir(dir);
    }
    let child = command.spawn().map_err(|error| not_started(&program, &error))?;
    let mut group = Group::of(child);
    let (input, output, errors) =
        (group.child.stdin.take(), group.child.stdout.take(), group.child.stderr.take());
    let (mut kept, mut told) = (Kept::at_most(limits.output), Kept::at_most(TEXT));
    let in_time = {
        let talk = pin!(join3(feed(input, &stdin), kept.fill(output), told.fill(errors)));
        let leader = pin!(group.leader_ended());
        let over = async {
            match select(talk, leader).await {
                Either::Left((_, leader)) => leader.await,
                Either::Right(((), talk)) => {
                    tokio::select! { biased; _ = talk => {} () = SystemClock.sleep(GRACE) => {} }
                }
            }
        };
        match limits.time {
            None => {
                over.await;
                true
            }
            Some(time) => {
                tokio::select! { biased; () = over => true, () = SystemClock.sleep(time) => false }
            }
        }
    };
    group.kill();
    let status = group.reaped().await;
    if !in_time {
        let why = format!("{program:?} has not ended in time, and was killed");
        return Err(ToolError::new(ErrorKind::TimeoutDuringEffect, why));
    }
    let status = status.map_err(|error| ToolError::unknown(format!("the end of {program:?}: {error}")))?;
    let told = String::from_utf8_lossy(&told.bytes).trim().to_owned();
    Ok(Ended { status, output: kept.bytes, whole: kept.whole, told })
}

/// The error of a process that was not started: certainly nothing happened.
fn not_started(program: &str, error: &io::Error) -> ToolError {
    let text = format!("{program:?} was not started: {error}");
    match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::ArgumentListTooLong => ToolError::refused(text),
        _ => ToolError::not_sent(text),
    }
}

/// A process group, by its first process. The id is that of the group until the first process is reaped: nobody else has it before.
struct Group {
    child: Child,
    id: Option<Pid>,
}

impl Group {
    fn of(child: Child) -> Self {
        let id = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Self { child, id }
    }

    /// Waits until the first process has ended, without reaping it.
    fn leader_ended(&self) -> impl Future<Output = ()> + use<> {
        let id = self.id;
        // A thread of its own, because tokio only offers a wait that reaps. The thread ends with the process.
        let waiting = tokio::task::spawn_blocking(move || {
            let Some(id) = id else { return };
            let ended = || waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            while matches!(ended(), Err(rustix::io::Errno::INTR)) {}
        });
        async move {
            drop(waiting.await);
            if let Some(id) = id {
                let _ = kill_process_group(id, Signal::KILL); // what is left of the group
            }
        }
    }

    /// Kills all processes of the group.
    fn kill(&self) {
        if let Some(id) = self.id {
            let _ = kill_process_group(id, Signal::KILL); // there may be none left
        }
    }

    async fn reaped(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.id = None;
        status
    }
}

impl Drop for Group {
    /// Nobody waits for the run any more.
    fn drop(&mut self) {
        self.kill();
    }
}

/// Writes the input. A process that does not read it to its end has its reason: its exit code says what happened.
async fn feed(stdin: Option<ChildStdin>, input: &[u8]) {
    if let Some(mut stdin) = stdin {
        drop(stdin.write_all(input).await);
    }
}

/// The beginning of what a process says. The rest is read as well, so that the process does not wait for a reader.
struct Kept {
    bytes: Vec<u8>,
    limit: usize,
    whole: bool,
}

impl Kept {
    const fn at_most(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit, whole: true }
    }

    async fn fill(&mut self, from: Option<impl AsyncRead + Unpin>) {
        let Some(mut from) = from else { return };
        let mut chunk = vec![0; 8192];
        while let Ok(read @ 1..) = from.read(&mut chunk).await {
            let kept = read.min(self.limit - self.bytes.len());
            self.bytes.extend_from_slice(&chunk[..kept]);
            self.whole &= kept == read;
        }
    }
}
