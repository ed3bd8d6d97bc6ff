//! Figures of a tenant, day by day: duplicates avoided, effects that happened twice, conflicts, and open questions. They are
//! counted from the rows of the ledger, so that they hold for all processes and all restarts. Days are those of UTC.

use crate::clock::Timestamp;
use crate::exec::conflicts;
use crate::flow::TenantClient;
use crate::store::{AvoidedDuplicates, QuestionKind, QuestionSpan, Store as _, StoreError};

/// The number of days that are counted, today included.
pub(super) const DAYS: u32 = 30;
/// The maximum number of rows that are read of each sort, the newest ones.
pub(super) const MOST: u32 = 2000;

/// The length of a day, in microseconds.
const DAY: i64 = 86_400_000_000;

/// The number of a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) number: u64,
    /// False if there may be more, because the reading of rows stopped at [`MOST`].
    pub(super) is_all: bool,
}

impl std::ops::Add for Count {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { number: self.number + other.number, is_all: self.is_all && other.is_all }
    }
}

/// A number for each day.
pub(super) type Series = Vec<Count>;

/// The figures of the last days.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Figures {
    /// The days.
    pub(super) days: Days,
    /// The calls of unknown outcome that were settled because a lookup or a late answer showed their effects.
    pub(super) found: Series,
    /// The answers to runs from records that they do not own.
    pub(super) shared: Series,
    /// The effects that were found to have happened more than once.
    pub(super) twice: Series,
    /// The operations that were requested with another content than before. Such a request is refused.
    pub(super) conflicts: Series,
    /// The questions that were open at any time of the day.
    pub(super) open: Series,
}

/// The last days up to an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Days {
    /// The first day, counted from 1970-01-01.
    first: i64,
}

impl Days {
    /// The days up to the one of `now`.
    pub(super) fn up_to(now: Timestamp) -> Self {
        Self { first: now.0.div_euclid(DAY) + 1 - i64::from(DAYS) }
    }

    /// The beginnings of the days.
    pub(super) fn starts(self) -> impl DoubleEndedIterator<Item = Timestamp> + ExactSizeIterator {
        (0..DAYS).map(move |day| Timestamp((self.first + i64::from(day)) * DAY))
    }

    /// The beginning of the first day.
    pub(super) const fn since(self) -> Timestamp {
        Timestamp(self.first * DAY)
    }

    /// The number of intervals that touch each day. All that touch a day are given if the day begins at `from` or later.
    fn count(
        self,
        spans: &(impl Iterator<Item = (Timestamp, Timestamp)> + Clone),
        from: Timestamp,
    ) -> Series {
        let of_day = |start: Timestamp| {
            let touches = |(opened, closed): &(Timestamp, Timestamp)| {
                opened.0 < start.0 + DAY && closed.max(opened) >= &start
            };
            Count { number: spans.clone().filter(touches).map(|_| 1).sum(), is_all: start >= from }
        };
        self.starts().map(of_day).collect()
    }

    /// The number of instants on each day.
    fn count_instants(self, instants: impl Iterator<Item = Timestamp> + Clone, from: Timestamp) -> Series {
        self.count(&instants.map(|at| (at, at)), from)
    }
}

impl Figures {
    /// The duplicates avoided of each day.
    pub(super) fn avoided(&self) -> Series {
        self.found.iter().zip(&self.shared).map(|(found, shared)| *found + *shared).collect()
    }

    /// Counts the figures up to `now`.
    pub(super) fn of(rows: &Rows, now: Timestamp) -> Self {
        let Rows { avoided, questions, conflicts } = rows;
        let days = Days::up_to(now);
        let asked_from = read_from(questions.iter().map(|question| question.opened_at));
        let twice = questions.iter().filter(|question| question.kind == QuestionKind::Duplicated);
        let open = questions.iter().map(|asked| (asked.opened_at, asked.answered_at.unwrap_or(now)));
        let conflicts = conflicts.iter().copied();
        Self {
            days,
            found: days.count_instants(avoided.found.iter().copied(), avoided.from),
            shared: days.count_instants(avoided.shared.iter().copied(), avoided.from),
            twice: days.count_instants(twice.map(|question| question.opened_at), asked_from),
            conflicts: days.count_instants(conflicts.clone(), read_from(conflicts)),
            // A question that was opened before those that were read may be open still.
            open: days.count(&open, if asked_from > Timestamp::MIN { Timestamp::MAX } else { asked_from }),
        }
    }
}

/// The day (UTC) of an instant.
pub(super) fn date(at: Timestamp) -> String {
    at.to_string()[..10].to_owned()
}

/// The rows that the figures are counted from, the newest first.
pub(super) struct Rows {
    pub(super) avoided: AvoidedDuplicates,
    pub(super) questions: Vec<QuestionSpan>,
    /// The instants of the conflicts.
    pub(super) conflicts: Vec<Timestamp>,
}

