//! The reconciliation of a call of unknown outcome, before anything is sent again.
//!
//! The ledger decides the order of the steps ([`resolve::next`]); here they are carried out.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use super::attempt::{Again, Ambiguous, Begun, again};
use super::completion::{self, HandedOver};
use super::contact;
use super::core::Core;
use super::declared::{Bound, Settling};
use super::escalate::{self, Doubt};
use super::fate::Fate;
use super::lookup::{Inquiry, ask, unsettled};
use super::noting::call;
use super::operation::Operation;
use super::outcome::{ExecError, admitted, failed};
use super::pending::{self, Accepted};
use super::seal::{Known, refuse, seal};
use super::surplus;
use super::throttle::{Pass, Turn, health};
use super::traced;
use crate::clock::{Boot, Timestamp};
use crate::id::{Fence, QuestionId};
use crate::ledger::resolve::{self, Looked, Next, Why};
use crate::ledger::{
    Basis, Contract, Event, Found, Health, LookupResult, Record, apply, are_two_effects, first_sent,
};
use crate::payload::Response;
use crate::store::{Document, Evidence, QuestionKind, Refusal, Store as _, Verdict};
use crate::tool::ToolError;

/// Finds the outcome of the call. While `leave` is true nobody wants the call any more: it is looked up, but not sent
/// again.
pub(super) async fn reconcile(
    core: &Arc<Core>,
    op: &Operation,
    ambiguous: Ambiguous,
    leave: impl Fn() -> bool,
) -> Result<Fate, ExecError> {
    let before = ambiguous.record.clone();
    let Some(mut search) = Search::adopt(core, op, ambiguous).await? else { return Ok(Fate::Changed) };
    core.ceased.note(&search.record, search.cut);
    let next = search.next(search.known(Looked::NotYet, search.remaining().is_zero(), leave()));
    let (attempt, external_ref) = (search.record.attempts, search.record.external_ref.as_deref());
    log_call!(info, op, next = next.name(), attempt, external_ref, "call outcome unknown, reconciling");
    traced::lost(core, op, &before);
    count!(core.meter, AMBIGUOUS of &op.tenant, op.name());
    let fate = settle(&mut search, leave).await?;
    fate.note(core, op);
    if matches!(fate, Fate::Left(..) | Fate::Later(_)) {
        return search.leave(fate).await;
    }
    core.ceased.forget(search.record.id);
    Ok(fate)
}

async fn settle(search: &mut Search<'_>, leave: impl Fn() -> bool) -> Result<Fate, ExecError> {
    let (core, op) = (search.core, search.op);
    let (mut looked, mut is_begun) = (Looked::NotYet, false);
    loop {
        // Checked also after each wait, because a late answer may have come meanwhile.
        if let Some(fate) = search.by_evidence().await? {
            return Ok(fate);
        }
        if let Some(fate) = search.by_completion().await? {
            return Ok(fate);
        }
        let settled = search.remaining().is_zero();
        let next = search.next(search.known(looked, settled, leave()));
        if std::mem::replace(&mut is_begun, true) {
            log_call!(debug, op, next = next.name(), "reconciliation goes on");
        }
        let basis = match next {
            Next::Look => match search.look().await? {
                Ok(fate) => return Ok(fate),
                Err(missed) => match missed.looked(search.bound.lookup_in_scope, settled) {
                    Ok(missed) => {
                        looked = missed;
                        continue;
                    }
                    Err(wait) => return Ok(Fate::Later(wait)),
                },
            },
            Next::Settle => {
                core.clock.sleep(search.remaining()).await;
                continue;
            }
            Next::Resend { on_declaration: true } => Basis::Declaration,
            Next::Resend { on_declaration: false } | Next::SendAndConfirm => Basis::Answer,
            Next::Repeat => Basis::Repeat,
            Next::Escalate(why) => return search.escalate(why).await,
        };
        if !leave() {
            search.pause().await; // the caller may go away during the pause
        }
        if leave() {
            return Ok(Fate::Left(search.record.clone(), looked));
        }
        let pass = match search.turn().await? {
            Ok(pass) => pass,
            Err(fate) => return Ok(fate),
        };
        // During the pause and the wait for the turn a need of the send may have lapsed: decided again. The turn is
        // paid for.
        let known = resolve::Known { attempts_left: true, ..search.known(looked, settled, leave()) };
        if leave() || search.next(known) != next {
            continue;
        }
        return search.send(basis, pass, looked).await;
    }
}

