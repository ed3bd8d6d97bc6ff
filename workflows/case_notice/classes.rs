//! The same tool for providers that offer less. What they offer is all that changes: how a notice is sent, and
//! whether there is anything to ask afterwards. The workflow stays the same.

use std::future::Future;
use std::path::Path;

use counterfoil::exec::OwnConnection;
use counterfoil::flow::{EngineBuilder, RunError, RunHandle, TenantClient};
use counterfoil::ledger::{ApprovalSubject, Contract, KeyError, LookupResult, OperationKey, RetryPolicy};
use counterfoil::tool::contract::Contract as _;
use counterfoil::tool::{Call, Done, NeedsApproval, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Engine, Failure, Key, Tenant};

use serde::{Deserialize, Serialize};
use sqlx::SqliteConnection;

use super::client::Provider;
use super::{Case, Notice, Receipt, SendNotice, approve, case_notice, close, draft, package, provider};

/// The workflow of the file above, with another tool.
pub async fn case_notice_by<T, C>(ctx: Ctx, case: Case) -> Result<Receipt, Failure>
where
    T: Tool<Input = Notice, Output = Receipt> + NeedsApproval,
    C: CaseFile,
{
    let notice = ctx.step("draft", &case, draft).await?;
    let approval = ctx.step("approve", &notice, approve).await??;
    let receipt = ctx.call::<T>(notice).approved_by(&approval).await?;
    let id = receipt.id.clone();
    ctx.transaction("close", |ledger: &mut C| Box::pin(ledger.close(case.id, id))).await?;
    Ok(receipt)
}

/// The case file, in whichever database the ledger is.
pub trait CaseFile: OwnConnection + 'static {
    fn close(&mut self, case: String, receipt: String) -> impl Future<Output = Result<(), Failure>> + Send;
}

impl CaseFile for SqliteConnection {
    async fn close(&mut self, case: String, receipt: String) -> Result<(), Failure> {
        close(self, case, receipt).await
    }
}

/// Its table is there already: two that make one at once are in each other's way.
#[cfg(feature = "postgres")]
impl CaseFile for sqlx::PgConnection {
    async fn close(&mut self, case: String, receipt: String) -> Result<(), Failure> {
        let row =
            sqlx::query("INSERT INTO closed_case (id, receipt) VALUES ($1, $2)").bind(case).bind(receipt);
        row.execute(self).await.map(drop).map_err(|error| Failure::new(format!("the case file: {error}")))
    }
}

