//! The lookup of a call at its provider, made once, in the call's turn.

use std::sync::Arc;
use std::time::Duration;

use super::contact;
use super::core::Core;
use super::declared::Settling;
use super::escalate;
use super::noting::{call, unsent};
use super::operation::Operation;
use super::outcome::{ExecError, failed};
use super::surplus;
use super::throttle::{Turn, health};
use super::tool_code;
use super::traced;
use crate::clock::Boot;
use crate::ledger::{Contract, Found, Look, LookupResult, Record};
use crate::payload::Payload;
use crate::store::{Question, Store as _};
use crate::tool::{Call, ToolError};

/// The rest of the settle time on the boot clock, counted in full from the instant at which the sender was cut off.
pub(super) fn unsettled(core: &Core, contract: &Contract, cut: Boot) -> Duration {
    contract.settle_time().saturating_sub(cut.until(core.clock.boot()))
}

/// A lookup: the operation, the call as its tool gets it, and the record that keeps the lookup, if there is one yet.
#[derive(Clone, Copy)]
pub(super) struct Inquiry<'a> {
    pub(super) op: &'a Operation,
    pub(super) call: &'a Call,
    pub(super) record: Option<&'a Record>,
}

/// Asks the provider once, and keeps the lookup in the history of its record. `None` if the tool has no lookup.
pub(super) async fn ask(
    core: &Core,
    Inquiry { op, call, record }: Inquiry<'_>,
) -> Option<Result<LookupResult<Payload>, ToolError>> {
    let began = core.now();
    let call = &Call { trace: Some(Arc::new(traced::lookup(op, began))), ..call.clone() };
    let spec = op.tool.spec();
    let within = spec.lookups.timeout.unwrap_or(spec.retry.attempt_timeout);
    let found = tool_code::run(core, within, "the lookup timed out", || op.tool.reconcile(call)).await?;
    count!(core.meter, LOOKUPS of &op.tenant, op.name(), found.as_ref().map_or("no answer", LookupResult::name));
    traced::looked_up(core, op, began, &found);
    if let Some(record) = record {
        contact::looked_up(core, (op, record), began, &found).await;
    }
    Some(found)
}

/// Asks the provider once, in the operation's turn. `None` if the tool has no lookup, or if the turn does not come in
/// time.
pub(super) async fn look_once(
    core: &Arc<Core>,
    inquiry: Inquiry<'_>,
    patience: Option<Duration>,
) -> Result<Option<Result<LookupResult<Payload>, ToolError>>, ExecError> {
    let Turn::Go(pass) = core.queue_up(inquiry.op, patience).await? else { return Ok(None) };
    let found = ask(core, inquiry).await;
    if let (Some(passed), Some(found)) = (pass, &found) {
        passed.tell(health(found), core.clock.boot());
    }
    Ok(found)
}

/// The result of a look at a record with an open question about its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// The outcome of the call: at least one effect, the late answer of a fenced worker, or a certain failure.
    Fate,
    /// No effect of the call.
    Nothing,
    /// The provider has accepted the call and has not finished it. Holds the pause before the next look.
    Pending(Duration),
    /// The lookup had no answer, or could not be made.
    Unanswered,
}

/// A look that was made, and what it has shown.
pub(super) struct Glance<'a> {
    pub(super) look: &'a Look,
    /// The contract that says when the next look is made.
    pub(super) contract: &'a Contract,
    pub(super) shown: Shown,
}

impl Shown {
    /// The name used in messages.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Fate => "outcome",
            Self::Nothing => "nothing",
            Self::Pending(_) => "unfinished",
            Self::Unanswered => "no answer",
        }
    }
}

/// Looks up a record with an open question about its outcome.
pub(super) async fn show(
    Settling { core, op, bound }: Settling<'_>,
    record: &Record,
    patience: Option<Duration>,
) -> Result<Shown, ExecError> {
    let evidence = core.group.record_evidence(&op.tenant, record.id).await;
    let evidence = evidence.map_err(|source| failed(&op.key, source))?;
    if evidence.iter().any(|late| late.tells_more(record)) {
        return Ok(Shown::Fate);
    }
    let call = call(core, op, &bound.declaration, record);
    show_to(core, Inquiry { op, call: &call, record: Some(record) }, patience).await
}

