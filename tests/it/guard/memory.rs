//! Memory (GUARD-3, HAZARDS I10 and I11): each thing is known once, whoever says it, however often and at once.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::flow::TenantClient;
use counterfoil::guard::memory::{Difference, Memories, MemoryError, Outcome, Page, Remembered, Similarity};
use counterfoil::{Ctx, Engine, Failure, MemoryId};
use futures_util::future::{BoxFuture, join_all};

use crate::flow;
use crate::flow::lives::{NAME, died_at, life, plain, stand};
use crate::flow::store::Tap;
use crate::flow::world::{Process, World};
use crate::store::postgres::Schema;

const MERGED: Outcome = Outcome::Merged { similarity: None };

fn process(world: &Arc<World>) -> Process {
    Process::start(world, world.engine())
}

/// Contents, how sure they are in hundredths, and how often they were said; the newest first.
fn known(page: &Page) -> Vec<(&str, u32, u32)> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 100")]
    let hundredths = |confidence: f64| (confidence * 100.0).round() as u32;
    page.memories.iter().map(|m| (m.content.as_str(), hundredths(m.confidence), m.sources)).collect()
}

async fn recalled(memories: &Memories<TenantClient>) -> Page {
    memories.recall("fact").await.unwrap()
}

#[test]
fn what_is_said_again_is_merged_and_stays_readable() {
    let world = World::new();
    let process = process(&world);
    process.on(async {
        let ann = process.acme().memory("ann");
        let first = ann.remember("fact", "Likes tea.").source("mail 1").confidence(0.5).await.unwrap();
        assert_eq!((first.outcome, first.confidence), (Outcome::New, 0.5));
        let again = ann.remember("fact", "likes  TEA").source("call 2").confidence(0.5).await.unwrap();
        assert_eq!((again.outcome, again.memory, again.confidence), (MERGED, first.memory, 0.75));
        // The same source says it once more, in a mail of another key: heard, and no surer for that.
        let third =
            ann.remember("fact", "likes tea").source("call 2").confidence(0.4).key("k").await.unwrap();
        assert_eq!((third.outcome, third.confidence), (MERGED, 0.75));
        assert_eq!(known(&recalled(&ann).await), [("Likes tea.", 75, 3)]);
        let said = ann.sources(first.memory, None).await.unwrap();
        let said: Vec<_> = said.iter().map(|s| (s.source.as_str(), s.content.as_str())).collect();
        assert_eq!(said, [("mail 1", "Likes tea."), ("call 2", "likes  TEA"), ("call 2", "likes tea")]);
        // The one that said it first is surer now, and says so twice: that counts once.
        for nth in 0..2 {
            let surer = ann
                .remember("fact", "likes tea")
                .source("mail 1")
                .confidence(0.6)
                .key(format!("surer {nth}"));
            let surer = surer.await.unwrap();
            assert_eq!((surer.outcome, surer.confidence), (MERGED, 0.8));
        }
        // Another subject, another kind, another tenant.
        let bob = process.acme().memory("bob").remember("fact", "likes tea").await.unwrap();
        let habit = ann.remember("habit", "likes tea").await.unwrap();
        let theirs = process.engine().tenant("globex").unwrap().memory("ann");
        let theirs = theirs.remember("fact", "likes tea").await.unwrap();
        assert!([bob, habit, theirs].iter().all(|said| said.outcome == Outcome::New));
    });
    process.shut_down();
}

// I10: a retry gets the first answer, and counts once.
#[test]
fn the_same_operation_again_gets_its_first_answer() {
    let world = World::new();
    let first = process(&world);
    let say =
        |acme: TenantClient| acme.memory("ann").remember("fact", "likes tea").source("mail").key("mail/1");
    let answer = first.on(async {
        let answer = say(first.acme()).await.unwrap();
        first.acme().memory("ann").remember("fact", "LIKES TEA").source("call").await.unwrap();
        assert_eq!(say(first.acme()).confidence(0.1).await.unwrap(), answer);
        let derived = first.acme().memory("ann").remember("fact", "owns a cat");
        assert_eq!(derived.await.unwrap().outcome, Outcome::New);
        let retried = first.acme().memory("ann").remember("fact", "owns a cat");
        assert_eq!(retried.await.unwrap().outcome, Outcome::New, "made of what was said: the first answer");
        let other = first.acme().memory("ann").remember("fact", "likes coffee").key("mail/1").await;
        assert!(
            matches!(other, Err(MemoryError::Conflict { ref memory, .. }) if *memory == answer.memory),
            "{other:?}"
        );
        answer
    });
    first.crash();
    let next = process(&world);
    next.on(async {
        assert_eq!(say(next.acme()).await.unwrap(), answer);
        let page = recalled(&next.acme().memory("ann")).await;
        assert_eq!(known(&page), [("owns a cat", 70, 1), ("likes tea", 91, 2)]);
    });
    next.shut_down();
}

