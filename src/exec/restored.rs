//! The state of a ledger that may be older than the world. It is noted durably, one question is opened about it, and a
//! person lifts it. Until then each key's first send is preceded by a lookup (`ledger::restored`).
//!
//! The note and the question belong to a tenant of their own, [`Tenant::ledger`], because they concern the whole
//! ledger.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::core::Core;
use super::operation::Operation;
use super::outcome::ExecError;
use super::peers::Peers;
use super::restores::Declared;
use crate::clock::{Boot, Timestamp};
use crate::id::{Fence, QuestionId, Tenant};
use crate::ledger::{Origin, Record, Restored, first_sent, looks_first};
use crate::store::{
    Change, Document, LEDGER_ID, LEDGER_KIND, Question, QuestionKind, Refusal, Store as _, StoreError,
    Verdict,
};

/// The shortest interval between two marks of the file by effects.
const EVERY: Duration = Duration::from_mins(1);

/// The ledger's document about itself. It is open while the ledger is taken for older than the world.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Note {
    /// The last restore that was noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    restored: Option<Noted>,
    /// The database of a shared store in which the ledger was opened last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<Origin>,
    /// The first restore of its question, if the store went back once more while that restore was in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first: Option<Noted>,
}

impl Note {
    /// The first restore of this one's question.
    fn first(&self, noted: Noted) -> Noted {
        self.first.filter(|first| first.question == noted.question).unwrap_or(noted)
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Noted {
    since: i64,
    by: i64,
    as_of: Option<i64>,
    question: i64,
}

impl Noted {
    fn restored(self) -> Restored {
        Restored { since: Timestamp(self.since), by: Fence(self.by), as_of: self.as_of.map(Timestamp) }
    }
}

/// The document as it was read, or a new one if there is none.
#[derive(Default)]
struct Read {
    row: Option<Document>,
    note: Note,
}

impl Read {
    /// The restore that is in force, if there is one.
    fn in_force(&self) -> Option<Noted> {
        self.note.restored.filter(|_| self.row.as_ref().is_some_and(|row| row.open))
    }
}

impl Core {
    /// Notes that the ledger is older than the world, if the builder declared this or the database shows it, and opens
    /// one question. Called before any work is taken up.
    ///
    /// # Crash
    /// The note and the question are one transaction. A file is marked after that: a crash in between leaves the file
    /// in doubt.
    ///
    /// # Race
    /// Another worker may write the note at the same moment, perhaps without a restore. The note is then read again, and
    /// a restore that is not in force by then is written all the same: nobody else was told of it.
    pub(super) async fn recognise(&self, declared: Option<Declared>) -> Result<(), StoreError> {
        let mut seen = None;
        loop {
            let read = self.read_note().await?;
            match self.recognise_from(read, declared, &mut seen).await? {
                Verdict::Admitted => break,
                verdict if is_overtaken(&verdict) => {}
                Verdict::Refused(refusal) => return Err(StoreError::Io { detail: refusal.to_string() }),
            }
        }
        match &self.database {
            Some(database) => database.mark(false).await,
            None => Ok(()),
        }
    }

    /// The same on the note as it was read. `seen`: the sign that the database showed at an earlier attempt. The other
    /// worker may have noted the origin that showed it.
    async fn recognise_from(
        &self,
        read: Read,
        declared: Option<Declared>,
        seen: &mut Option<&'static str>,
    ) -> Result<Verdict, StoreError> {
        let (restored, as_of, told) = match declared {
            Some(Declared::Restored { as_of }) => (true, as_of, None),
            Some(Declared::Replaced { as_of }) => (false, as_of, Some("a copy was put into its place")),
            Some(Declared::Doubtful(why)) => (false, None, Some(why)),
            None => (false, None, None),
        };
        let noted = read.note.restored.map(|noted| noted.as_of);
        // Declared before with this instant, and perhaps lifted since.
        let said = restored && !(as_of.is_some() && noted == Some(as_of.map(|at| at.0)));
        let (shown, origin) = match &self.database {
            Some(database) => database.continuity(read.note.origin.as_ref()).await?,
            None => (None, None),
        };
        let doubt = told.or(shown).or(seen.filter(|_| read.in_force().is_none()));
        *seen = doubt;
        let why = if said { Some("`restored` was said when it was opened") } else { doubt };
        let is_on = read.in_force().is_some() || why.is_some();
        let why = why.filter(|_| read.in_force().is_none() || doubt.is_some());
        let verdict = if why.is_some() || (origin.is_some() && origin != read.note.origin) {
            self.write_note(read, origin, why, as_of).await?
        } else {
            Verdict::Admitted // the note stands as it is
        };
        if is_on && verdict.is_admitted() {
            self.note_restored();
        }
        Ok(verdict)
    }

    /// Notes that a shared store went back to an older state: rows of this worker are older than its last writes.
    ///
    /// A restore may be in force already. Then its `since` moves on, because the rows that this worker has written since
    /// came with the older state: without a lookup, a call that was sent again after that state would be sent once more.
    /// Its `as_of` stays: the calls of both restores were sent after it.
    pub(super) async fn went_back(&self) -> Result<(), StoreError> {
        let why = "the database went back to an older state while this worker was working on it";
        loop {
            let mut read = self.read_note().await?;
            if let Some(before) = read.in_force() {
                read.note.first = Some(read.note.first(before));
                read.note.restored = Some(Noted { since: self.now().0, ..before });
            }
            // A worker that is fenced finds that out with its next beat.
            if !is_overtaken(&self.write_note(read, None, Some(why), None).await?) {
                break;
            }
        }
        // A lost worker of the newer state may still send for one lease from here, also if an earlier restore was known.
        *self.restores.since.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.clock.boot());
        self.restores.is_on.store(true, Ordering::Release);
        Ok(())
    }

    /// Notes in memory that a restore is in force, noted by this worker or by another one.
    pub(super) fn note_restored(&self) {
        let mut since = self.restores.since.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.restores.is_on.swap(true, Ordering::AcqRel) {
            *since = Some(self.clock.boot());
        }
    }

    /// The instant by which an unknown sender of calls that this ledger lacks had ceased to send. Beside other workers:
    /// one lease after this worker learned of the restore, or its own start if there was no restore.
    pub(super) fn strangers_ceased(&self) -> Boot {
        match &self.peers {
            Peers::Alone { since } | Peers::Client { since, .. } => *since,
            Peers::Shared(shared) => {
                let noted = *self.restores.since.lock().unwrap_or_else(PoisonError::into_inner);
                noted.map_or(shared.since, |noted| Boot(noted.0 + shared.lease.length()))
            }
        }
    }

    async fn read_note(&self) -> Result<Read, StoreError> {
        let found = self.group.document_find(&Tenant::ledger(), LEDGER_KIND, LEDGER_ID).await?;
        let Some(row) = found else { return Ok(Read::default()) };
        let note = serde_json::from_str(&row.body).map_err(|error| StoreError::Corrupt {
            row: format!("document {LEDGER_KIND} {LEDGER_ID}"),
            detail: error.to_string(),
        })?;
        Ok(Read { row: Some(row), note })
    }

    /// Writes the ledger's origin. With `why`, also writes that the ledger is older than the world, and opens the
    /// question about it, unless it is open. Refused if another worker has written the note since it was read.
    async fn write_note(
        &self,
        read: Read,
        origin: Option<Origin>,
        why: Option<&str>,
        as_of: Option<Timestamp>,
    ) -> Result<Verdict, StoreError> {
        let (now, tenant) = (self.now(), Tenant::ledger());
        let in_force = read.in_force();
        let mut note = Note { origin: origin.or(read.note.origin), ..read.note };
        let mut change = self.change(None);
        let by = self.fence.0;
        match (why, in_force) {
            // One more restore: the rows of the workers since the first one came with a copy, too. The question is
            // open, and the instants of the first restore come before those of this one.
            (Some(_), Some(before)) => note.restored = Some(Noted { by, ..before }),
            (Some(why), None) => {
                let question = QuestionId(self.ids.next());
                tracing::warn!(%question, why, "ledger may be older than the world, first sends are looked up");
                let (since, as_of) = (now.0, as_of.map(|at| at.0));
                note.restored = Some(Noted { since, by, as_of, question: question.0 });
                change.escalations.push(asked(question, why, now));
            }
            (None, _) => {}
        }
        let open = why.is_some() || in_force.is_some();
        let (revision, created_at) = read.row.map_or((1, now), |row| (row.revision + 1, row.created_at));
        let first = Document::first(&tenant, LEDGER_KIND, LEDGER_ID.to_owned(), &note, now);
        change.documents.push(Document { revision, open, created_at, ..first });
        let verdict = self.group.commit_one(change).await?;
        if let Verdict::Refused(refusal) = &verdict {
            tracing::debug!(%refusal, "note about the ledger not written, another worker was first");
        }
        Ok(verdict)
    }

    /// True if the first send of this operation's key has to be preceded by its lookup.
    pub(super) async fn looks_first(
        &self,
        op: &Operation,
        found: Option<&Record>,
    ) -> Result<bool, ExecError> {
        let (spec, is_on) = (op.tool.spec(), self.restores.is_on.load(Ordering::Acquire));
        if !is_on {
            return Ok(found.is_none() && looks_first(spec.effect, &spec.contract, false));
        }
        // Boxed because this case is rare: every call would reserve its memory.
        let restored = Box::pin(self.restored()).await?;
        let may_lack = restored.is_some_and(|restored| restored.may_lack(found));
        Ok(looks_first(spec.effect, &spec.contract, may_lack) && (may_lack || found.is_none()))
    }

    /// The earliest instant at which the record's key may have been sent, and `true` if a lost ledger may have sent it
    /// once more than the record says.
    pub(super) async fn sent(&self, record: &Record) -> Result<(Timestamp, bool), ExecError> {
        let noted = if self.may_be_older() { Box::pin(self.noted()).await? } else { None };
        let may_lack = noted.is_some_and(|(restored, _)| restored.may_lack(Some(record)));
        // A record that was created after the first restore may be of a key that was used before it.
        let first = noted.map(|(_, first)| first);
        Ok((first_sent(record, first.as_ref()), may_lack))
    }

    /// True if the ledger may be older than the world, as far as this worker knows.
    pub(super) fn may_be_older(&self) -> bool {
        self.restores.is_on.load(Ordering::Acquire)
    }

    /// Reads the restore that is in force, each time, because another worker may have lifted it.
    pub(super) async fn restored(&self) -> Result<Option<Restored>, ExecError> {
        Ok(self.noted().await?.map(|(restored, _)| restored))
    }

    /// Reads the restore that is in force, and the first restore of its question.
    async fn noted(&self) -> Result<Option<(Restored, Restored)>, ExecError> {
        let read = self.read_note().await;
        let read = read.map_err(|source| ExecError::Store { key: Tenant::ledger().to_string(), source })?;
        self.restores.is_on.store(read.in_force().is_some(), Ordering::Release);
        Ok(read.in_force().map(|noted| (noted.restored(), read.note.first(noted).restored())))
    }

    /// The question about the restore that is in force.
    pub(super) async fn restored_question(&self) -> Result<Option<QuestionId>, ExecError> {
        let read = self.read_note().await;
        let read = read.map_err(|source| ExecError::Store { key: Tenant::ledger().to_string(), source })?;
        Ok(read.in_force().map(|noted| QuestionId(noted.question)))
    }

    /// Adds to `change`, which answers the question, that the restore is lifted.
    pub(super) async fn lifted(&self, change: &mut Change) -> Result<(), StoreError> {
        if let Some(row) = self.read_note().await?.row.filter(|row| row.open) {
            let (revision, updated_at) = (row.revision + 1, self.now());
            change.documents.push(Document { revision, open: false, updated_at, ..row });
        }
        Ok(())
    }

    /// Marks the file now and then when an effect begins, so that an older copy of it can be recognised.
    pub(super) fn raise_count(&self) {
        let Some(database) = self.database.as_ref().filter(|database| database.keeps_mark()) else { return };
        let now = self.clock.boot();
        {
            let mut raised = self.restores.raised.lock().unwrap_or_else(PoisonError::into_inner);
            if raised.is_some_and(|last| last.until(now) < EVERY) {
                return;
            }
            *raised = Some(now);
        }
        let database = database.clone();
        self.tracker.spawn(async move {
            if let Err(error) = database.mark(true).await {
                tracing::warn!(%error, "database not marked, an older state may not be recognised");
            }
        });
    }
}

/// True if another worker has written the note since it was read, so that it is to be read again.
const fn is_overtaken(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Refused(Refusal::Exists | Refusal::Stale))
}

fn asked(id: QuestionId, why: &str, now: Timestamp) -> Question {
    let question = format!(
        "This ledger may be older than the world: {why}. Until this is lifted, each first send of a key is preceded by its lookup, \
         and a call that cannot be looked up asks. A restore also takes back: answers to questions, approvals, signals, \
         published events and processed messages since then; see to these by hand. If nothing was lost, or when all is seen \
         to, lift it: `counterfoil lift-restored`, `executor.lift_restored(by, because)`, or answer `lift`."
    );
    Question {
        id,
        tenant: Tenant::ledger(),
        record: None,
        run: None,
        kind: QuestionKind::Restored,
        question,
        opened_at: now,
        waiting: None,
        answer: None,
    }
}
