//! The bound of a step's result, which says what to do where a type does not meet it.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A value that can be recorded: every type that implements serde's `Serialize` and `DeserializeOwned`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be recorded as the result of a step",
    note = "derive `serde::Serialize` and `serde::Deserialize` for it, and for what it holds",
    note = "an `async` block: use `ctx.step_async` or `ctx.try_step_async`, since the closure of `ctx.step` is synchronous",
    note = "a `Result`: use `ctx.try_step` or `ctx.try_step_async`, which take any error"
)]
pub trait Recordable: Serialize + DeserializeOwned {}

// Otherwise the compiler reports the missing serde trait of a part, and lists hundreds of other types.
#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned> Recordable for T {}