/// Takes up a record that was parked because its tool was not registered, if its outcome can be found by now: by the
/// tool, or by the late answer of a fenced worker. `false` if the question stays open.
///
/// # Crash
/// The withdrawal is durable, and the record is `started` again: the next worker reconciles it.
pub(super) async fn unpark(
    core: &Arc<Core>,
    op: &Operation,
    record: &Record,
    question: QuestionId,
) -> Result<bool, ExecError> {
    let asked = core.group.escalation_find(&op.tenant, question).await;
    let Some(asked) = asked.map_err(|source| failed(&op.key, source))? else { return Ok(false) };
    if asked.kind != QuestionKind::UnknownTool || asked.to_be_read().is_some() {
        return Ok(false);
    }
    let ambiguous = Ambiguous::new(Box::new(record.clone()), core.ceased(record));
    let search = Search::of(core, op, ambiguous).await?;
    let next = || search.next(search.known(Looked::NotYet, search.remaining().is_zero(), false));
    let tells_more = |late: &Evidence| late.tells_more(&search.record);
    if !search.evidence().await?.iter().any(tells_more) && matches!(next(), Next::Escalate(_)) {
        return Ok(false); // the same question would be opened again
    }
    let _ = escalate::withdraw(core, op, record, asked).await?;
    Ok(true)
}

enum Missed {
    NotThere,
    NoAnswer,
    /// The provider shows an effect that another request has made.
    Foreign,
    /// The provider was not asked, because the call's turn does not come before this time.
    NotNow(Duration),
}

impl Missed {
    /// The state of the lookups after this one; the time until the next turn if the provider was not asked.
    const fn looked(self, is_in_scope: bool, settled: bool) -> Result<Looked, Duration> {
        match self {
            Self::NotThere if !is_in_scope => Ok(Looked::MissedElsewhere),
            Self::NotThere if settled => Ok(Looked::MissedSettled),
            Self::NotThere => Ok(Looked::MissedEarly),
            Self::NoAnswer => Ok(Looked::Unanswered),
            Self::Foreign => Ok(Looked::Foreign),
            Self::NotNow(wait) => Err(wait),
        }
    }
}

struct Search<'a> {
    core: &'a Arc<Core>,
    op: &'a Operation,
    record: Box<Record>,
    cut: Boot,
    refused_as_duplicate: bool,
    hopeless: bool,
    retry_after: Option<Duration>,
    /// The earliest instant at which the call's key may have been sent.
    first_sent: Timestamp,
    /// The terms by which the call is settled.
    bound: Bound,
    /// The late answers that were read, by worker and attempt.
    evidence: Box<[(Fence, u32)]>,
    /// The effect of another request that the lookup shows, in words.
    foreign: Option<String>,
    /// The row of the completion that settles the record.
    completion: Option<Document>,
}

impl<'a> Search<'a> {
    /// Takes the dead attempt over, so that its worker's answer can no longer change the record. Without this a
    /// zombie's seal and this worker's would race. `None` if the record has changed.
    async fn adopt(
        core: &'a Arc<Core>,
        op: &'a Operation,
        ambiguous: Ambiguous,
    ) -> Result<Option<Self>, ExecError> {
        let mut search = Self::of(core, op, ambiguous).await?;
        let (first_sent, was_sent_since) = core.sent(&search.record).await?;
        search.first_sent = first_sent;
        if let Some(changes) = search.bound.changes(core, op) {
            log_call!(warn, op, changes, "declaration of the tool changed since the call went out");
        }
        // Of two attempts one may still arrive after the other is found. So the record is in doubt and looked up again.
        let in_doubt = search.record.in_doubt || was_sent_since && search.record.class.leaves_mark();
        let now = core.now();
        let is_anothers = search.record.fence != core.fence;
        let told = op.take_contact().or_else(|| contact::lost(&search.record, now).filter(|_| is_anothers));
        if told.is_some() || is_anothers || search.record.in_doubt != in_doubt {
            let event = Event::Adopt { fence: core.fence };
            let Ok(adopted) = apply(&search.record, event, core.fence, now) else { return Ok(None) };
            let adopted = Box::new(Record { in_doubt, ..adopted });
            let mut change = core.change(op.lane).record(adopted.clone());
            change.contacts.extend(told);
            core.commit(&op.key, change).await?;
            search.record = adopted;
        }
        Ok(Some(search))
    }