#[test]
fn what_contradicts_stands_beside_and_is_marked() {
    let world = World::new();
    let process = process(&world);
    process.on(async {
        let ann = process.acme().memory("ann");
        let likes = ann.remember("fact", "likes tea").await.unwrap().memory;
        let dislikes = ann.remember("fact", "does not like tea").await.unwrap();
        assert_eq!(dislikes.outcome, Outcome::New);
        let marks = |page: &Page| -> Vec<_> {
            page.memories
                .iter()
                .map(|m| m.contradicts.iter().map(|c| (c.memory, c.differs)).collect::<Vec<_>>())
                .collect()
        };
        let by = Difference::Negation;
        assert_eq!(marks(&recalled(&ann).await), [vec![(likes, by)], vec![(dislikes.memory, by)]]);
        let orders = ann.remember("fact", "refund order 17").await.unwrap();
        let other = ann.remember("fact", "refund order 18").merge_similar(0.0).await.unwrap();
        assert_eq!((other.outcome, other.contradicts[0].memory), (Outcome::New, orders.memory));
        assert_eq!(other.contradicts[0].differs, Difference::Number);
        ann.forget(likes, "ann", "she said so").await.unwrap();
        assert_eq!(marks(&recalled(&ann).await)[2], [], "with nothing to contradict any more");
    });
    process.shut_down();
}

#[test]
fn similar_ones_are_suggested_and_merged_on_request() {
    let world = World::new();
    let process = process(&world);
    process.on(async {
        let ann = process.acme().memory("ann");
        let first = ann.remember("fact", "likes green tea").await.unwrap().memory;
        let plural = ann.remember("fact", "likes green teas").source("call").await.unwrap();
        assert_eq!(plural.outcome, Outcome::New);
        assert_eq!(plural.similar.iter().map(|s| s.memory).collect::<Vec<_>>(), [first]);
        let wants = |content: &str| ann.remember("fact", content).source("mail").merge_similar(0.5);
        let merged = wants("really likes green tea").await.unwrap();
        assert!(
            matches!(merged.outcome, Outcome::Merged { similarity: Some(score) } if score > 0.5),
            "{merged:?}"
        );
        // From now on it is known under that form, too.
        let again = ann.remember("fact", "Really likes green tea!").source("fax").await.unwrap();
        assert_eq!((again.outcome, again.memory), (MERGED, merged.memory));
        assert_eq!(wants("is allergic to nuts").await.unwrap().outcome, Outcome::New);
        assert_eq!(recalled(&ann).await.memories.len(), 3);
    });
    process.shut_down();
}

/// Whatever it is asked about is the same.
#[derive(Debug)]
struct Certain;

impl Similarity for Certain {
    fn scores<'a>(&'a self, _: &'a str, others: &'a [String]) -> BoxFuture<'a, Vec<f64>> {
        Box::pin(std::future::ready(vec![1.0; others.len()]))
    }
}

#[test]
fn another_similarity_speaks_only_where_the_facts_agree() {
    let world = World::new();
    let process = process(&world);
    process.on(async {
        let ann = process.acme().memory("ann").similarity(Certain);
        let first = ann.remember("fact", "enjoys a hot infusion").await.unwrap().memory;
        let alike = ann.remember("fact", "likes tea").merge_similar(0.9).await.unwrap();
        assert_eq!((alike.outcome, alike.memory), (Outcome::Merged { similarity: Some(1.0) }, first));
        for other in ["likes 2 teas", "does not like tea", "likes tea on Monday", "likes v1.2"] {
            let said = ann.remember("fact", other).merge_similar(0.0).await.unwrap();
            assert_eq!(said.outcome, Outcome::New, "{other}");
        }
    });
    process.shut_down();
}

