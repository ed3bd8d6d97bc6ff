//! counterfoil
pub mod clock;
pub mod exec;
pub mod flow;
pub mod id;
pub mod ledger;
pub mod payload;
#[cfg(feature = "sim")]
pub mod sim;
pub mod store;
pub mod tool;

pub use clock::{Clock, SystemClock, Timestamp};
pub use exec::{Executor, Outcome, ToolRequest};
pub use flow::{Ctx, Engine, Failure};
pub use id::{EscalationId, Fence, IdError, Name, RecordId, RunId, Tenant, client_key};
pub use ledger::{Approval, Key, Package};
pub use payload::{Payload, PayloadError, Secret};