/// Looks an operation up before anything is sent for it.
pub(super) async fn show_unsent(core: &Arc<Core>, op: &Operation) -> Result<Shown, ExecError> {
    let declared = core.declare(op).await?;
    let call = unsent(op, &declared.declaration);
    show_to(core, Inquiry { op, call: &call, record: None }, op.patience()).await
}

async fn show_to(
    core: &Arc<Core>,
    inquiry: Inquiry<'_>,
    patience: Option<Duration>,
) -> Result<Shown, ExecError> {
    Ok(match look_once(core, inquiry, patience).await? {
        Some(Ok(
            LookupResult::Committed { .. } | LookupResult::Duplicated { .. } | LookupResult::Failed { .. },
        )) => Shown::Fate,
        Some(Ok(LookupResult::NotFound | LookupResult::Foreign { .. })) => Shown::Nothing,
        Some(Ok(LookupResult::Pending { look_again, .. })) => Shown::Pending(look_again),
        unanswered => {
            log_call!(info, inquiry.op, error = missed(unanswered.as_ref()), "lookup failed");
            Shown::Unanswered
        }
    })
}

/// Why a lookup tells nothing, for the log: what a lookup brings is a payload.
pub(super) fn missed<T>(shown: Option<&Result<LookupResult<T>, ToolError>>) -> String {
    match shown {
        None => "it could not be made".to_owned(),
        Some(Ok(LookupResult::Unknown)) => "the provider cannot tell".to_owned(),
        Some(Ok(LookupResult::Pending { .. })) => "the provider has not finished the call".to_owned(),
        Some(Ok(LookupResult::NotFound)) => "it shows nothing".to_owned(),
        Some(Ok(LookupResult::Failed { .. })) => "the provider says that the call failed".to_owned(),
        Some(Ok(LookupResult::Foreign { .. })) => "it shows what another request has made".to_owned(),
        Some(Ok(LookupResult::Committed { .. } | LookupResult::Duplicated { .. })) => {
            "what it shows cannot be believed".to_owned()
        }
        Some(Err(error)) => error.to_string(),
    }
}

/// The result of a look at a committed record.
pub(super) enum Seen {
    /// The effect, once.
    One,
    /// The lookup shows no effect.
    Nothing,
    /// More than one effect, or another effect after the first one was undone.
    More(Copies),
    /// The lookup had no answer, or could not be made.
    Unanswered,
}

/// The effects of an operation that happened more than once.
pub(super) struct Copies {
    /// The question about the duplicate.
    pub(super) question: Box<Question>,
    /// The effects other than the one that the record keeps.
    pub(super) surplus: Vec<Found<Payload>>,
}

/// Looks a committed record up.
pub(super) async fn see(core: &Arc<Core>, op: &Operation, record: &Record) -> Result<Seen, ExecError> {
    let bound = core.bound(op, record).await?;
    let call = call(core, op, &bound.declaration, record);
    let inquiry = Inquiry { op, call: &call, record: Some(record) };
    Ok(match look_once(core, inquiry, None).await? {
        Some(Ok(LookupResult::Duplicated { effects })) => Seen::More(Copies {
            question: Box::new(escalate::duplicated(core, op, record, &effects)),
            surplus: surplus::surplus(record, effects),
        }),
        // The effect was undone, and there is one with another id: the first request has arrived after that.
        Some(Ok(LookupResult::Committed { output, external_ref: Some(late) }))
            if bound.lookup_in_scope && surplus::is_late(record, &late) =>
        {
            let question = Box::new(escalate::late(core, record, &late));
            let surplus = vec![Found { external_ref: Some(late), output: Some(output) }];
            Seen::More(Copies { question, surplus })
        }
        // Under another scope the lookup says nothing about this record; the tool may have the first scope again later.
        Some(Ok(LookupResult::Committed { .. })) if bound.lookup_in_scope => Seen::One,
        Some(Ok(LookupResult::NotFound | LookupResult::Failed { .. } | LookupResult::Foreign { .. }))
            if bound.lookup_in_scope =>
        {
            Seen::Nothing
        }
        unanswered => {
            log_call!(warn, op, error = missed(unanswered.as_ref()), "confirming lookup failed");
            Seen::Unanswered
        }
    })
}
