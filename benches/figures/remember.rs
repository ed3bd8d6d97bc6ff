//! The row about memory: the cost of remembering something for a tenant with few memories and for one with many.

use std::time::Instant;

use counterfoil::Engine;
use counterfoil::guard::memory::Outcome;
use futures_util::future::try_join_all;

use crate::options::Options;
use crate::place::{Database, Home};
use crate::report::{Finding, Values, median};
use crate::speed::multi_thread;
use crate::subject::{self, TENANT};

/// The number of memories of one subject, however many subjects there are.
const OF_SUBJECT: usize = 10;
const MANY: usize = 100_000;
const FEW: usize = 1_000;
/// The number of memories per round for each of the two engines, in turn; their medians count.
const SAID: usize = 200;
/// The number of concurrent writes while a tenant is being filled.
const AT_ONCE: usize = 200;

pub(crate) fn growth(options: &Options) -> Result<Vec<Finding>, String> {
    let home = Home::of(Database::Sqlite, options)?;
    let runtime = multi_thread();
    let (rounds, places) = (options.rounds, [home.place("many"), home.place("few")]);
    let measured = runtime.spawn(async move {
        let [many, few] = [subject::engine(&places[0]).await, subject::engine(&places[1]).await];
        fill(&many, MANY).await;
        fill(&few, FEW).await;
        let (mut in_many, mut in_few) = (Vec::new(), Vec::new());
        for round in 0..=rounds {
            let (mut at_many, mut at_few) = (Vec::new(), Vec::new());
            for nth in 0..SAID {
                let content = format!("says for the {round}th time that it likes shade number {nth}");
                at_many.push(microseconds(&many, nth * 37 % (MANY / OF_SUBJECT), &content).await);
                at_few.push(microseconds(&few, nth * 37 % (FEW / OF_SUBJECT), &content).await);
            }
            if round > 0 {
                in_many.push(median(&at_many));
                in_few.push(median(&at_few));
            }
        }
        for engine in [many, few] {
            engine.shutdown(subject::DRAIN).await;
        }
        (in_many, in_few)
    });
    let (many, few) = runtime.block_on(measured).expect("the rounds");
    let measure = format!(
        "remembering something new at {MANY} memories of a tenant ÷ at {FEW}, {OF_SUBJECT} of a subject"
    );
    let (many, few) = (Values::new("µs", many), Values::new("µs", few));
    Ok(vec![Finding::ratio("remember", measure, many, few).at_most(2.0, 1.2)])
}

async fn fill(engine: &Engine, memories: usize) {
    let acme = engine.tenant(TENANT).expect("a tenant");
    let subjects: Vec<_> = (0..memories / OF_SUBJECT).collect();
    for nth in 0..OF_SUBJECT {
        for some in subjects.chunks(AT_ONCE) {
            let say = |subject: &usize| {
                let content =
                    format!("is known to prefer the colour of number {}", subject * OF_SUBJECT + nth);
                acme.memory(format!("customer {subject}")).remember("preference", content).into_future()
            };
            try_join_all(some.iter().map(say)).await.expect("it is remembered");
        }
    }
}

async fn microseconds(engine: &Engine, subject: usize, content: &str) -> f64 {
    let customer = engine.tenant(TENANT).expect("a tenant").memory(format!("customer {subject}"));
    let start = Instant::now();
    let said = customer.remember("preference", content).await.expect("it is remembered");
    let elapsed = start.elapsed();
    assert_eq!(said.outcome, Outcome::New);
    elapsed.as_secs_f64() * 1e6
}
