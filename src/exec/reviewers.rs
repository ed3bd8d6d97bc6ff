//! The rule that says who may decide about approvals.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::id::Tenant;
use crate::ledger::Review;

/// The rule that says who may decide about an approval, as the host knows it at this moment. It is called when a person
/// decides, and again directly before the effect, because a person who was in favour may have lost the right meanwhile.
/// A review that names its reviewers is decided by them alone, and only while this rule lets them, too.
///
/// ```
/// use counterfoil::exec::Reviewers;
/// use counterfoil::{Tenant, ledger::Review};
///
/// struct Staff(Vec<&'static str>);
///
/// impl Reviewers for Staff {
///     fn may_decide(&self, _: &Tenant, reviewer: &str, review: &Review) -> bool {
///         self.0.contains(&reviewer) && review.what == "notice"
///     }
/// }
/// # let _ = Staff(vec!["ann"]);
/// ```
pub trait Reviewers: Send + Sync + 'static {
    /// True if the reviewer may decide. It is called often, and must not block.
    fn may_decide(&self, tenant: &Tenant, reviewer: &str, review: &Review) -> bool;
}

const _: Option<&dyn Reviewers> = None;

/// The rule that everybody in this list may decide.
impl Reviewers for BTreeSet<String> {
    fn may_decide(&self, _: &Tenant, reviewer: &str, _: &Review) -> bool {
        self.contains(reviewer)
    }
}

/// The rule of a process. `None` for the default rule: the reviewers whom a review names, or anybody if it names nobody.
pub(crate) type SharedReviewers = Option<Arc<dyn Reviewers>>;