/// A tool for each contract: its declaration, how it sends, and `Reconcile` where the provider can be asked.
macro_rules! senders {
    ($($(#[$doc:meta])* $name:ident: $contract:ident $(+ $reconcile:ident)?, |$provider:ident, $call:ident, $notice:ident| $send:expr;)*) => {$(
        $(#[$doc])*
        pub struct $name {
            pub provider: Provider,
        }

        impl Tool for $name {
            const NAME: &'static str = SendNotice::NAME;
            type Effect = effect::Notification;
            type Contract = contract::$contract;
            type Input = Notice;
            type Output = Receipt;

            fn key(&self, notice: &Notice) -> Option<Key> {
                Some(key(notice))
            }

            fn contract(&self) -> Contract {
                Self::Contract::declaration().settle(self.provider.settle)
            }

            fn retry(&self) -> RetryPolicy {
                self.provider.retry()
            }

            async fn call(&self, $call: &Call, $notice: &Notice) -> Result<Done<Receipt>, ToolError> {
                let $provider = &self.provider;
                $send.await
            }
        }

        impl NeedsApproval for $name {
            fn package(&self, notice: &Notice) -> ApprovalSubject {
                package(notice)
            }
        }

        $(impl $reconcile for $name {
            async fn reconcile(&self, call: &Call, notice: &Notice) -> Result<LookupResult<Receipt>, ToolError> {
                self.provider.find(call, notice).await
            }
        })?
    )*};
}

senders! {
    /// The provider takes a key and gives the first answer again; there is nothing to ask.
    SendReplaysKey: ReplaysKey, |provider, call, notice| provider.create(call, notice, Some(call.key()));
    /// The provider takes a key and refuses it the second time, without the first answer.
    SendRejectsKey: RejectsKey + Reconcile, |provider, call, notice| provider.create(call, notice, Some(call.key()));
    /// The provider lets us choose the id.
    SendNaturalKey: NaturalKey, |provider, call, notice| provider.create_as(call, notice);
    /// The provider takes no key, but can be asked for our reference.
    SendLookup: Lookup + Reconcile, |provider, call, notice| provider.create(call, notice, None);
    /// The provider takes no key and cannot be asked.
    SendBlind: BlindNotice, |provider, call, notice| provider.create(call, notice, None);
}

fn key(notice: &Notice) -> Key {
    Key::of(SendNotice::NAME).target(&notice.case).operation("decision")
}

/// The key under which the notice of a case is recorded.
pub fn operation(case: &Case) -> Result<OperationKey, KeyError> {
    key(&draft(case)).render()
}

/// Our reference for it at the provider: by it the provider counts.
pub fn reference(tenant: &Tenant, case: &Case) -> Result<String, KeyError> {
    operation(case)?.wire("", tenant, 64)
}

/// What a provider offers, and what we say that it offers. All but the last say the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Class {
    ReplaysKeyWithLookup,
    ReplaysKey,
    RejectsKey,
    NaturalKey,
    Lookup,
    Blind,
    /// Declared as `ReplaysKey`, as its documentation says; in truth it ignores keys.
    IgnoresKey,
}

/// Calls a generic function with the class's workflow and tool.
macro_rules! with_tool {
    ($class:expr, |$workflow:ident, $tool:ident| $body:expr) => {
        match $class {
            Class::ReplaysKeyWithLookup => with_tool!(@ case_notice, SendNotice, $workflow, $tool, $body),
            Class::ReplaysKey | Class::IgnoresKey => {
                with_tool!(@ case_notice_by::<SendReplaysKey, sqlx::SqliteConnection>, SendReplaysKey, $workflow, $tool, $body)
            }
            Class::RejectsKey => {
                with_tool!(@ case_notice_by::<SendRejectsKey, sqlx::SqliteConnection>, SendRejectsKey, $workflow, $tool, $body)
            }
            Class::NaturalKey => {
                with_tool!(@ case_notice_by::<SendNaturalKey, sqlx::SqliteConnection>, SendNaturalKey, $workflow, $tool, $body)
            }
            Class::Lookup => with_tool!(@ case_notice_by::<SendLookup, sqlx::SqliteConnection>, SendLookup, $workflow, $tool, $body),
            Class::Blind => with_tool!(@ case_notice_by::<SendBlind, sqlx::SqliteConnection>, SendBlind, $workflow, $tool, $body),
        }
    };
    (@ $function:expr, $type:ident, $workflow:ident, $tool:ident, $body:expr) => {{
        let $workflow = $function;
        let $tool = |provider| $type { provider };
        $body
    }};
}

#[cfg(feature = "sim")]
pub(crate) use with_tool;

impl Class {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::ReplaysKeyWithLookup,
        Self::ReplaysKey,
        Self::RejectsKey,
        Self::NaturalKey,
        Self::Lookup,
        Self::Blind,
        Self::IgnoresKey,
    ];

    /// The name used in tables and arguments.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReplaysKeyWithLookup => "replays-key+lookup",
            Self::ReplaysKey => "replays-key",
            Self::RejectsKey => "rejects-key",
            Self::NaturalKey => "natural-key",
            Self::Lookup => "lookup",
            Self::Blind => "blind",
            Self::IgnoresKey => "ignores-key",
        }
    }

    /// How the provider really behaves.
    pub const fn provider(self) -> provider::Contract {
        match self {
            Self::ReplaysKeyWithLookup | Self::ReplaysKey => provider::Contract::ReplaysKey,
            Self::RejectsKey => provider::Contract::RejectsKey,
            Self::NaturalKey => provider::Contract::NaturalKey,
            Self::Lookup => provider::Contract::Lookup,
            Self::Blind => provider::Contract::Blind,
            Self::IgnoresKey => provider::Contract::IgnoresKey,
        }
    }

    /// An engine with the workflow and the tool of this class.
    pub fn engine(self, ledger: &Path, provider: Provider) -> EngineBuilder {
        let engine = Engine::sqlite(ledger);
        with_tool!(self, |workflow, tool| engine.workflow("case_notice", 1, workflow).tool(tool(provider)))
    }

    /// Starts the workflow for a case, or finds the run that was started for it.
    pub async fn start(self, tenant: &TenantClient, case: Case) -> Result<RunHandle<Receipt>, RunError> {
        let key = case.id.clone();
        with_tool!(self, |workflow, _tool| tenant.run(workflow, case).key(key).start().await)
    }
}

impl std::str::FromStr for Class {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        let class = Self::ALL.into_iter().find(|class| class.name() == name);
        class.ok_or_else(|| format!("there is no provider class {name:?}"))
    }
}
