//! Approvals: a run asks people and waits, for days if necessary, without holding resources. People decide from any
//! process.
//!
//! A decision is an operation of the ledger under `approval : subject and its version : reviewer`. The same decision
//! again returns the original answer; another decision is a conflict. A review is one row, which each decision
//! changes in the transaction that records the decision, so that a quorum is reached once; the run is notified in
//! that transaction, too.
//!
//! ```
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! # let dir = tempfile::tempdir()?;
//! use std::time::Duration;
//! use counterfoil::{Ctx, Engine, Failure, ApprovalSubject};
//!
//! async fn publish(ctx: Ctx, draft: String) -> Result<String, Failure> {
//!     let approval = ctx
//!         .approval(ApprovalSubject::of("article", &draft))
//!         .reviewers(["ann", "bob"])
//!         .expires_in(Duration::from_secs(3 * 24 * 3600))
//!         .await?;
//!     Ok(format!("{draft}, approved by {}", approval.by)) // or `ctx.call::<Publish>(draft).approved_by(&approval)`
//! }
//!
//! let engine = Engine::sqlite(dir.path().join("agents.db")).workflow("publish", 1, publish).start().await?;
//! let acme = engine.tenant("acme")?;
//! let run = acme.run(publish, "On cheques".to_owned()).start().await?;
//! // … in the handler of a POST request:
//! let review = loop {
//!     match acme.reviews(None).await?.pop() {
//!         Some(review) => break review,
//!         None => tokio::task::yield_now().await,
//!     }
//! };
//! acme.decide(&review.id, review.version).approve("ann").await?;
//! assert_eq!(run.result().await?, "On cheques, approved by ann");
//! # engine.shutdown(Duration::from_secs(1)).await;
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod ask;
mod decide;

pub use crate::flow::AskApproval;
pub use ask::{Ask, AskRefused};
pub use decide::{ApprovalRefused, Approvals, Decide, Decided, OpenReview};
