//! Hostile requests, thousands of them: forged paths, cursors, bodies, keys and tokens, fired at the router in this process. None may fail
//! the service, be told of another tenant's content, or change anything when it is refused.
//!
//! `COUNTERFOIL_REQUESTS` sets their number, and `COUNTERFOIL_SEED` the seed.

mod answer;
mod attack;
mod body;
mod draw;
mod odd;
mod scene;

use std::collections::{BTreeMap, BTreeSet};

use self::attack::{Attacker, Kind};
use self::draw::Draw;
use self::scene::Scene;

/// The number of requests, if the environment sets none.
const REQUESTS: usize = 12_000;

fn number(variable: &str) -> Option<usize> {
    std::env::var(variable)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

/// The answers so far.
#[derive(Default)]
struct Tally {
    refused: BTreeMap<Kind, usize>,
    taken: BTreeMap<Kind, usize>,
    /// The writes that were taken.
    writes: usize,
    codes: BTreeSet<String>,
}

impl Tally {
    fn of(&self, kind: Kind) -> (usize, usize) {
        let count = |all: &BTreeMap<Kind, usize>| all.get(&kind).copied().unwrap_or_default();
        (count(&self.refused), count(&self.taken))
    }

    async fn fire(&mut self, attacker: &mut Attacker<'_>, kind: Kind) {
        let shot = attacker.next(kind);
        let answer = attacker.scene.fire(&shot).await;
        answer.judge(&shot, &attacker.scene.secrets);
        if answer.is_refused() {
            *self.refused.entry(kind).or_default() += 1;
            self.codes.insert(answer.code());
        } else {
            *self.taken.entry(kind).or_default() += 1;
            self.writes += usize::from(shot.method == "POST");
        }
    }
}

#[tokio::test]
async fn hostile_requests_fail_nothing_tell_nothing_and_change_nothing_when_they_are_refused() {
    let requests = number("COUNTERFOIL_REQUESTS").unwrap_or(REQUESTS).max(REQUESTS);
    let seed = number("COUNTERFOIL_SEED").unwrap_or(21);
    let scene = Box::pin(Scene::new()).await;
    let mut attacker = Attacker { scene: &scene, draw: Draw::of(seed as u64) };
    let mut tally = Tally::default();
    println!("COUNTERFOIL_SEED={seed}");

    // While the first of them are fired, the engine writes what is left of the scene.
    let mut before = BTreeMap::new();
    for fired in 0..requests / 2 {
        if fired == requests / 20 {
            before = scene.rows(None).await;
        }
        let kind = Kind::refused(&mut attacker.draw);
        tally.fire(&mut attacker, kind).await;
    }
    assert!(before["run"].len() >= 16 && before["document"].len() >= 8, "there is something to change");
    for (table, rows) in scene.rows(None).await {
        assert_eq!(rows, before[&table], "COUNTERFOIL_SEED={seed}: refused requests have changed {table}");
    }
    for kind in Kind::REFUSED {
        let (refused, taken) = tally.of(kind);
        assert_eq!(taken, 0, "{kind:?}");
        let least = if kind == Kind::TooLarge { requests / 500 } else { requests / 40 };
        assert!(refused >= least, "only {refused} of {kind:?}");
    }

    let other = scene.rows(Some("other")).await;
    assert!(format!("{other:?}").contains(scene::CANARY));
    for _ in requests / 2..requests {
        let kind = *attacker.draw.of_all(&Kind::OPEN);
        tally.fire(&mut attacker, kind).await;
    }
    for kind in [Kind::Path, Kind::Query, Kind::Body] {
        assert!(tally.of(kind).0 >= requests / 100, "only {:?} of {kind:?}", tally.of(kind));
    }
    for kind in Kind::OPEN {
        assert!(tally.of(kind).1 >= requests / 800, "only {:?} of {kind:?}", tally.of(kind));
    }
    assert!(tally.writes >= requests / 100, "only {} writes were taken", tally.writes);
    let codes = [
        "unauthenticated",
        "forbidden",
        "not_found",
        "method_not_allowed",
        "request_too_large",
        "malformed",
        "name",
        "key",
    ];
    assert!(codes.iter().all(|code| tally.codes.contains(*code)), "{:?}", tally.codes);
    assert_eq!(scene.rows(Some("other")).await, other, "COUNTERFOIL_SEED={seed}: another tenant's rows");
    scene.still_works().await;
    println!(
        "{:?} refused, {:?} taken, {} writes, {:?}",
        tally.refused, tally.taken, tally.writes, tally.codes
    );
    scene.end().await;
}
