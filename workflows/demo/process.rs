//! The parent's side: processes that are this program once more, in another role.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use counterfoil::{Boot, Clock as _, SystemClock};
use rustix::process::Signal;
use serde::Serialize;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::Failed;
use super::case_notice::client::{Counted, Http};
use super::case_notice::provider::Behaviour;
use super::role::{MARK, Message, ROLE, Report, Role};

/// A child that says nothing for so long is stuck. A confirming lookup that a busy machine does not answer in time
/// is made again only after a minute, and its life says nothing meanwhile.
const PATIENCE: Duration = Duration::from_mins(3);

/// How to start this program once more.
#[derive(Clone, Debug)]
pub struct Program {
    command: Vec<PathBuf>,
}

impl Program {
    /// This program, with arguments that lead it to [`role::play_if_child`](super::role::play_if_child).
    pub fn this(arguments: &[&str]) -> std::io::Result<Self> {
        let mut command = vec![std::env::current_exe()?];
        command.extend(arguments.iter().map(PathBuf::from));
        Ok(Self { command })
    }

    /// Another build of this program.
    pub fn other(path: PathBuf) -> Self {
        Self { command: vec![path] }
    }

    /// The same under another one, such as `strace`.
    pub fn under(&self, outer: &[&str]) -> Self {
        Self { command: outer.iter().map(PathBuf::from).chain(self.command.iter().cloned()).collect() }
    }

    /// Starts a process in a [`Role`], or in one that only its own program knows. It dies with what is returned.
    pub fn start(&self, role: &impl Serialize) -> Result<Process, Failed> {
        let mut child = Command::new(&self.command[0])
            .args(&self.command[1..])
            .env(ROLE, serde_json::to_string(role)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("{} cannot be started: {error}", self.command[0].display()))?;
        let lines =
            child.stdout.take().map(|out| BufReader::new(out).lines()).ok_or("no pipe to the child")?;
        Ok(Process { child, lines, started: SystemClock.boot() })
    }
}

/// A child process.
#[derive(Debug)]
pub struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    started: Boot,
}

/// How a life ended.
#[derive(Debug)]
pub struct Death {
    pub status: ExitStatus,
    /// From its start until it was known what becomes of the run.
    pub known_after: Option<Duration>,
    /// What it had to say, if it was not killed.
    pub report: Option<Report>,
    /// The naive loop got through.
    pub looped: Option<bool>,
    /// It was refused because another process has the store.
    pub owned: Option<String>,
    /// What else it said, also if it was killed after it had said so.
    pub told: Vec<String>,
}

impl Process {
    /// The next thing it says; `None` if it has nothing more to say.
    pub async fn hear(&mut self) -> Result<Option<Message>, Failed> {
        let next = async {
            while let Some(line) = self.lines.next_line().await? {
                if let Some(message) = line.strip_prefix(MARK) {
                    return Ok(Some(serde_json::from_str(message)?));
                }
            }
            Ok(None)
        };
        tokio::select! {
            message = next => message,
            () = SystemClock.sleep(PATIENCE) => Err(format!("a child has said nothing for {PATIENCE:?}").into()),
        }
    }

    /// Listens until it is at work.
    pub async fn until_working(&mut self) -> Result<(), Failed> {
        match self.hear().await? {
            Some(Message::Working) => Ok(()),
            said => Err(format!("a worker said {said:?} before it was at work").into()),
        }
    }

    /// Listens until it is dead.
    pub async fn death(mut self) -> Result<Death, Failed> {
        let (mut known_after, mut report, mut looped, mut owned) = (None, None, None, None);
        let mut told = Vec::new();
        while let Some(message) = self.hear().await? {
            match message {
                Message::Known => known_after = Some(self.started.until(SystemClock.boot())),
                Message::Lived(lived) => report = Some(lived),
                Message::Looped { succeeded } => looped = Some(succeeded),
                Message::Owned { message } => owned = Some(message),
                Message::Told(what) => told.push(what),
                Message::Listening { .. } | Message::Working | Message::Through => {}
            }
        }
        Ok(Death { status: self.child.wait().await?, known_after, report, looped, owned, told })
    }

    /// `kill -9`, and certain that it is dead.
    pub async fn kill(mut self) -> Result<(), Failed> {
        self.kill_and_wait().await
    }

    /// The same, for whoever needs its place again.
    pub async fn kill_and_wait(&mut self) -> Result<(), Failed> {
        Ok(self.child.kill().await?)
    }

    /// Its number, while it lives.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// It has ended by itself.
    pub fn has_ended(&mut self) -> Result<bool, Failed> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<(), Failed> {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        let id = id.and_then(rustix::process::Pid::from_raw).ok_or("the child is dead already")?;
        Ok(rustix::process::kill_process(id, signal)?)
    }
}

impl Death {
    /// It was killed with SIGKILL.
    pub fn was_killed(&self) -> bool {
        use std::os::unix::process::ExitStatusExt as _;
        self.status.signal() == Some(Signal::KILL.as_raw())
    }
}

/// The outside world: a provider in a process of its own, which outlives every life of the workflow.
#[derive(Debug)]
pub struct World {
    _process: Process,
    pub url: String,
    http: Http,
}

impl World {
    /// Starts a provider that behaves like this.
    pub async fn start(program: &Program, db: &Path, behaviour: &Behaviour) -> Result<Self, Failed> {
        let mut process = program.start(&Role::Provider { db: db.to_owned() })?;
        let Some(Message::Listening { url }) = process.hear().await? else {
            return Err("the provider did not start".into());
        };
        let world = Self { _process: process, http: Http::new(&url)?, url };
        world.behave(behaviour).await?;
        Ok(world)
    }

    /// Makes the provider behave like this from now on.
    pub async fn behave(&self, behaviour: &Behaviour) -> Result<(), Failed> {
        let url = format!("{}/behaviour", self.url);
        reqwest::Client::builder()
            .no_proxy()
            .build()?
            .put(url)
            .json(behaviour)
            .send()
            .await?
            .error_for_status()?;
        Ok(())
    }

    /// What it has counted.
    pub async fn counted(&self) -> Result<Counted, Failed> {
        Ok(self.http.effects().await?)
    }

    /// How many notices it has sent under this reference.
    pub async fn effects(&self, reference: &str) -> Result<u64, Failed> {
        Ok(self.counted().await?.effects.get(reference).copied().unwrap_or(0))
    }

    /// Waits until lookups see every effect that it will ever have of what was sent.
    pub async fn settled(&self) -> Result<(), Failed> {
        self.until(|counted| counted.unseen == 0, "shown all effects to lookups").await
    }

    /// Waits until it has received so many requests to send a notice: they are then in its hands.
    pub async fn received(&self, requests: u64) -> Result<(), Failed> {
        self.until(|counted| counted.requests >= requests, &format!("received {requests} requests")).await
    }

    async fn until(&self, enough: impl Fn(&Counted) -> bool, what: &str) -> Result<(), Failed> {
        let since = SystemClock.boot();
        while !enough(&self.counted().await?) {
            if since.until(SystemClock.boot()) > PATIENCE {
                return Err(format!("the provider has not {what} in {PATIENCE:?}").into());
            }
            SystemClock.sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }
}
