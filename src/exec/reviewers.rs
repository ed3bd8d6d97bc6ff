//! Who may decide about approvals.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::id::Tenant;
use crate::ledger::Review;

/// Who may decide, as the host knows it at this moment: asked when somebody decides, and once more directly before the
/// effect, for somebody who was in favour may have lost the right meanwhile. A review that names its reviewers is decided by
/// them alone, and only while this lets them, too.
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
    /// Whether they may decide. It is asked often, and must not wait for anything.
    fn may_decide(&self, tenant: &Tenant, reviewer: &str, review: &Review) -> bool;
}

const _: Option<&dyn Reviewers> = None;

/// Whoever a review names; anybody, if it names nobody.
pub(crate) struct Named;

impl Reviewers for Named {
    fn may_decide(&self, _: &Tenant, _: &str, _: &Review) -> bool {
        true
    }
}

/// Whoever is in this list.
impl Reviewers for BTreeSet<String> {
    fn may_decide(&self, _: &Tenant, reviewer: &str, _: &Review) -> bool {
        self.contains(reviewer)
    }
}

pub(crate) type SharedReviewers = Arc<dyn Reviewers>;
