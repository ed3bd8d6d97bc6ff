//! `counterfoil erase`: a tenant, the runs and calls with a label, or the content of one call.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::ledger::{Done, Whole};
use super::shown;
use crate::exec::{erase_record, erase_tenant};
use crate::flow::TenantClient;
use crate::id::{IdError, Tenant};
use crate::ledger::OperationKey;
use crate::rim::run_filter::Labelled;

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
    /// Erase only the runs with this label, with their calls, and the calls with this label; tombstones are left
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "key")]
    label: Option<Labelled>,
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
        if let Some(label) = &options.label {
            return labelled(&client.of_tenant(tenant.clone()), label, options.whole.json).await;
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

/// Erases by a label, and says what is left.
async fn labelled(client: &TenantClient, Labelled(name, value): &Labelled, as_json: bool) -> Done {
    let report = client.erase_labelled(name, value).await?;
    if as_json {
        shown::json(&report)?;
    } else {
        let (runs, calls) = (report.runs.len(), report.calls.len());
        shown::text(&format!(
            "erased by {name}={value}: {runs} runs and {calls} calls, which are tombstones now"
        ))?;
        let runs = report.kept.iter().map(|kept| &kept.why);
        let mut kept = runs.chain(report.kept_calls.iter().map(|kept| &kept.why));
        kept.try_for_each(|why| shown::text(&format!("kept: {why}")))?;
    }
    if !report.is_complete() {
        return Err(
            "not all runs and calls with the label were erased: erase again when they are at their end"
                .into(),
        );
    }
    Ok(())
}
