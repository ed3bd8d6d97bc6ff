//! The report of a verification.

use std::fmt;

use serde::Serialize;

use super::anchor::Anchor;
use crate::clock::Timestamp;
use crate::id::{Tenant, text};

/// The result of comparing the rows on which evidence rests with their [chain](crate::store::chain).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ChainReport {
    /// True if the links are signed by a secret that is not in the database, and the signatures were checked. Otherwise the
    /// report shows damage, not intent.
    pub is_signed: bool,
    /// The instant at which the chain began (UTC).
    #[serde(serialize_with = "text")]
    pub since: Timestamp,
    /// The instant at which the verification began (UTC).
    #[serde(serialize_with = "text")]
    pub as_of: Timestamp,
    /// The number of links that were read.
    pub links: u64,
    /// The number of rows that fit their links.
    pub rows: u64,
    /// The number of rows that are older than the chain, and have not changed since it began: nothing is known of them.
    pub older: u64,
    /// The number of links that were under way when their process died, and are not there: it is unknown if they ever were.
    pub unsettled: u64,
    /// What does not fit: at most [`ChainReport::MOST`].
    pub findings: Vec<Finding>,
    /// The number of all findings.
    pub found: u64,
    /// The ends of the chains: keep them outside the database, for the next verification.
    #[serde(flatten)]
    pub anchor: Anchor,
}

/// A row or a link that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The sort of the finding.
    pub kind: FindingKind,
    /// The tenant that owns the row. Absent of links.
    pub tenant: Option<Tenant>,
    /// The row or the link in words.
    pub what: String,
}

impl Finding {
    /// A finding about the links or the mark, which belong to no tenant.
    pub(super) const fn of_chain(kind: FindingKind, what: String) -> Self {
        Self { kind, tenant: None, what }
    }
}

/// The sort of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FindingKind {
    /// A row is not as it was written last.
    Altered,
    /// An earlier state of a row was put back, and a process has written it once more.
    RolledBack,
    /// A row is there that was not written by a process with the chain.
    Added,
    /// A row was deleted before its retention was over.
    Missing,
    /// A link is not as it was written.
    LinkAltered,
    /// A link was deleted.
    LinkMissing,
    /// A link of the anchor is not there: the end of its chain was cut off.
    CutOff,
    /// The mark of the chain is not signed by the secret that was given: it was changed, or this is not the secret of the ledger.
    MarkAltered,
}

impl FindingKind {
    /// The sort in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Altered => "altered",
            Self::RolledBack => "rolled back",
            Self::Added => "added",
            Self::Missing => "missing",
            Self::LinkAltered => "link altered",
            Self::LinkMissing => "link missing",
            Self::CutOff => "cut off",
            Self::MarkAltered => "mark altered",
        }
    }
}

impl ChainReport {
    /// The number of findings that a report lists.
    pub const MOST: usize = 1000;

    /// True if everything fits.
    pub const fn is_whole(&self) -> bool {
        self.found == 0
    }
}

impl fmt::Display for ChainReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_signed, since, as_of, links, rows, older, unsettled, findings, found, anchor } = self;
        let verdict = if self.is_whole() { "whole" } else { "broken" };
        writeln!(f, "chain         {verdict}: {rows} rows fit, {found} findings")?;
        for Finding { kind, tenant, what } in findings {
            let tenant = tenant.as_ref().map(|tenant| format!(" of {tenant}")).unwrap_or_default();
            writeln!(f, "finding       {}: {what}{tenant}", kind.name())?;
        }
        if *found > findings.len() as u64 {
            writeln!(f, "finding       and {} more", found - findings.len() as u64)?;
        }
        writeln!(f, "links         {links} in {} chains, since {since}", anchor.heads.len())?;
        if *older > 0 {
            writeln!(f, "older         {older} rows from before the chain are not covered")?;
        }
        if *unsettled > 0 {
            writeln!(f, "unsettled     {unsettled} links were under way when their process died")?;
        }
        let shows = if *is_signed {
            "damage and intent: each link is signed by the secret"
        } else {
            "damage, not intent: whoever can write into the database can write a whole chain"
        };
        writeln!(f, "shows         {shows}")?;
        writeln!(f, "as of         {as_of}")
    }
}
