//! The writes of a change, row by row.

use super::Refusal;
use super::change::{Change, Written};
#[cfg(any(feature = "postgres", feature = "conformance"))]
use crate::id::Tenant;

/// Declares a change and its writes: each field once, with the form in which a store sees it. A write thus cannot be
/// left out of the list, and every `match` on the writes is complete.
macro_rules! changes {
    (
        $(#[$meta:meta])*
        pub struct $change:ident { $($(#[$told:meta])+ pub $way:ident: $what:ty,)+ }
        writes $written:ident { $($(#[$meaning:meta])+ $field:ident: $rows:ty => $write:ident($row:ty),)+ }
    ) => {
        $(#[$meta])*
        pub struct $change {
            $($(#[$told])+ pub $way: $what,)+
            $($(#[$meaning])+ pub $field: $rows,)+
        }

        /// One write of a change.
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum $written<'c> {
            $($write(&'c $row)),+
        }

        impl $change {
            /// All writes, in the order in which they are judged: the first one that is refused decides why a change is
            /// refused.
            pub(crate) fn written(&self) -> impl Iterator<Item = $written<'_>> {
                // A list, because a chain of so many iterators takes five times as long without optimisation, as
                // simulations run in tests. With optimisation both take 40 ns.
                let mut rows = Vec::new();
                $(for row in self.$field.iter() {
                    rows.push($written::$write(std::borrow::Borrow::<$row>::borrow(row)));
                })+
                rows.into_iter()
            }

            /// True if some write is of this kind. Nothing is collected, because each change is asked on its way to the disk.
            pub(super) fn writes(&self, is: impl Fn($written<'_>) -> bool) -> bool {
                $(self.$field.iter().any(|row| is($written::$write(std::borrow::Borrow::<$row>::borrow(row)))))||+
            }
        }
    };
}
pub(super) use changes;

impl Change {
    /// True if the change writes rows that only a worker may write: all but enrolment, evidence and the rows that
    /// those two need.
    pub(crate) fn needs_fence(&self) -> bool {
        use Written::{DroppedContact, Evidence, Key, Link, Payload, Prune, Worker};
        let is_free = |row: Written<'_>| {
            matches!(
                row,
                Prune(_) | DroppedContact(_) | Evidence(_) | Link(_) | Payload(_) | Key(_) | Worker(_)
            )
        };
        self.writes(|row| !is_free(row))
    }

    /// The refusal of a change that nobody writes, and that somebody must write.
    pub(super) fn unwritten(&self) -> Option<Refusal> {
        let is_nobodys = self.fence.is_none() && self.needs_fence();
        is_nobodys.then(|| Refusal::Invalid("no worker writes it".into()))
    }

    /// True if only a judge can decide about the change: it changes the right to write, or rows that are found by
    /// their content.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(super) fn must_be_judged(&self) -> bool {
        use Written::{Admission, Erased, ExpiredSignal, Forgotten, Retired, RetiredRun, Worker};
        let is_judged = |row: Written<'_>| {
            matches!(
                row,
                Worker(_)
                    | Admission(_)
                    | Forgotten(_)
                    | Erased(_)
                    | Retired(_)
                    | RetiredRun(_)
                    | ExpiredSignal(_)
            )
        };
        self.compared().is_some() || self.writes(is_judged) || !self.copied().is_empty()
    }
}

#[cfg(any(feature = "postgres", feature = "conformance"))]
impl<'c> Written<'c> {
    /// The tenant that owns the row; `None` for a worker or a queue.
    pub(super) const fn tenant(self) -> Option<&'c Tenant> {
        match self {
            Self::Record(row) => Some(&row.tenant),
            Self::RecordLabel(row) => Some(&row.tenant),
            Self::Look(row) => Some(&row.tenant),
            Self::Contact(row) => Some(&row.tenant),
            Self::DroppedContact(row) => Some(&row.tenant),
            Self::Run(row) => Some(&row.tenant),
            Self::Label(row) => Some(&row.tenant),
            Self::Step(row) => Some(&row.tenant),
            Self::SharedEffect(row) => Some(&row.tenant),
            Self::Question(row) => Some(&row.tenant),
            Self::Signal(row) | Self::Received(row) => Some(&row.tenant),
            Self::Schedule(row) => Some(&row.tenant),
            Self::Document(row) => Some(&row.tenant),
            Self::Published(row) => Some(&row.tenant),
            Self::Event(row) => Some(&row.tenant),
            Self::Mark(row) => Some(&row.tenant),
            Self::Evidence(row) => Some(&row.tenant),
            Self::Link(row) => Some(&row.tenant),
            Self::Retired(row) => Some(&row.tenant),
            Self::RetiredRun(row) => Some(&row.run.tenant),
            Self::ExpiredSignal(row) => Some(&row.signal.tenant),
            Self::Forgotten(row) => Some(&row.tenant),
            Self::Payload((tenant, _)) | Self::Key((tenant, _)) | Self::Erased(tenant) => Some(tenant),
            Self::Prune(_) | Self::Worker(_) | Self::Admission(_) => None,
        }
    }
}