    /// Leaves the record to others. Its run may go on with another worker, which would otherwise wait as long as this
    /// worker lives.
    async fn leave(self, fate: Fate) -> Result<Fate, ExecError> {
        let Self { core, op, record, .. } = self;
        if !core.is_shared() {
            return Ok(fate);
        }
        let Ok(left) = apply(&record, Event::Leave, core.fence, core.now()) else { return Ok(Fate::Changed) };
        let left = Box::new(left);
        match core.group.commit_one(core.change(None).record(left.clone())).await {
            Ok(Verdict::Refused(Refusal::Stale)) => return Ok(Fate::Changed),
            verdict => admitted(&op.key, verdict)?,
        }
        Ok(match fate {
            Fate::Left(_, looked) => Fate::Left(left, looked),
            fate => fate,
        })
    }

    async fn of(core: &'a Arc<Core>, op: &'a Operation, ambiguous: Ambiguous) -> Result<Self, ExecError> {
        let Ambiguous { record, cut, refused_as_duplicate, hopeless, retry_after } = ambiguous;
        let first_sent = first_sent(&record, None);
        let bound = core.bound(op, &record).await?;
        let evidence = Box::default();
        let search = Self {
            core,
            op,
            record,
            cut,
            refused_as_duplicate,
            hopeless,
            retry_after,
            first_sent,
            bound,
            evidence,
            foreign: None,
            completion: None,
        };
        Ok(search)
    }

