//! The repeated send of an effect that is recorded as done and missing, because a person says so. It is an operation of
//! its own, under the next revision of its key.

use std::sync::Arc;

use super::attempt::intent;
use super::carry::{Expect, carry_out};
use super::core::Core;
use super::operation::Operation;
use super::outcome::{ExecError, failed, unless_panicked};
use super::recorded::recorded;
use super::request::Wait;
use crate::id::RecordId;
use crate::ledger::{Intent, Owner, Record};
use crate::store::{Change, Store as _};

/// An operation to be sent again, whose record is part of a change.
pub(super) struct Repeated {
    op: Operation,
    record: RecordId,
}

/// Adds the record of the repeated operation to a change. Returns the operation to [carry out](begin) when the change
/// was written, or the reason why it cannot be repeated.
///
/// # Crash
/// The record is one transaction with the answer that asks for it. It is a record of unknown outcome that nobody has
/// sent: the next process takes it up like any other.
pub(super) async fn prepare(
    core: &Arc<Core>,
    record: &Record,
    change: &mut Change,
) -> Result<Result<Repeated, &'static str>, ExecError> {
    let Ok(mut op) = recorded(core, record).await? else {
        return Ok(Err(
            "its tool is not registered here, so it cannot be sent again: register it and start again",
        ));
    };
    let (true, Ok(approval)) = (op.is_whole(), op.may_go_out(None, core.now())) else {
        return Ok(Err(
            "to send it again takes what its caller had, an approval or a secret: call it again under a new revision of its \
             key (`Key::revision`), and answer `keep`",
        ));
    };
    loop {
        op.key = op.key.next_revision();
        if core.find(&op.tenant, &op.key).await?.is_none() {
            break;
        }
    }
    op.owner = Owner { call_id: op.owner.call_id.take(), ..Owner::default() };
    let (intent, large) = intent(core, &op, core.declare(&op).await?.id);
    let record = intent.id;
    change.record = Some(Box::new(Record::unsent(Intent { approval, ..intent }, core.now())));
    change.payloads.extend(large.map(|payload| (op.tenant.clone(), payload)));
    Ok(Ok(Repeated { op, record }))
}

/// Carries the operation out in the background, because the person who answers the question need not wait for it. The
/// question is closed: if the store is away now, nothing but another attempt would show that the call is not sent.
///
/// # Crash
/// The change may have been written although the answer of the store was lost. So the record decides: it is one
/// transaction with the answer, and without it nobody has asked for the send.
pub(super) fn begin(core: &Arc<Core>, Repeated { op, record }: Repeated) {
    let op = Arc::new(op);
    let asked_for = op.clone();
    let attempt = move |core: Arc<Core>| {
        let op = op.clone();
        async move {
            let sending = async {
                let found = core.group.record_at(&op.tenant, record).await;
                if found.map_err(|source| failed(&op.key, source))?.is_none() {
                    return Ok(());
                }
                let answered = carry_out(&core, op.clone(), Expect::Anything, Wait::ForOutcome).await?;
                answered.durable(&op.key).await
            };
            unless_panicked(&op.key, sending).await
        }
    };
    core.until_stored(attempt, move |error: ExecError| {
        log_call!(warn, asked_for, %error, "call not sent again, next process does it");
    });
}