/// The instant from which on all rows of a list were read.
fn read_from(mut newest_first: impl ExactSizeIterator<Item = Timestamp> + DoubleEndedIterator) -> Timestamp {
    let is_cut = newest_first.len() >= MOST as usize;
    newest_first.next_back().filter(|_| is_cut).unwrap_or(Timestamp::MIN)
}

/// The figures of a tenant up to `now`.
pub(super) async fn figures(client: &TenantClient, now: Timestamp) -> Result<Figures, StoreError> {
    let (core, tenant) = client.core();
    let rows = Rows {
        avoided: core.group.record_avoided(&tenant, Days::up_to(now).since(), MOST).await?,
        questions: core.group.escalation_spans(&tenant, MOST).await?,
        conflicts: conflicts(&core, &tenant, MOST).await?,
    };
    Ok(Figures::of(&rows, now))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp(20_000 * DAY + DAY / 2);
    const TODAY: usize = DAYS as usize - 1;

    /// The instant so many days before now.
    fn ago(days: i64) -> Timestamp {
        Timestamp(NOW.0 - days * DAY)
    }

    fn asked(kind: QuestionKind, opened: i64, answered: Option<i64>) -> QuestionSpan {
        QuestionSpan { kind, opened_at: ago(opened), answered_at: answered.map(ago) }
    }

    fn none() -> Rows {
        let avoided = AvoidedDuplicates { found: Vec::new(), shared: Vec::new(), from: ago(60) };
        Rows { avoided, questions: Vec::new(), conflicts: Vec::new() }
    }

    /// The days with a number above zero.
    fn counted(series: &Series) -> Vec<(usize, u64)> {
        let days = series.iter().enumerate();
        days.map(|(day, count)| (day, count.number)).filter(|(_, number)| *number > 0).collect()
    }

    #[test]
    fn each_number_is_counted_on_its_day() {
        let at = |days: &[i64]| days.iter().copied().map(ago).collect();
        let rows = Rows {
            avoided: AvoidedDuplicates { found: at(&[0, 0, 3, 40]), shared: at(&[1]), from: ago(60) },
            questions: vec![
                asked(QuestionKind::Duplicated, 0, None),
                asked(QuestionKind::Ambiguous, 2, Some(1)),
                asked(QuestionKind::Diverged, 100, Some(28)),
            ],
            conflicts: at(&[2, 2]),
        };
        let figures = Figures::of(&rows, NOW);
        assert_eq!(counted(&figures.found), [(TODAY - 3, 1), (TODAY, 2)]);
        assert_eq!(counted(&figures.shared), [(TODAY - 1, 1)]);
        assert_eq!(counted(&figures.twice), [(TODAY, 1)]);
        assert_eq!(counted(&figures.conflicts), [(TODAY - 2, 2)]);
        assert_eq!(counted(&figures.open), [(0, 1), (1, 1), (TODAY - 2, 1), (TODAY - 1, 1), (TODAY, 1)]);
        let starts: Vec<_> = figures.days.starts().collect();
        assert_eq!((starts.len(), starts[TODAY]), (TODAY + 1, Timestamp(20_000 * DAY)));
    }

    #[test]
    fn a_day_of_which_not_all_rows_were_read_is_told() {
        let rows = Rows {
            avoided: AvoidedDuplicates { found: vec![ago(1)], shared: Vec::new(), from: ago(5) },
            questions: vec![asked(QuestionKind::Duplicated, 3, None); MOST as usize],
            conflicts: vec![ago(4); MOST as usize],
        };
        let figures = Figures::of(&rows, NOW);
        let partly = |series: &Series| series.iter().filter(|count| !count.is_all).count();
        let all = [&figures.found, &figures.shared, &figures.twice, &figures.conflicts, &figures.open];
        assert_eq!(all.map(partly), [TODAY - 4, TODAY - 4, TODAY - 2, TODAY - 3, TODAY + 1]);
        assert_eq!(figures.open[TODAY], Count { number: MOST.into(), is_all: false });
    }

    proptest! {
        #[test]
        fn an_open_question_counts_on_each_day_from_its_opening_to_its_answer(
            opened in -40 * DAY..DAY, length in proptest::option::of(-DAY..40 * DAY)
        ) {
            let opened_at = Timestamp(NOW.0 + opened);
            let answered_at = length.map(|length| Timestamp(opened_at.0 + length));
            let asked = QuestionSpan { kind: QuestionKind::Ambiguous, opened_at, answered_at };
            let figures = Figures::of(&Rows { questions: vec![asked], ..none() }, NOW);
            let closed = answered_at.unwrap_or(NOW).max(opened_at);
            for (start, count) in figures.days.starts().zip(&figures.open) {
                let is_touched = opened_at < Timestamp(start.0 + DAY) && closed >= start;
                let expected = Count { number: u64::from(is_touched), is_all: true };
                prop_assert_eq!(*count, expected, "{}", start);
            }
        }
    }
}