#[test]
fn what_is_forgotten_is_gone_and_not_revived_by_a_retry() {
    let world = World::new();
    let process = process(&world);
    let ann = process.acme().memory("ann");
    process.on(async {
        let say = || ann.remember("fact", "has a secret-ailment").source("dr. who").key("visit/1");
        let memory = say().await.unwrap().memory;
        let page = recalled(&ann).await;
        assert_eq!(page.memories.len(), 1);
        let tomb = ann.forget(memory, "ann", "it is private").await.unwrap();
        assert_eq!((tomb.by.as_str(), tomb.reason.as_str()), ("ann", "it is private"));
        assert_eq!(ann.forget(memory, "bob", "again").await.unwrap(), tomb, "the first one stands");
        assert_eq!(recalled(&ann).await.memories, []);
        let late = say().await.unwrap();
        assert_eq!((late.outcome, late.memory), (Outcome::Forgotten, memory));
        assert_eq!(recalled(&ann).await.memories, []);
        let sources = ann.sources(memory, None).await.unwrap();
        assert!(sources.iter().all(|said| said.source.is_empty() && said.content.is_empty()), "{sources:?}");
        let anew = ann.remember("fact", "has a secret-ailment").key("visit/2").await.unwrap();
        assert!(anew.outcome == Outcome::New && anew.memory != memory, "{anew:?}");
        ann.forget(anew.memory, "ann", "and again").await.unwrap();
        let nobody = ann.forget(MemoryId(1), "ann", "?").await;
        assert!(matches!(nobody, Err(MemoryError::Unknown { .. })), "{nobody:?}");
        let not_his = process.acme().memory("bob").forget(memory, "ann", "?").await;
        assert!(matches!(not_his, Err(MemoryError::Unknown { .. })), "{not_his:?}");
    });
    drop(ann);
    process.on(async {
        let mut file = plain(&world).await;
        let words: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM document WHERE kind LIKE 'memory%' AND (body LIKE '%ailment%' OR body LIKE '%who%')",
        )
        .fetch_one(&mut file)
        .await
        .unwrap();
        assert_eq!(words, 0);
    });
    process.shut_down();
}

#[test]
fn pages_follow_one_another() {
    let world = World::new();
    let process = process(&world);
    process.on(async {
        let ann = process.acme().memory("ann");
        for number in 0..7 {
            ann.remember("fact", format!("owns book {number}")).await.unwrap();
        }
        let (mut all, mut page) = (Vec::new(), ann.recall("fact").limit(3).await.unwrap());
        loop {
            all.extend(page.memories.into_iter().map(|memory| memory.content));
            let Some(next) = page.next else { break };
            page = ann.recall("fact").from(next).limit(3).await.unwrap();
        }
        assert_eq!(all, (0..7).rev().map(|number| format!("owns book {number}")).collect::<Vec<_>>());
        // The last page is known by itself, also if it is full.
        for (limit, is_last) in [(6, false), (7, true), (8, true), (0, true), (u32::MAX, true)] {
            let page = ann.recall("fact").limit(limit).await.unwrap();
            assert_eq!(page.memories.len(), limit.min(7) as usize);
            assert_eq!(page.next.is_none(), is_last, "{limit}");
        }
    });
    process.shut_down();
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let world = World::new();
    let process = process(&world);
    process.on(async {
        let ann = process.acme().memory("ann");
        let say = |content: &str| ann.remember("fact", content);
        assert!(matches!(say("  \n").await, Err(MemoryError::Empty)));
        assert!(matches!(say(&"x".repeat(9000)).await, Err(MemoryError::TooLong { bytes: 9000 })));
        for refused in [
            say("x").key("~mine").await,
            say("x").key("").await,
            say("x").source("a\nb").await,
            ann.remember("", "x").await,
            process.acme().memory("").remember("fact", "x").await,
        ] {
            assert!(matches!(refused, Err(MemoryError::Id(_))), "{refused:?}");
        }
        assert!(matches!(ann.recall("").await, Err(MemoryError::Id(_))));
        assert_eq!(recalled(&ann).await.memories, []);
    });
    process.shut_down();
}

