//! Approvals (GUARD-1): a run asks people and waits, for days if need be, holding nothing; people decide from anywhere.
//!
//! A decision is an operation of the ledger under `approval : what it is about and its version : reviewer`. The same again
//! gives the original answer, another one is a conflict. What is to be decided is one row, moved on with every decision in
//! the transaction that records it, so that a quorum is reached once; the run is told in that transaction, too.
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