    const fn settling(&self) -> Settling<'_> {
        Settling { core: self.core, op: self.op, bound: &self.bound }
    }

    fn contract(&self) -> &Contract {
        self.bound.contract(self.op)
    }

    fn remaining(&self) -> Duration {
        unsettled(self.core, self.contract(), self.cut)
    }

    fn known(&self, looked: Looked, settled: bool, leave: bool) -> resolve::Known {
        let now = self.core.now();
        resolve::Known {
            looked,
            key_honoured: self.bound.key_in_scope && self.contract().key_is_safe(self.first_sent, now),
            settled,
            refused_as_duplicate: self.refused_as_duplicate,
            may_send: leave || (self.op.is_whole() && self.op.may_go_out(Some(&self.record), now).is_ok()),
            attempts_left: leave || (!self.hopeless && self.has_attempts_left(now)),
            noted: self.record.external_ref.is_some(),
        }
    }

    fn next(&self, known: resolve::Known) -> Next {
        resolve::next(self.bound.effect(self.op), self.contract(), &known)
    }

    fn has_attempts_left(&self, now: Timestamp) -> bool {
        self.record.tries() < self.op.tool.spec().retry.attempts
            && self.op.afford(self.record.attempts, now).is_ok()
    }

    /// Settles the call by the late answer of a fenced worker, before the provider or a person is asked.
    async fn by_evidence(&mut self) -> Result<Option<Fate>, ExecError> {
        let evidence = self.evidence().await?;
        let Some(first) = evidence.iter().find(|late| !late.is_accepted()).cloned() else {
            return self.by_acceptance(&evidence).await;
        };
        let class = self.contract().class;
        let is_another = |late: &Evidence| {
            (late.fence, late.attempt) != (first.fence, first.attempt)
                && are_two_effects(first.external_ref.as_deref(), late.external_ref.as_deref(), class)
        };
        let happened_again = evidence.iter().any(is_another);
        self.evidence = evidence.iter().map(|late| (late.fence, late.attempt)).collect();
        let found = if happened_again {
            let mut effects = Vec::with_capacity(evidence.len());
            for late in evidence {
                // The provider had accepted the call and not finished it.
                let output = if late.is_accepted() {
                    None
                } else {
                    Some(self.core.load_response(&self.op.tenant, &late.response).await?)
                };
                effects.push(Found { external_ref: late.external_ref, output });
            }
            LookupResult::Duplicated { effects }
        } else {
            let output = self.core.load_response(&self.op.tenant, &first.response).await?;
            LookupResult::Committed { output, external_ref: first.external_ref }
        };
        // The late answer tells of one attempt. It says nothing about another one that was sent on the provider's
        // declaration.
        let basis = if self.record.basis == Basis::Declaration { Basis::Declaration } else { Basis::Lookup };
        self.take(found, basis).await.map(Result::ok)
    }

    /// Makes the call wait because a fenced worker's call was accepted. It waits under the id that this worker learned.
    async fn by_acceptance(&self, evidence: &[Evidence]) -> Result<Option<Fate>, ExecError> {
        let Some(late) = evidence.iter().find(|late| late.tells_more(&self.record)) else { return Ok(None) };
        let accepted = Accepted { external_ref: late.external_ref.clone(), look_again: pending::PAUSE };
        let waits = pending::accept(self.settling(), &self.record, accepted).await?;
        Ok(Some(waits.map_or(Fate::Changed, Fate::Pending)))
    }

    /// Settles the call by the completion that a callback has handed over.
    async fn by_completion(&mut self) -> Result<Option<Fate>, ExecError> {
        let handed_over = completion::of(self.core, &self.record, self.contract().class).await?;
        let Some(HandedOver { finding, recorded }) = handed_over else { return Ok(None) };
        if let LookupResult::Failed { kind, message } = finding {
            let refused = refuse(self.settling(), &self.record, ToolError::new(kind, message)).await?;
            return Ok(Some(Fate::Failed(refused)));
        }
        self.completion = Some(recorded);
        self.take(finding, Basis::Answer).await.map(Result::ok)
    }

    async fn evidence(&self) -> Result<Vec<Evidence>, ExecError> {
        let evidence = self.core.group.record_evidence(&self.op.tenant, self.record.id).await;
        evidence.map_err(|source| failed(&self.op.key, source))
    }

    /// Asks the provider, as often as the tool's policy allows.
    async fn look(&mut self) -> Result<Result<Fate, Missed>, ExecError> {
        let call = call(self.core, self.op, &self.bound.declaration, &self.record);
        let policy = self.op.tool.spec().lookups;
        let attempts = policy.attempts.max(1);
        let mut lookup = 1;
        while lookup <= attempts {
            let passed = match self.core.queue_up(self.op, self.op.patience()).await? {
                Turn::Go(pass) => pass,
                Turn::Later(wait) => return Ok(Err(Missed::NotNow(wait))),
            };
            let inquiry = Inquiry { op: self.op, call: &call, record: Some(&self.record) };
            let Some(found) = ask(self.core, inquiry).await else { break };
            let health = health(&found);
            if let Some(passed) = passed {
                passed.tell(health, self.core.clock.boot());
            }
            match found {
                Ok(LookupResult::Unknown) => {}
                Ok(finding) => {
                    let limits = &self.core.limits;
                    let Ok(finding) = finding.try_map(|output| Ok::<_, Infallible>(output.response(limits)));
                    return self.take(finding, Basis::Lookup).await;
                }
                Err(error) => {
                    log_call!(info, self.op, lookup, %error, "lookup failed");
                }
            }
            let pause = policy.backoff.delay(lookup + 1, self.core.entropy.bits());
            // A provider that is away is protected by its breaker until it is back: no person has to be asked for that.
            if health != Health::Sick || !self.op.tool.spec().quota.has_breaker() {
                lookup += 1;
            }
            if lookup <= attempts {
                self.core.clock.sleep(pause).await;
            }
        }
        Ok(Err(Missed::NoAnswer))
    }

    /// Records the finding of a lookup, of evidence or of a completion.
    async fn take(
        &mut self,
        found: LookupResult<Response>,
        basis: Basis,
    ) -> Result<Result<Fate, Missed>, ExecError> {
        let mut known = Known {
            evidence: std::mem::take(&mut self.evidence),
            completion: self.completion.take(),
            ..Known::of(basis)
        };
        let output = match found {
            LookupResult::NotFound => return Ok(Err(Missed::NotThere)),
            LookupResult::Unknown => return Ok(Err(Missed::NoAnswer)),
            LookupResult::Failed { kind, message } => {
                return self.refused(ToolError::new(kind, message)).await;
            }
            LookupResult::Pending { external_ref, look_again } => {
                let accepted = Accepted { external_ref, look_again };
                let waits = pending::accept(self.settling(), &self.record, accepted).await?;
                return Ok(Ok(waits.map_or(Fate::Changed, Fate::Pending)));
            }
            LookupResult::Foreign { what } => {
                self.foreign = Some(what);
                return Ok(Err(Missed::Foreign));
            }
            LookupResult::Committed { output, external_ref } => {
                known.external_ref = external_ref;
                output
            }
            LookupResult::Duplicated { effects } => {
                // The confirming lookup finds the effects again and undoes the surplus. The look is durable until then.
                known.surplus = basis == Basis::Lookup
                    && effects.len() > 1
                    && surplus::undoes(self.core, &self.record, &effects);
                known.duplicated = (!known.surplus)
                    .then(|| escalate::duplicated(self.core, self.op, &self.record, &effects));
                let Some((output, external_ref)) = surplus::first(effects) else {
                    return Ok(Err(Missed::NoAnswer));
                };
                known.external_ref = external_ref;
                output
            }
        };
        self.core.group.room().await;
        let (outcome, ticket) = seal(self.settling(), &self.record, output, known)?;
        Ok(Ok(Fate::Committed(outcome, ticket)))
    }

    /// Takes the finding that the call failed. If a second send does not collide with the first at the provider,
    /// another request may be on its way: the finding counts once that is impossible, and a person decides if more than
    /// one request went out.
    async fn refused(&self, error: ToolError) -> Result<Result<Fate, Missed>, ExecError> {
        let known = self.known(Looked::NotYet, self.remaining().is_zero(), false);
        let collides = self.contract().class.collides() && known.key_honoured;
        if !self.bound.lookup_in_scope || !collides && !known.settled {
            return Ok(Err(Missed::NotThere));
        }
        if !collides && self.record.in_doubt {
            return Ok(Err(Missed::NoAnswer));
        }
        Ok(Ok(Fate::Failed(refuse(self.settling(), &self.record, error).await?)))
    }

    /// Asks a person about the call.
    async fn escalate(&self, why: Why) -> Result<Fate, ExecError> {
        let why = match why {
            Why::ApprovalExpired if self.op.rebuilt => Why::CallerGone,
            Why::Blind | Why::KeyExpired if self.record.attempts == 0 => Why::Restored,
            why => why,
        };
        let shown = self.foreign.as_deref().filter(|_| why == Why::Foreign);
        let id = escalate::park(self.core, self.op, &self.record, Doubt { why, shown }).await?;
        Ok(id.map_or(Fate::Changed, Fate::Parked))
    }

    /// Sleeps for the pause between two sends that the tool's policy wants.
    async fn pause(&mut self) {
        let retry = &self.op.tool.spec().retry;
        let drawn = retry.backoff.delay(self.record.tries() + 1, self.core.entropy.bits());
        let asked = self.retry_after.take().unwrap_or_default().min(retry.retry_after_cap);
        self.core.clock.sleep(drawn.max(asked)).await;
    }

    /// Waits for the turn of the next attempt.
    async fn turn(&self) -> Result<Result<Pass, Fate>, ExecError> {
        Ok(match self.core.turn(self.op, self.record.attempts, self.op.patience()).await? {
            Ok(Turn::Go(pass)) => Ok(pass),
            Ok(Turn::Later(wait)) => Err(Fate::Later(wait)),
            Err(_used_up) => Err(Fate::Changed), // another call of the run used the budget up: decide again
        })
    }

    /// Makes the next attempt durable. `looked`: the result of the last lookup.
    async fn send(&self, basis: Basis, pass: Pass, looked: Looked) -> Result<Fate, ExecError> {
        let going = Again { basis, unsettled: Some(self.cut), pass };
        Ok(match again(self.core, self.op, &self.record, going).await? {
            Begun::Durable(mut permit) => {
                if basis == Basis::Declaration {
                    permit.key_since = self.first_sent;
                }
                Fate::Send(permit)
            }
            Begun::Changed => Fate::Changed,
            Begun::TooLate => Fate::Left(self.record.clone(), looked),
        })
    }
}
