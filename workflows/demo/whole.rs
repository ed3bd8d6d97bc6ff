//! The second part of the demo: the whole desk, killed at each crash point of its day.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::harness::Failed;
use super::harness::desk::{CLASS, Day, SENT, crossings, lived};
use super::harness::process::World;
use super::harness::scenario::Scenario;
use super::harness::trial::Place;
use super::table::{Tone, paint};
use super::{AT_ONCE, Progress};

/// What all days come to.
pub(crate) struct Desks {
    days: usize,
    /// Notices and corrections, as the provider counts them.
    sent: u64,
    duplicates: u64,
    losses: u64,
    /// What else is not as it should be: an event that was heard twice or not at all, a memory, an artifact, a case.
    wrong: Vec<String>,
}

/// A day without a death, and one for each point that it crosses.
pub(crate) async fn desks(place: &Place) -> Result<Desks, Failed> {
    let mut progress = Progress::new();
    progress.show("the whole desk");
    let healthy = Scenario::Crash(Vec::new()).behaviour(CLASS, place.pace);
    let world =
        Arc::new(World::start(&place.program, &place.folder.join("provider-desk.db"), &healthy).await?);
    let clean = lived(place, &world, "clean", None).await?;
    let mut points = BTreeSet::new();
    let mut kills = crossings(&clean.report);
    kills.retain(|at| points.insert(at.split(':').next().map(ToOwned::to_owned))); // the first crossing of each
    let total = kills.len();
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut trials = JoinSet::new();
    for kill in kills {
        let (place, slots, world) = (place.clone(), slots.clone(), world.clone());
        trials.spawn(async move {
            let _slot = slots.acquire_owned().await?;
            let name = kill.replace(':', "-");
            lived(&place, &world, &name, Some(kill)).await
        });
    }
    let mut days = vec![clean];
    while let Some(day) = trials.join_next().await {
        days.push(day??);
        progress.show(&format!("the whole desk: {} of {total} kills", days.len() - 1));
    }
    Desks::of(&days, &world).await
}

impl Desks {
    async fn of(days: &[Day], world: &World) -> Result<Self, Failed> {
        let effects = world.counted().await?.effects;
        let sent: u64 = effects.values().sum();
        let kinds = effects.len() as u64;
        Ok(Self {
            days: days.len(),
            sent,
            duplicates: sent - kinds,
            losses: (SENT * days.len() as u64).saturating_sub(kinds),
            wrong: days.iter().flat_map(|day| day.wrong.clone()).collect(),
        })
    }

    pub(crate) fn is_well(&self) -> bool {
        (self.duplicates, self.losses) == (0, 0) && self.wrong.is_empty()
    }

    pub(crate) fn json(&self) -> Value {
        json!({ "desk": {
            "days": self.days, "sent": self.sent, "duplicates": self.duplicates, "losses": self.losses, "wrong": self.wrong,
        }})
    }

    pub(crate) fn text(&self, colour: bool) -> String {
        let tone = if self.is_well() { Tone::Good } else { Tone::Bad };
        let counts =
            format!("{} duplicates, {} losses, {} forgotten", self.duplicates, self.losses, self.wrong.len());
        let mut text = format!(
            "the whole desk (reviewers, events, memory, a withdrawal), killed at {} points of its day: {} notices and \
             corrections sent\n{}\n",
            self.days - 1,
            self.sent,
            paint(tone, &counts, colour)
        );
        for wrong in &self.wrong {
            let _ = writeln!(text, "  {wrong}");
        }
        text
    }
}
