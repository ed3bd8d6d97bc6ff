//! Pages of a run's history. A run without loops is one turn, with any number of checkpoints and calls. So a page has a maximum size,
//! and a turn that does not fit is continued on the next page.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::page::Page;
use super::problem::Failed;
use crate::flow::{PastCall, PastStep, PastTurn, PastUse, RunHandle};
use crate::store::HistoryPlace;

/// The maximum size of the entries of a page, as JSON. One entry is always shown.
const BYTES: usize = 1 << 20;

/// The maximum size of a page, beside that in bytes.
#[derive(Clone, Copy, Debug)]
pub(in crate::rim) struct Limit {
    pub(in crate::rim) turns: u32,
    /// The number of checkpoints, calls and uses. One entry is always shown.
    pub(in crate::rim) entries: u32,
}

/// The place of an entry in its turn: the sort of the entry, the kind of a checkpoint, and the names that are unique among those.
type Place = (u8, i64, String, String);

/// The place behind which a page begins. A forged one is another place in the same run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(in crate::rim) enum After {
    /// A whole turn.
    Turn(u32),
    /// An entry of a turn.
    Entry(u32, Place),
}

impl After {
    pub(in crate::rim) fn read(text: &str) -> Result<Self, Failed> {
        serde_json::from_str(text).map_err(|_| Failed::malformed("This is no cursor of a run's history."))
    }

    fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| unreachable!("numbers and texts have a JSON form"))
    }

    /// The place in the words of the store.
    fn place(self) -> HistoryPlace {
        match self {
            Self::Turn(turn) => HistoryPlace::Turn(turn),
            Self::Entry(turn, (0, kind, name, id)) => HistoryPlace::Step { turn, kind, name, id },
            Self::Entry(turn, (1, _, key, _)) => HistoryPlace::Call { turn, key },
            Self::Entry(turn, (_, _, key, _)) => HistoryPlace::Use { turn, key },
        }
    }
}

/// A page of a run's history, from behind `after` on.
pub(in crate::rim) async fn read(
    run: &RunHandle<Value>,
    after: Option<After>,
    limit: Limit,
) -> Result<Page<PastTurn>, Failed> {
    let after = after.map_or(HistoryPlace::Start, After::place);
    // One entry more shows that there is a next page.
    Ok(page(run.history_page(&after, limit.entries.saturating_add(1)).await?, limit))
}

/// A page of these turns, which hold at least the first entries of the page.
fn page(turns: Vec<PastTurn>, limit: Limit) -> Page<PastTurn> {
    let mut room = Room { bytes: BYTES, entries: limit.entries, last: None, is_full: false };
    let mut items: Vec<PastTurn> = Vec::new();
    for mut turn in turns {
        if items.len() >= limit.turns as usize {
            let next = items.last().map(|last| After::Turn(last.turn).text());
            return Page { items, next };
        }
        let number = turn.turn;
        room.fill(number, &mut turn.steps, of_step);
        room.fill(number, &mut turn.calls, of_call);
        room.fill(number, &mut turn.uses, of_use);
        if !(turn.steps.is_empty() && turn.calls.is_empty() && turn.uses.is_empty()) {
            items.push(turn);
        }
        if room.is_full {
            return Page { items, next: room.last.map(|last| last.text()) };
        }
    }
    Page { items, next: None }
}

fn of_step(step: &PastStep) -> Place {
    (0, step.kind.code(), step.name.clone(), step.id.clone())
}

fn of_call(call: &PastCall) -> Place {
    (1, 0, call.key.as_str().to_owned(), call.step.clone())
}

fn of_use(used: &PastUse) -> Place {
    (2, 0, used.key.as_str().to_owned(), used.step.clone())
}

/// What is left of a page.
struct Room {
    bytes: usize,
    entries: u32,
    /// The last entry of the page.
    last: Option<After>,
    is_full: bool,
}

impl Room {
    /// Leaves those entries of a turn that have room on the page, in the order of their places.
    fn fill<T: Serialize>(&mut self, turn: u32, entries: &mut Vec<T>, place: fn(&T) -> Place) {
        entries.sort_by_cached_key(place);
        let fitting = entries.iter().take_while(|entry| self.takes(entry)).count();
        entries.truncate(fitting);
        if let Some(last) = entries.last() {
            self.last = Some(After::Entry(turn, place(last)));
        }
    }

    fn takes(&mut self, entry: &impl Serialize) -> bool {
        let size = serde_json::to_string(entry).map_or(0, |text| text.len());
        // The page after an empty one would begin at the same place.
        let is_first = self.bytes == BYTES;
        self.is_full |= (size > self.bytes || self.entries == 0) && !is_first;
        self.bytes = self.bytes.saturating_sub(size);
        self.entries = self.entries.saturating_sub(1);
        !self.is_full
    }
}
