//! `counterfoil erase`: a tenant, or the content of one of its calls.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::ledger::Whole;
use super::shown;
use crate::exec::{erase_record, erase_tenant};
use crate::id::{IdError, Tenant};
use crate::ledger::OperationKey;

/// What is erased.
#[derive(Args)]
pub(super) struct Options {
    #[command(flatten)]
    whole: Whole,
    /// The tenant
    #[arg(value_parser = named)]
    tenant: Tenant,
    /// Erase only the content of the call with this key; a tombstone is left
    #[arg(long)]
    key: Option<String>,
    /// The name of the tenant once more, without which nothing is erased
    #[arg(long, value_parser = named)]
    confirm: Tenant,
}

fn named(tenant: &str) -> Result<Tenant, IdError> {
    Tenant::new(tenant)
}

pub(super) fn run(options: &Options) -> ExitCode {
    options.whole.run(async |client| {
        let (core, tenant) = (client.core().0, &options.tenant);
        if options.confirm != *tenant {
            return Err(
                format!("--confirm names {}, and not {tenant}: nothing was erased", options.confirm).into()
            );
        }
        match &options.key {
            Some(key) => erase_record(&core, tenant, &OperationKey::stored(key.as_str())).await?,
            None => erase_tenant(&core, tenant).await?,
        }
        if options.whole.json {
            return Ok(shown::json(&json!({ "erased": tenant, "key": options.key }))?);
        }
        let left = options.key.as_ref().map_or("everything of it", |_| "the content of the call");
        Ok(shown::text(&format!("erased of tenant {tenant}: {left}"))?)
    })
}