// I11: nobody's word is lost, and nobody's counts twice.
async fn all_say_it(tellers: Vec<TenantClient>) {
    let told = tellers.iter().enumerate().flat_map(|(teller, acme)| {
        (0..8).map(move |nth| {
            let content = if nth % 2 == 0 { "likes tea" } else { "does not like tea" };
            let say = acme.memory("ann").remember("fact", content).source(format!("{teller}/{nth}"));
            async move { say.confidence(0.1).await.unwrap() }
        })
    });
    let answers = join_all(told).await;
    let new = answers.iter().filter(|answer| answer.outcome == Outcome::New).count();
    assert_eq!(new, 2, "one of each: {answers:?}");
    let page = recalled(&tellers[0].memory("ann")).await;
    let said = u32::try_from(tellers.len() * 4).unwrap();
    assert_eq!(page.memories.iter().map(|memory| memory.sources).collect::<Vec<_>>(), [said, said]);
    let sure = 1.0 - 0.9_f64.powi(said.cast_signed());
    for memory in &page.memories {
        assert!((memory.confidence - sure).abs() < 0.001, "{memory:?}");
        assert_eq!(memory.contradicts.len(), 1, "each was decided upon with the other in sight");
        let sources = tellers[0].memory("ann").sources(memory.memory, None).await.unwrap();
        assert_eq!(sources.len(), said as usize);
    }
}

#[test]
fn tasks_that_say_it_at_once_lose_nothing() {
    let world = World::new();
    let process = process(&world);
    process.on(all_say_it(vec![process.acme(), process.acme(), process.acme()]));
    process.shut_down();
}

fn two_workers(world: &Arc<World>, schema: &Schema) -> [Process; 2] {
    [world.tap.clone(), Tap::default()].map(|tap| {
        let engine = Engine::postgres_with(crate::server::url(), schema.options());
        let engine = world.equip(engine, &tap).workflow("tells", 1, tells);
        Process::start(world, engine.lease(Duration::from_secs(5)))
    })
}

/// Says something about a subject, and wants it merged from this similarity on.
async fn tells(
    ctx: Ctx,
    (subject, content, merge_from): (String, String, Option<f64>),
) -> Result<Remembered, Failure> {
    let say = ctx.memory(subject).remember("fact", content);
    if let Some(from) = merge_from { say.merge_similar(from) } else { say }.await
}

/// Says more than a worker compares with, and has some of it forgotten. Returns what was answered, with each memory by its place
/// among those that were new.
async fn a_long_talk(tellers: [TenantClient; 2], subject: &str) -> Vec<String> {
    let mut known = Vec::new();
    let mut answers = Vec::new();
    for (nth, acme) in (0..150_usize).zip(tellers.iter().cycle()) {
        let about = acme.memory(subject);
        let content = match nth % 10 {
            3 => "likes tea".to_owned(),
            6 => "does not like tea".to_owned(),
            7 => format!("is said to like the colour of number {}", nth % 7),
            _ => format!("is known to like the colour of number {nth}"),
        };
        let merge_from = (nth % 4 == 3).then_some(0.8);
        let said = acme.run(tells, (subject.to_owned(), content, merge_from)).await.unwrap();
        if said.outcome == Outcome::New {
            known.push(said.memory);
        }
        let place = |memory| known.iter().position(|known| *known == memory).unwrap();
        let similar: Vec<_> = said.similar.iter().map(|other| (place(other.memory), other.score)).collect();
        let apart: Vec<_> =
            said.contradicts.iter().map(|other| (place(other.memory), other.differs)).collect();
        let (memory, sure) = (place(said.memory), said.confidence);
        answers.push(format!("{memory} {:?} {sure} {similar:?} {apart:?}", said.outcome));
        if nth % 25 == 24 {
            about.forget(known[nth / 5], "ann", "she said so").await.unwrap();
        }
    }
    let page = tellers[0].memory(subject).recall("fact").limit(500).await.unwrap();
    let marks = page.memories.iter().map(|memory| format!("{} {}", memory.content, memory.contradicts.len()));
    answers.extend(marks);
    answers
}

