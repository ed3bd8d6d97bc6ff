//! The main job: an agent drafts a notice for a case, somebody approves it, a provider sends it over HTTP, and
//! the case is closed.
//!
//! ```text
//! cargo run --example case_notice                          # with a provider of its own, in a temporary folder
//! cargo run --example case_notice -- http://… ledger.db    # with yours; kill it anywhere and run it again
//! ```
//!
//! Read this file from top to bottom: the workflow, the one tool it needs, and how both are put to work.
//! `case_notice/client.rs` speaks HTTP, `case_notice/classes.rs` has the same tool for providers that offer less,
//! `case_notice/desk.rs` has all that is around it in earnest (an artifact, two reviewers, events, memory, withdrawal), and
//! `case_notice/simulated.rs` crashes it in a simulated world.

#![allow(missing_docs, unreachable_pub, reason = "an example, which demo and tests include as a module")]

#[path = "case_notice/classes.rs"]
pub mod classes;
#[path = "case_notice/client.rs"]
pub mod client;
#[cfg(feature = "memory")]
#[path = "case_notice/desk.rs"]
pub mod desk;
#[path = "provider/server.rs"]
pub(crate) mod provider;
#[cfg(feature = "sim")]
#[path = "case_notice/simulated.rs"]
pub mod simulated;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use counterfoil::ledger::{Approval, ApprovalSubject, Contract, LookupResult, RetryPolicy};
use counterfoil::tool::contract::Contract as _;
use counterfoil::tool::{Call, Done, NeedsApproval, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Engine, Failure, Key};
use serde::{Deserialize, Serialize};
use sqlx::SqliteConnection;

use client::{Http, Place, Provider};

// The data.

/// What the agent is asked to work on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    pub id: String,
    pub recipient: String,
    pub finding: String,
}

/// What is sent, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    pub case: String,
    pub recipient: String,
    pub text: String,
}

/// What the provider gives for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    pub id: String,
}

// The workflow.

/// A plain `async fn`. If its process dies, it is run again from the top, and each line that has a record is
/// answered from it. No line but the last before the crash can be in doubt, and that one is asked about.
pub async fn case_notice(ctx: Ctx, case: Case) -> Result<Receipt, Failure> {
    // Steps compute and touch nothing outside, so they wait for no disk; their results are recorded.
    let notice = ctx.step("draft", &case, draft).await?;
    let approval = ctx.step("approve", &notice, approve).await??;

    // This is the line that all the rest is for: it goes out once, wherever the process dies. Without
    // `approved_by` it does not compile, because a notification needs an approval.
    let receipt = ctx.call::<SendNotice>(notice).approved_by(&approval).await?;

    // The case file is in the ledger's own database: change and record are one transaction, so this is exactly once.
    let id = receipt.id.clone();
    ctx.transaction("close", |ledger| Box::pin(close(ledger, case.id, id))).await?;
    Ok(receipt)
}

/// Where your agent does its work.
pub fn draft(case: &Case) -> Notice {
    Notice {
        case: case.id.clone(),
        recipient: case.recipient.clone(),
        text: format!("Dear {}, about case {}: {}.", case.recipient, case.id, case.finding),
    }
}

/// Where your reviewer decides. The approval is bound to exactly this content: another text needs another one.
pub fn approve(notice: &Notice) -> Result<Approval, Failure> {
    Ok(Approval::of("reviewer", &package(notice))?)
}

/// What is to be approved, and for whom.
pub fn package(notice: &Notice) -> ApprovalSubject {
    ApprovalSubject::of("notice", notice).for_whom(&notice.recipient)
}

/// Notes in the case file that the notice was sent. Closing a case twice is an error, and fails the run.
pub async fn close(ledger: &mut SqliteConnection, case: String, receipt: String) -> Result<(), Failure> {
    let database = |error: sqlx::Error| Failure::new(format!("the case file: {error}"));
    let table = "CREATE TABLE IF NOT EXISTS closed_case (id TEXT PRIMARY KEY, receipt TEXT NOT NULL) STRICT";
    sqlx::query(table).execute(&mut *ledger).await.map_err(database)?;
    let row = sqlx::query("INSERT INTO closed_case (id, receipt) VALUES (?, ?)").bind(case).bind(receipt);
    row.execute(ledger).await.map_err(database)?;
    Ok(())
}

// The tool.

/// Sends a notice through a provider that takes an idempotency key *and* can be asked what it has.
pub struct SendNotice {
    pub provider: Provider,
}

impl Tool for SendNotice {
    const NAME: &'static str = "send_notice";
    /// It tells somebody something: it needs an approval, and is never repeated blindly.
    type Effect = effect::Notification;
    /// What the provider offers. It decides what is done when a process dies during the call.
    type Contract = contract::WithLookup<contract::ReplaysKey>;
    type Input = Notice;
    type Output = Receipt;

    /// *Which* notice this is. Two calls with one key are one notice: never put a random part or a time in it. A case
    /// has one notice here. Where it has several, `guard::notification::Identity` makes a key of each.
    fn key(&self, notice: &Notice) -> Option<Key> {
        Some(Key::of(Self::NAME).target(&notice.case).operation("decision"))
    }

    fn contract(&self) -> Contract {
        Self::Contract::declaration().settle(self.provider.settle)
    }

    fn retry(&self) -> RetryPolicy {
        self.provider.retry()
    }

    /// `call.key()` is the key in a form that fits every header. It is the same in each attempt, and serves as our
    /// reference at the provider, too.
    async fn call(&self, call: &Call, notice: &Notice) -> Result<Done<Receipt>, ToolError> {
        self.provider.create(call, notice, Some(call.key())).await
    }
}

impl NeedsApproval for SendNotice {
    fn package(&self, notice: &Notice) -> ApprovalSubject {
        package(notice)
    }
}

impl Reconcile for SendNotice {
    /// Is asked after a crash, before anything is sent again.
    async fn reconcile(&self, call: &Call, notice: &Notice) -> Result<LookupResult<Receipt>, ToolError> {
        self.provider.find(call, notice).await
    }
}

// How it is put to work.

#[allow(dead_code, reason = "demo and tests include this file for its workflow and start it themselves")]
#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    let folder = tempfile::tempdir()?;
    let url = match arguments.next() {
        Some(url) => url,
        None => provider_in_this_process(folder.path()).await?,
    };
    let ledger = arguments.next().map_or_else(|| folder.path().join("ledger.db"), PathBuf::from);

    // A minute is the careful settle time for a provider far away; the one here is on this machine.
    let http = Http::new(url)?;
    let provider = Provider::new(Place::Http(http.clone()), Duration::from_secs(1));
    let engine = Engine::sqlite(ledger)
        .workflow("case_notice", 1, case_notice)
        .tool(SendNotice { provider })
        .start()
        .await?;

    let case =
        Case { id: "case-123".into(), recipient: "ann".into(), finding: "your permit is granted".into() };
    // The start key makes the run itself idempotent: ask again, after a crash or by mistake, and get the same run.
    let receipt = engine.tenant("acme")?.run(case_notice, case).key("case-123").await?;
    println!("the notice is out as {}; the provider counts {:?}", receipt.id, http.effects().await?);

    engine.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

async fn provider_in_this_process(folder: &Path) -> Result<String, Box<dyn Error + Send + Sync>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let db = folder.join("provider.db");
    tokio::spawn(async move { provider::serve(&db, listener).await });
    Ok(url)
}
