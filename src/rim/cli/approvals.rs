//! `counterfoil approvals`, `approval`, `approve` and `reject`: what waits for the approval of people.

use std::process::ExitCode;

use clap::Args;

use super::ledger::{Author, Ledger};
use super::shown;
use crate::ledger::Vote;

/// The tenant whose open reviews are listed.
#[derive(Args)]
pub(super) struct Options {
    #[command(flatten)]
    ledger: Ledger,
}

/// The review to be shown.
#[derive(Args)]
pub(super) struct One {
    #[command(flatten)]
    ledger: Ledger,
    /// The id of the review
    approval: String,
}

/// The decision about one version of a review.
#[derive(Args)]
pub(super) struct Decision {
    #[command(flatten)]
    ledger: Ledger,
    #[command(flatten)]
    author: Author,
    /// The id of the review
    approval: String,
    /// The version that was seen: a changed content is another version
    version: u32,
}

pub(super) fn list(options: &Options) -> ExitCode {
    options.ledger.run(async |client| {
        let (mut found, mut after) = (Vec::new(), None::<String>);
        loop {
            let page = client.reviews(after.as_deref()).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.id.clone());
            found.extend(page);
        }
        let heads = ["APPROVAL", "VERSION", "OPENED", "BY", "WHAT"];
        Ok(shown::list(options.ledger.json, found, heads, |open| {
            let people = open.review.people();
            [open.id, open.version.to_string(), open.since.to_string(), people, open.review.what]
        })?)
    })
}

pub(super) fn show(options: &One) -> ExitCode {
    options.ledger.run(async |client| {
        let open = client.review(&options.approval).await?;
        let open = open.ok_or_else(|| format!("this tenant has no open review {}", options.approval))?;
        if options.ledger.json {
            return Ok(shown::json(&open)?);
        }
        shown::text(&format!("{} of {}, opened {}", open.review.what, open.id, open.since))?;
        shown::text(&format!("version       {}", open.version))?;
        shown::text(&format!("reviewers     {}; {} of them", open.review.people(), open.review.quorum))?;
        for vote in &open.review.votes {
            shown::text(&format!("vote          {}", told(vote)))?;
        }
        Ok(shown::text(&format!("{:#}", open.review.content))?)
    })
}

/// A vote with its reason, if it has one.
fn told(vote: &Vote) -> String {
    let word = if vote.approves { "approved" } else { "rejected" };
    let reason = if vote.reason.is_empty() { String::new() } else { format!(": {}", vote.reason) };
    format!("{word} by {}{reason}", vote.by)
}

pub(super) fn approve(options: &Decision) -> ExitCode {
    decide(options, true)
}

pub(super) fn reject(options: &Decision) -> ExitCode {
    decide(options, false)
}

fn decide(options: &Decision, is_in_favour: bool) -> ExitCode {
    options.ledger.run(async |client| {
        let Author { author, reason } = &options.author;
        let decision = client.decide(&options.approval, options.version);
        let decided = if is_in_favour {
            decision.approve(author).because(reason).await?
        } else {
            decision.reject(author, reason).await?
        };
        if options.ledger.json {
            return Ok(shown::json(&decided)?);
        }
        let outcome = decided.outcome.map_or_else(|| "it is open".to_owned(), |outcome| outcome.told());
        Ok(shown::text(&format!("{outcome}: {} of {} approvals", decided.approvals, decided.quorum))?)
    })
}