// Who has written to a shelf last has it in memory, and whoever has not reads it: both answer alike.
#[test]
fn what_a_worker_has_in_memory_is_what_stands_in_the_store() {
    let (world, schema) = (World::new(), Schema::new());
    let [one, other] = two_workers(&world, &schema);
    let alone = one.on(a_long_talk([one.acme(), one.acme()], "ann"));
    let in_turns = one.on(a_long_talk([one.acme(), other.acme()], "bob"));
    for (nth, (alone, in_turns)) in alone.iter().zip(&in_turns).enumerate() {
        assert_eq!(alone, in_turns, "answer {nth}");
    }
    one.shut_down();
    other.shut_down();
}

#[test]
fn workers_that_say_it_at_once_lose_nothing() {
    let (world, schema) = (World::new(), Schema::new());
    let [one, other] = two_workers(&world, &schema);
    let tellers = [one.acme(), other.acme(), one.acme(), other.acme()];
    // Each speaks on the runtime of its own engine; the tasks are awaited on the first one's.
    one.on(all_say_it(tellers.into()));
    one.shut_down();
    other.shut_down();
}

#[test]
fn a_run_remembers_once_whatever_dies() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| {
        let ann = ctx.memory("ann");
        ann.remember("fact", "likes tea").source("the call").await?;
        let again = ann.remember("fact", "LIKES tea").source("the mail").await?;
        let before = ann.recall("fact").await?;
        stand(&ctx, &world).await?;
        ann.remember("fact", "owns a cat").await?;
        ann.forget(again.memory, "ann", "over").await?;
        assert_eq!(before.memories[0].sources, 2);
        Ok::<_, Failure>(before.memories[0].sources)
    });
    let run = died_at(&world, "stand", code.clone());
    let next = life(&world, code);
    next.on(async {
        let ann = next.acme().memory("ann");
        assert_eq!(next.acme().handle::<u32>(run).result().await.unwrap(), 2);
        assert_eq!(known(&recalled(&ann).await), [("owns a cat", 70, 1)]);
    });
    next.shut_down();
}

#[test]
fn a_run_that_says_something_else_on_resume_is_blocked() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| {
        ctx.memory("ann").remember("fact", format!("call {}", world.count("drawn"))).await?;
        stand(&ctx, &world).await?;
        Ok::<_, Failure>(1)
    });
    let run = died_at(&world, "stand", code.clone());
    let next = life(&world, code);
    let blocked = next.on(next.acme().handle::<u32>(run).result());
    assert!(blocked.unwrap_err().to_string().contains("another input"));
    next.shut_down();
}

#[test]
fn a_key_is_one_operation_inside_and_outside_of_runs() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| {
        let said = ctx.memory("ann").remember("fact", "likes tea").source("mail").key("mail/1").await?;
        let other = ctx.memory("ann").remember("fact", "likes coffee").source("mail").key("mail/1").await;
        assert_eq!(other.unwrap_err().code, counterfoil::flow::FailureCode::Conflict);
        Ok::<_, Failure>(u32::from(said.outcome == Outcome::New))
    });
    let process = Process::start(&world, world.engine().workflow(NAME, 1, code.clone()));
    process.on(async {
        let ann = process.acme().memory("ann");
        ann.remember("fact", "likes tea").source("mail").key("mail/1").await.unwrap();
        for _ in 0..2 {
            assert_eq!(process.acme().run(code.clone(), ()).await.unwrap(), 1, "the first answer");
        }
        assert_eq!(known(&recalled(&ann).await), [("likes tea", 70, 1)]);
    });
    process.shut_down();
}

/// A workflow is moved between threads.
#[test]
fn what_a_run_says_can_be_awaited_anywhere() {
    fn is_send<T: Send>(_: &T) {}
    fn of<F: Future>(_: impl Fn(Ctx) -> F) -> Option<F> {
        None
    }
    let check = |ctx: Ctx| async move {
        let ann = ctx.memory("ann");
        ann.remember("a", "b").id(1).await?;
        ann.recall("a").id("x").limit(1).await?;
        ann.forget(MemoryId(1), "ann", "because").await
    };
    is_send(&of(check));
}
