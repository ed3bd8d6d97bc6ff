//! `counterfoil token`: makes, lists and revokes the bearer tokens of the HTTP API.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::ledger::{Author, Ledger};
use super::shown;
use crate::rim::api::{Caller, Role, TenantScope, Tokens};

/// The number of tokens that are read at once.
const PAGE: u32 = 200;

#[derive(Subcommand)]
pub(super) enum Command {
    /// Makes a token and prints it once
    Create(Create),
    /// Lists the tokens, without their secrets
    List(List),
    /// Revokes a token: it is refused from the next request on
    Revoke(Revoke),
}

/// The caller that the token stands for.
#[derive(Args)]
pub(super) struct Create {
    #[command(flatten)]
    ledger: Ledger,
    /// The name of the person or the program
    name: String,
    /// The role: call, read, decide, operate or admin
    #[arg(long)]
    role: Role,
    /// The token is for all tenants, and for the ledger as a whole
    #[arg(long, conflicts_with = "tenant")]
    all_tenants: bool,
}

#[derive(Args)]
pub(super) struct List {
    #[command(flatten)]
    ledger: Ledger,
}

/// The token that is revoked.
#[derive(Args)]
pub(super) struct Revoke {
    #[command(flatten)]
    ledger: Ledger,
    #[command(flatten)]
    author: Author,
    /// The id of the token
    id: String,
}

pub(super) fn run(command: &Command) -> ExitCode {
    match command {
        Command::Create(options) => create(options),
        Command::List(options) => list(options),
        Command::Revoke(options) => revoke(options),
    }
}

fn create(options: &Create) -> ExitCode {
    options.ledger.run(async |client| {
        let tenants = if options.all_tenants { TenantScope::All } else { TenantScope::One(client.core().1) };
        let caller = Caller::new(&options.name, options.role, tenants)?;
        let token = Tokens::of(&client).create(caller).await?;
        if options.ledger.json {
            return Ok(shown::json(&json!({ "id": token.id(), "token": token.secret() }))?);
        }
        Ok(shown::text(token.secret())?)
    })
}

fn list(options: &List) -> ExitCode {
    options.ledger.run(async |client| {
        let (tokens, mut found, mut after) = (Tokens::of(&client), Vec::new(), None::<String>);
        loop {
            let page = tokens.list(after.as_deref(), PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.id.clone());
            found.extend(page);
        }
        let heads = ["TOKEN", "NAME", "ROLE", "TENANT", "MADE", "REVOKED BY"];
        Ok(shown::list(options.ledger.json, found, heads, |token| {
            let Caller { name, role, tenants, .. } = token.caller;
            let tenants = match tenants {
                TenantScope::One(tenant) => tenant.to_string(),
                TenantScope::All => "all".to_owned(),
            };
            let revoked = token.revoked_by.unwrap_or_default();
            [token.id, name, role.to_string(), tenants, token.created_at.to_string(), revoked]
        })?)
    })
}

fn revoke(options: &Revoke) -> ExitCode {
    options.ledger.run(async |client| {
        let id = &options.id;
        if !Tokens::of(&client).revoke(id, &options.author.author).await? {
            return Err(format!("there is no token {id}").into());
        }
        Ok(if options.ledger.json { shown::json(&json!({ "revoked": id })) } else { shown::text("revoked") }?)
    })
}
