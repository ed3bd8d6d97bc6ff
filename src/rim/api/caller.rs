//! The caller of a request: a name, a role and the tenants that the caller may see.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::{IdError, Name, Tenant, checked};

/// The role of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Makes calls under the [guard](crate::guard_service), and does nothing else: an agent decides about no approval and answers no
    /// question, its own among them.
    Call,
    /// Reads everything of its tenants.
    Read,
    /// Reads, answers questions and decides about approvals.
    Decide,
    /// Does the same, and starts runs, signals them and commands them.
    Operate,
    /// Does everything: sees and revokes tokens, too.
    Admin,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 5] = [Self::Call, Self::Read, Self::Decide, Self::Operate, Self::Admin];

    /// True if a caller of this role may do what needs a role.
    ///
    /// ```
    /// use counterfoil::api::Role;
    ///
    /// assert!(Role::Operate.allows(Role::Decide));
    /// assert!(!Role::Call.allows(Role::Read) && !Role::Operate.allows(Role::Call));
    /// ```
    pub const fn allows(self, needed: Self) -> bool {
        match (self, needed) {
            (Self::Admin, _) | (Self::Call, Self::Call) => true,
            (Self::Call, _) | (_, Self::Call) => false,
            _ => self as u8 >= needed as u8,
        }
    }

    /// The name of the role.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Read => "read",
            Self::Decide => "decide",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let unknown = || IdError::Malformed {
            what: "role",
            text: text.chars().take(40).collect(),
            form: "call, read, decide, operate or admin",
        };
        Self::ALL.into_iter().find(|role| role.name() == text).ok_or_else(unknown)
    }
}

/// The tenants that a caller may name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TenantScope {
    /// One tenant.
    One(Tenant),
    /// All tenants, and the ledger as a whole.
    All,
}

/// An authenticated caller. Votes and answers are counted under the caller's name, so two tokens of one name are one person.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Caller {
    /// The name of the person or the program.
    pub name: String,
    /// The role.
    pub role: Role,
    /// The tenants.
    pub tenants: TenantScope,
}

impl Caller {
    /// A caller. The name has 1 to 128 bytes without control characters.
    pub fn new(name: impl Into<String>, role: Role, tenants: TenantScope) -> Result<Self, IdError> {
        let name = name.into();
        checked("caller", &name, Name::MAX_BYTES)?;
        Ok(Self { name, role, tenants })
    }
}
