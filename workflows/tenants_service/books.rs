//! The books, which are no part of the service: a file in production, and a provider of our own in the simulated world.
//! They take no key, and an entry can be found by the reference that it was made with.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;

use counterfoil::Key;
use counterfoil::ledger::{self, LookupResult};
#[cfg(feature = "sim")]
use counterfoil::sim::World;
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use serde::{Deserialize, Serialize};

#[derive(Clone)]
pub enum Books {
    File(PathBuf),
    #[cfg(feature = "sim")]
    World(World),
}

#[derive(Clone, Serialize, Deserialize)]
pub struct Entry {
    pub order: String,
    pub cents: u64,
    pub payment: String,
}

/// Enters a payment.
pub struct Enter(pub Books);

#[allow(clippy::needless_pass_by_value, reason = "`map_err` hands it over")]
fn unknown(error: io::Error) -> ToolError {
    ToolError::unknown(error.to_string())
}

impl Tool for Enter {
    const NAME: &'static str = "enter";
    type Effect = effect::InternalMutation;
    type Contract = contract::Lookup;
    type Input = Entry;
    type Output = usize;

    fn contract(&self) -> ledger::Contract {
        // Nothing arrives in the file when the process that wrote it is dead.
        let declared = <Self::Contract as contract::Contract>::declaration();
        match self.0 {
            Books::File(_) => declared.ends_with_sender(),
            #[cfg(feature = "sim")]
            Books::World(_) => declared,
        }
    }

    /// A key is a tenant's own: `o-1` of one shop is not `o-1` of another.
    fn key(&self, entry: &Entry) -> Option<Key> {
        Some(Key::of(Self::NAME).target(&entry.order))
    }

    async fn call(&self, call: &Call, entry: &Entry) -> Result<Done<usize>, ToolError> {
        match &self.0 {
            Books::File(path) => {
                let file = File::options().append(true).create(true).open(path);
                let mut file = file.map_err(|error| ToolError::not_sent(error.to_string()))?;
                let line = format!("{} {} {} {}\n", call.key(), call.tenant(), entry.order, entry.cents);
                file.write_all(line.as_bytes()).map_err(unknown)?; // one write: several processes append
                Ok(Done::new(1))
            }
            #[cfg(feature = "sim")]
            Books::World(world) => {
                let reference = format!("{} {}", call.tenant(), entry.order);
                world
                    .send(call, move |request| {
                        request.happen("books", &reference);
                        Ok(Done::new(1))
                    })
                    .await
            }
        }
    }
}

impl Reconcile for Enter {
    async fn reconcile(&self, call: &Call, entry: &Entry) -> Result<LookupResult<usize>, ToolError> {
        let _ = entry;
        match &self.0 {
            Books::File(path) => {
                let text = match fs::read_to_string(path) {
                    Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
                    text => text.map_err(unknown)?,
                };
                Ok(text.lines().any(|line| line.starts_with(call.key())).then_some(1).into())
            }
            #[cfg(feature = "sim")]
            Books::World(world) => {
                let reference = format!("{} {}", call.tenant(), entry.order);
                world.find(call, "books", &reference).await?.try_map(|_| Ok(1))
            }
        }
    }
}
