//! The same payment as in `charge.rs`, as a declaration: its tool with key, lookup and errors.

use std::error::Error;
use std::time::Duration;

use counterfoil::ledger::{Contract, ContractClass, EffectClass};
use counterfoil::tool::DynamicTool;
use counterfoil::tool::http_tool::HttpTool;
use counterfoil::tool::lookup::HttpGet;

pub(crate) fn charge(url: &str) -> Result<DynamicTool, Box<dyn Error>> {
    let charges = HttpGet::list(format!("{url}?key={{token}}"), "/data", Duration::from_secs(5))?;
    let tool = HttpTool::post(url)
        .key_header("Idempotency-Key")
        .key_fields(["id"])
        .lookup(charges)
        .expects("/cents", "{cents}")
        .build()?;
    Ok(tool.dynamic("charge", EffectClass::Payment, Contract::new(ContractClass::ReplaysKey))?)
}
