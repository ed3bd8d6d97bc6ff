//! The decision about a new statement, made from the memories of its shelf alone. Pure.

use super::facts::{Kinship, Text};
use super::rows::Memory;
use super::shelves::Newest;
use super::{CERTAIN, Contradicts, Difference, Suggestion};

/// The number of a shelf's newest memories that are compared. Exact duplicates are found among all memories.
pub(super) const COMPARED: u32 = 128;
/// The maximum number of similar memories that are suggested, and of contradictions that are marked.
const SHOWN: usize = 8;
/// The minimum similarity at which a memory is suggested.
const SUGGESTED: f64 = 0.5;

/// The memory that a statement belongs to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Place<'a> {
    /// This memory, which says the same.
    Same(&'a Memory),
    /// This memory, because the caller asked for similar memories to be merged.
    Similar(&'a Memory, f64),
    /// No memory: the statement is new.
    New,
}

/// The comparison of a statement with its shelf, before similarity is computed.
pub(super) struct Compared<'a> {
    same: Option<&'a Memory>,
    /// The memories with the same facts, for which similarity may be computed.
    pub(super) akin: Vec<&'a Memory>,
    contradicts: Vec<Contradicts>,
}

/// Compares a text with the memories of a shelf, the newest first.
pub(super) fn compare<'a>(text: &Text, known: Option<&'a Memory>, newest: &'a Newest) -> Compared<'a> {
    let mut compared = Compared { same: known, akin: Vec::new(), contradicts: Vec::new() };
    for standing in newest.iter().filter(|standing| Some(standing.memory.id) != known.map(|known| known.id)) {
        let memory = &standing.memory;
        match text.kinship(&standing.text) {
            // The stored form comes from an earlier version of the normal form.
            Kinship::Same => compared.same = compared.same.or(Some(memory)),
            Kinship::Akin => compared.akin.push(memory),
            Kinship::Apart(Some(differs)) => compared.contradict(memory, differs),
            Kinship::Apart(None) => {}
        }
    }
    compared
}

impl<'a> Compared<'a> {
    fn contradict(&mut self, memory: &Memory, differs: Difference) {
        if self.contradicts.len() < SHOWN {
            self.contradicts.push(Contradicts { memory: memory.id, differs });
        }
    }

    /// The decision, given the similarity of each memory in `akin`, in the same order.
    pub(super) fn decide(self, scores: &[f64], merge_from: Option<f64>) -> Decision<'a> {
        let mut similar: Vec<_> = self.akin.into_iter().zip(scores.iter().copied()).collect();
        similar.retain(|(_, score)| *score >= SUGGESTED.min(merge_from.unwrap_or(SUGGESTED)));
        // The sort is stable: among equal scores the newest memory comes first.
        similar.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        similar.truncate(SHOWN);
        let best =
            similar.first().copied().filter(|(_, score)| merge_from.is_some_and(|from| *score >= from));
        let place = match (self.same, best) {
            (Some(same), _) => Place::Same(same),
            (None, Some((memory, score))) => Place::Similar(memory, score),
            (None, None) => Place::New,
        };
        let into = match place {
            Place::Same(memory) | Place::Similar(memory, _) => Some(memory.id),
            Place::New => None,
        };
        let others =
            similar.into_iter().filter(|(memory, score)| Some(memory.id) != into && *score >= SUGGESTED);
        let similar = others.map(|(memory, score)| Suggestion { memory: memory.id, score }).collect();
        // A memory that was merged into has its marks already.
        let contradicts = if into.is_none() { self.contradicts } else { Vec::new() };
        Decision { place, similar, contradicts }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Decision<'a> {
    pub(super) place: Place<'a>,
    pub(super) similar: Vec<Suggestion>,
    pub(super) contradicts: Vec<Contradicts>,
}

/// The confidence of a memory, in millionths, after one more source: sources are assumed to err independently of one
/// another. A source that repeats a statement counts once, with its highest confidence.
pub(super) fn grown(confidence: u32, said_before: Option<u32>, said: u32) -> u32 {
    let doubt = |confidence: u32| u64::from(CERTAIN.saturating_sub(confidence));
    let before = said_before.unwrap_or_default();
    if said <= before {
        return confidence;
    }
    // Replaces the source's earlier doubt by its present one.
    let left = doubt(confidence) * doubt(said) / doubt(before).max(1);
    confidence.max(CERTAIN.saturating_sub(u32::try_from(left).unwrap_or(CERTAIN)))
}

#[cfg(test)]
mod tests {
    use super::grown;

    #[test]
    fn confidence_grows_with_each_further_source() {
        assert_eq!(grown(500_000, None, 500_000), 750_000);
        assert_eq!(grown(750_000, Some(500_000), 500_000), 750_000, "the same source again");
        assert_eq!(grown(500_000, Some(500_000), 800_000), 800_000, "the same source, surer");
        assert_eq!(grown(1_000_000, None, 0), 1_000_000);
        assert_eq!(grown(0, None, 0), 0);
        assert_eq!(grown(300_000, Some(1_000_000), 1_000_000), 300_000);
    }
}
