//! An executor on a runtime of its own, which can be killed: its tasks vanish where they are, nothing is drained, and
//! no task of it signs off. The disk is left as `kill -9` leaves it.

use counterfoil::exec::{ExecError, ExecutorBuilder, StartError};
use counterfoil::{Executor, Outcome, ToolRequest};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub struct Process {
    executor: Option<Executor>,
    handle: Handle,
    kill: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Process {
    /// Opens an executor on a runtime of its own.
    pub async fn start(builder: ExecutorBuilder) -> Result<Self, StartError> {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        let (kill, killed) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let _ = runtime.block_on(killed);
            drop(runtime); // and all its tasks with it, before the thread ends
        });
        let executor = handle.spawn(builder.open()).await.unwrap();
        let mut process = Self { executor: None, handle, kill: Some(kill), thread: Some(thread) };
        process.executor = Some(executor?);
        Ok(process)
    }

    pub fn executor(&self) -> Executor {
        self.executor.clone().unwrap()
    }

    /// Makes a call in the process.
    pub fn execute(&self, request: ToolRequest) -> JoinHandle<Result<Outcome, ExecError>> {
        let executor = self.executor();
        self.handle.spawn(async move { executor.execute(request).await })
    }

    /// Does work in the process.
    pub fn spawn<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.handle.spawn(work)
    }

    /// Kills the process. When this returns, its lock is free.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.executor = None;
        drop(self.kill.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}
