//! A nightly ingest: a schedule begins it, each page is fetched and stored by a child in a queue, so many at once. A tick
//! begins one run, whoever dies and however many workers there are; a page is stored once for each night.
//!
//! ```text
//! cargo run --example nightly_ingest --features schedule              # in a temporary folder, a night every two seconds
//! cargo run --example nightly_ingest --features schedule -- folder    # kill it anywhere and run it again
//! ```

#![allow(
    missing_docs,
    unreachable_pub,
    reason = "an example, which tests and `counterfoil simulate` include as a module"
)]

#[cfg(feature = "sim")]
#[path = "nightly_ingest/simulated.rs"]
pub mod simulated;

use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use counterfoil::flow::{EngineBuilder, FailureCode};
use counterfoil::ledger::{ErrorKind, LookupResult};
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Engine, Failure, Key, Queue};
use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What is ingested each night.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Site {
    pub name: String,
    pub pages: Vec<String>,
}

impl Site {
    pub fn of(name: &str, pages: &[&str]) -> Self {
        Self { name: name.to_owned(), pages: pages.iter().map(|page| (*page).to_owned()).collect() }
    }
}

/// A page of a site in a night.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Page {
    pub site: String,
    pub path: String,
    /// The tick, in seconds: the same however late the run begins.
    pub night: i64,
    pub text: String,
}

impl Page {
    /// What it is stored under.
    pub fn reference(&self) -> String {
        format!("{}{}@{}", self.site, self.path, self.night)
    }
}

/// One night: every page by a child of its own. It waits for them as a row, and holds no place in their queue.
pub async fn nightly<Store>(ctx: Ctx, site: Site) -> Result<usize, Failure>
where
    Store: Tool<Input = Page, Output = Value, Effect = effect::InternalMutation>,
{
    let Some(tick) = ctx.tick() else {
        return Err(Failure::coded(FailureCode::Invalid, "it is begun by a schedule"));
    };
    let night = tick.at.0 / 1_000_000;
    let stored = site.pages.iter().map(|path| {
        let page = Page { site: site.name.clone(), path: path.clone(), night, text: String::new() };
        ctx.child(ingest::<Store>, page).id(path).queue("pages").queue_key(&site.name).into_future()
    });
    Ok(try_join_all(stored).await?.len())
}

/// One page: what was fetched is a step, what is stored a guarded call.
pub async fn ingest<Store>(ctx: Ctx, page: Page) -> Result<Value, Failure>
where
    Store: Tool<Input = Page, Output = Value, Effect = effect::InternalMutation>,
{
    let text = ctx.step("fetch", &page.path, |path| format!("what stands at {path}")).await?;
    ctx.call::<Store>(Page { text, ..page }).await
}

/// Both workflows and their queue: four pages at once, two of one site.
pub fn prepared<Store>(engine: EngineBuilder) -> EngineBuilder
where
    Store: Tool<Input = Page, Output = Value, Effect = effect::InternalMutation>,
{
    engine
        .queue(Queue::new("pages").concurrency(4).per_key(2))
        .workflow("nightly", 1, nightly::<Store>)
        .workflow("ingest", 1, ingest::<Store>)
}

/// Pages are stored in a text file, where one can be found again by what it is stored under.
struct Archive(PathBuf);

impl Archive {
    fn has(&self, reference: &str) -> bool {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().any(|line| line.split(' ').next() == Some(reference))
    }
}

impl Tool for Archive {
    const NAME: &'static str = "archive";
    type Effect = effect::InternalMutation;
    type Contract = contract::Lookup;
    type Input = Page;
    type Output = Value;

    fn key(&self, page: &Page) -> Option<Key> {
        Some(Key::of(Self::NAME).target(&page.site).operation(page.reference()))
    }

    async fn call(&self, _: &Call, page: &Page) -> Result<Done<Value>, ToolError> {
        let written = || {
            let mut file = std::fs::File::options().append(true).create(true).open(&self.0)?;
            writeln!(file, "{} {}", page.reference(), page.text)
        };
        written().map_err(|e| ToolError::new(ErrorKind::Unknown, e.to_string()))?;
        Ok(Done::new(json!(page.reference())))
    }
}

impl Reconcile for Archive {
    async fn reconcile(&self, _: &Call, page: &Page) -> Result<LookupResult<Value>, ToolError> {
        Ok(if self.has(&page.reference()) {
            LookupResult::Committed { output: json!(page.reference()), external_ref: None }
        } else {
            LookupResult::NotFound
        })
    }
}

#[allow(clippy::disallowed_methods, reason = "it looks on, outside of any workflow")]
async fn nights(folder: &Path) -> Result<(), Box<dyn Error>> {
    let archive = Archive(folder.join("archive.txt"));
    let engine = prepared::<Archive>(Engine::sqlite(folder.join("nightly.db")).tool(archive)).start().await?;
    let acme = engine.tenant("acme")?;
    let site = Site::of("example.org", &["/", "/news", "/prices", "/contact", "/jobs"]);
    // Every start says so; the schedule is there once. In earnest: `.cron("0 3 * * *").zone("Europe/Berlin")`.
    let set = acme.schedule("nightly").every(Duration::from_secs(2)).run(nightly::<Archive>, site).await?;
    println!("{}: next at {:?}", set.when, set.upcoming(3));
    let mut seen = set.last;
    for _ in 0..3 {
        let night = loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let status = acme.schedule("nightly").status().await?;
            if status.last != seen {
                break status;
            }
        };
        seen = night.last;
        if let Some(run) = night.last_run {
            let pages = acme.handle::<usize>(run).result().await?;
            println!("{pages} pages in the night of {seen:?}, {} nights missed so far", night.missed);
        }
    }
    engine.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args_os().nth(1) {
        Some(folder) => {
            let folder = PathBuf::from(folder);
            std::fs::create_dir_all(&folder)?;
            nights(&folder).await
        }
        None => nights(tempfile::tempdir()?.path()).await,
    }
}
