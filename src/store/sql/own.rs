//! The statements of the user's own transactions.

use super::ask::Session;
use crate::payload::Payload;
use crate::store::Step;

/// Gives the checkpoint of a transaction its value; its mark was written before the closure ran.
pub(in crate::store) async fn fill<S: Session>(
    session: &mut S,
    step: &Step,
    value: &Payload,
) -> Result<(), sqlx::Error> {
    let sql = "UPDATE step SET value = $7 WHERE tenant = $1 AND run = $2 AND turn = $3 AND kind = $4 AND name = $5 AND id = $6";
    let place = [(&step.tenant).into(), step.run.0.into(), step.turn.into(), step.kind.code().into()];
    let named = [step.name.as_str().into(), step.id.as_str().into(), value.text().into()];
    session.finds(sql, &[place.as_slice(), &named].concat()).await.map(drop)
}
