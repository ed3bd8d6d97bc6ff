//! One workflow that carries out any program, and says what came of each operation.
//!
//! A result is written with the id that the provider gave it, a drawn value with the value: whoever compares two runs
//! finds out whether these are the world's.

use std::cell::Cell;
use std::time::Duration;

use counterfoil::flow::FailureCode;
use counterfoil::{Ctx, Failure, Turn};
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::{self, StreamExt as _};
use serde_json::Value;
use sqlx::sqlite::SqliteConnection;

use super::tree::{Desk, End, Job, Never, Op, Source};
use super::world::{Keyless, Reads, Refuses};
use crate::sim::{Blind, Looks, Natural, Rejects, Replays, ReplaysAndLooks};

const MONTH: Duration = Duration::from_hours(30 * 24);
const LARGE: usize = 20_000;

/// What was said of each operation.
type Said = Vec<String>;

/// Carries a program out.
pub(super) fn program(ctx: Ctx, job: Job) -> BoxFuture<'static, Result<Said, Failure>> {
    Box::pin(async move {
        let said = all(&ctx, &job, job.at.clone(), &job.ops).await;
        match &job.end {
            End::Return => Ok(said),
            End::Fail => Err(Failure::new(said.join("\n"))),
            End::Again(ops) => {
                let at = format!("{}!", job.at);
                let next = Job { at, ops: ops.clone(), end: End::Return, peer: job.peer.clone() };
                ctx.continue_as_new(&next).await
            }
        }
    })
}

/// One after the other. What fails is noted, and the rest is done.
fn all<'a>(ctx: &'a Ctx, job: &'a Job, at: String, ops: &'a [Op]) -> BoxFuture<'a, Said> {
    Box::pin(async move {
        let mut said = Vec::new();
        for (i, op) in ops.iter().enumerate() {
            let at = format!("{at}.{i}");
            match one(ctx, job, &at, op).await {
                Ok(more) => said.extend(more),
                Err(failure) => said.push(format!("{at} failed: {}", code(&failure))),
            }
        }
        said
    })
}

/// A code is the same in each life; a message may name a run.
fn code(failure: &Failure) -> String {
    match failure.code {
        FailureCode::Workflow | FailureCode::ChildFailed | FailureCode::ToolFailed => {
            format!("{:?}", failure.code)
        }
        code => format!("{code:?} {}", failure.message),
    }
}

async fn one(ctx: &Ctx, job: &Job, at: &str, op: &Op) -> Result<Said, Failure> {
    Ok(vec![match op {
        Op::Call(desk) => called(ctx, *desk, at).await?,
        Op::Shared(desk, number) => {
            format!("{at} {}", called(ctx, *desk, &format!("shared-{number}")).await?)
        }
        Op::Keyless => format!("{at}#{}", id(&ctx.call::<Keyless>(at.to_owned()).id(at).await?)),
        Op::Refused => format!("{at} {}", ctx.call::<Refuses>(at.to_owned()).await?),
        Op::Read => format!("{at} {}", ctx.call::<Reads>(at.to_owned()).id(at).await?),
        Op::Draw(source, desk) => {
            let value = drawn(ctx, *source, at).await?;
            called(ctx, *desk, &format!("{at}={value}")).await?
        }
        Op::Large => {
            let text = ctx.step(("large", at), at, |at| at.repeat(1 + LARGE / at.len())).await?;
            format!("{at} {}", text.len())
        }
        Op::Sleep { ms } => {
            ctx.sleep_named(("sleep", at), Duration::from_millis(*ms)).await?;
            format!("{at} slept")
        }
        Op::Hear => format!("{at} heard {}", ctx.signal::<String>("say").await?),
        Op::Tell => {
            let Some((peer, name)) = &job.peer else { return Err(Failure::new("it has no peer")) };
            ctx.send(*peer, (name.as_str(), at), at).await?;
            format!("{at} told")
        }
        Op::Detached(child) => {
            ctx.child(program, Job { at: at.to_owned(), ..child.clone() }).id(at).detach().await?;
            format!("{at} begun")
        }
        Op::GivenUp { ms, ops, never: what } => {
            let endless = async {
                all(ctx, job, format!("{at}?"), ops).await;
                never(ctx, *what, at).await;
            };
            match ctx.timeout(("limit", at), Duration::from_millis(*ms), endless).await? {
                Ok(()) => format!("{at} has seen what never comes"),
                Err(_elapsed) => format!("{at} given up"),
            }
        }
        op => return several(ctx, job, at, op).await,
    }])
}

/// What is made of other operations, or of other runs.
async fn several(ctx: &Ctx, job: &Job, at: &str, op: &Op) -> Result<Said, Failure> {
    match op {
        Op::Child(child) => ctx.child(program, Job { at: at.to_owned(), ..child.clone() }).id(at).await,
        Op::Converse(child) => converse(ctx, child, at).await,
        Op::Pair(listener, speaker) => pair(ctx, listener, speaker, at).await,
        Op::All(branches) => Ok(join_all(each(ctx, job, at, branches)).await.concat()),
        Op::Stream { width, ordered, items } => {
            let work = stream::iter(each(ctx, job, at, items));
            let mut said: Vec<Said> = if *ordered {
                work.buffered(*width).collect().await
            } else {
                work.buffer_unordered(*width).collect().await
            };
            if !ordered {
                said.sort();
            }
            Ok(said.concat())
        }
        Op::Race { place, winner, losers } => {
            let mut branches: Vec<BoxFuture<'_, Result<Said, Failure>>> = Vec::new();
            for (i, (ops, what)) in losers.iter().enumerate() {
                let at = format!("{at}/{i}?");
                branches.push(Box::pin(async move {
                    all(ctx, job, at.clone(), ops).await;
                    never(ctx, *what, &at).await;
                    Ok(vec![format!("{at} has seen what never comes")])
                }));
            }
            let won = async { Ok(all(ctx, job, format!("{at}/w"), winner).await) };
            branches.insert(*place, Box::pin(won));
            let (won, said) = ctx.select_all(("race", at), branches).await?;
            Ok([vec![format!("{at} won by {won}")], said?].concat())
        }
        Op::Within(ops) => {
            match ctx.timeout(("limit", at), MONTH, all(ctx, job, format!("{at}/"), ops)).await? {
                Ok(said) => Ok(said),
                Err(elapsed) => Ok(vec![format!("{at} {elapsed}")]),
            }
        }
        Op::Turns { turns, keep, ops } => {
            let turn = |(turn, mut said): (u32, Said), ctx: Ctx| async move {
                said.extend(all(&ctx, job, format!("{at}t{turn}"), ops).await);
                Ok(if turn + 1 == *turns { Turn::Done(said) } else { Turn::Next((turn + 1, said)) })
            };
            let turns = ctx.turns(("loop", at), (0, Vec::new()), turn);
            match keep {
                Some(keep) => turns.keep_turns(*keep).await,
                None => turns.await,
            }
        }
        op => Err(Failure::new(format!("{op:?} is a single one"))),
    }
}

/// Branches that are done at the same time.
fn each<'a>(ctx: &'a Ctx, job: &'a Job, at: &str, branches: &'a [Vec<Op>]) -> Vec<BoxFuture<'a, Said>> {
    let mut all_of_them = Vec::new();
    for (i, ops) in branches.iter().enumerate() {
        all_of_them.push(all(ctx, job, format!("{at}/{i}"), ops));
    }
    all_of_them
}

/// A child that is told things one after the other, and tells something back.
async fn converse(ctx: &Ctx, child: &Job, at: &str) -> Result<Said, Failure> {
    let back = format!("from {at}");
    let peer = Some((ctx.run_id(), back.clone()));
    let begun = ctx.child(program, Job { at: at.to_owned(), peer, ..child.clone() }).id(at).start().await?;
    for i in 0..child.hears() {
        ctx.send(begun.id(), ("say", format!("{at}-{i}")), &format!("{at}-{i}")).await?;
    }
    let mut said = Vec::new();
    for i in 0..child.tells() {
        let heard: String = ctx.signal((back.as_str(), i)).await?;
        said.push(format!("{at} heard back {heard}"));
    }
    said.extend(begun.result().await?);
    Ok(said)
}

/// Two children, of which the second speaks to the first.
async fn pair(ctx: &Ctx, listener: &Job, speaker: &Job, at: &str) -> Result<Said, Failure> {
    let (one, two) = (format!("{at}a"), format!("{at}b"));
    let listener = ctx.child(program, Job { at: one.clone(), ..listener.clone() }).id(&one).start().await?;
    let peer = Some((listener.id(), "say".to_owned()));
    let speaker =
        ctx.child(program, Job { at: two.clone(), peer, ..speaker.clone() }).id(&two).start().await?;
    let (heard, spoken) = futures_util::join!(listener.result(), speaker.result());
    let said = |at: &str, said: Result<Said, Failure>| {
        said.unwrap_or_else(|failure| vec![format!("{at} failed: {}", code(&failure))])
    };
    Ok([said(&one, heard), said(&two, spoken)].concat())
}

async fn never(ctx: &Ctx, what: Never, at: &str) {
    // Whatever becomes of it, its branch has lost.
    match what {
        Never::Signal => drop(ctx.signal::<()>(("never", at)).await),
        Never::Morning => drop(ctx.sleep_named(("never", at), 3 * MONTH).await),
    }
}

thread_local! {
    static NEXT: Cell<u64> = const { Cell::new(1) };
}

/// From here on the same is drawn whenever the same happens: all of a simulation happens in its thread.
pub(super) fn draw_from(first: u64) {
    NEXT.set(first);
}

/// What nobody has drawn before.
fn fresh() -> u64 {
    NEXT.replace(NEXT.get() + 1)
}

async fn drawn(ctx: &Ctx, source: Source, at: &str) -> Result<String, Failure> {
    Ok(match source {
        Source::Now => format!("{:?}", ctx.now().await?),
        Source::Uuid => ctx.uuid().await?.to_string(),
        Source::Random => ctx.random().await?.to_string(),
        Source::Step => ctx.step(("fresh", at), at, |_| fresh()).await?.to_string(),
        Source::StepAsync => ctx.step_async(("fresh", at), at, || async { fresh() }).await?.to_string(),
        Source::Ordinal => ctx.step("fresh", at, |_| fresh()).await?.to_string(),
        Source::Race => {
            let wait =
                |i: u64| ctx.sleep_named(("wait", format!("{at}/{i}")), Duration::from_millis(fresh() % 40));
            let call = async { ctx.call::<Looks>(format!("{at}?")).await.map(drop) };
            let branches: Vec<BoxFuture<'_, _>> = vec![Box::pin(wait(1)), Box::pin(call), Box::pin(wait(2))];
            let (won, _) = ctx.select_all(("open", at), branches).await?;
            won.to_string()
        }
        Source::Transaction => {
            let entry = at.to_owned();
            let value = ctx.transaction(("entry", at), move |ledger| enter(ledger, entry));
            value.await?.to_string()
        }
    })
}

/// Nothing of the table's own keeps two entries apart.
fn enter(ledger: &mut SqliteConnection, what: String) -> BoxFuture<'_, Result<u64, Failure>> {
    use sqlx::Executor as _;
    fn failed(error: impl std::fmt::Display) -> Failure {
        Failure::new(error.to_string())
    }
    Box::pin(async move {
        ledger.execute("CREATE TABLE IF NOT EXISTS entry (what TEXT NOT NULL)").await.map_err(failed)?;
        sqlx::query("INSERT INTO entry VALUES (?)").bind(what).execute(ledger).await.map_err(failed)?;
        Ok(fresh())
    })
}

/// A call about something, with the id that the provider gave it.
async fn called(ctx: &Ctx, desk: Desk, what: &str) -> Result<String, Failure> {
    let input = what.to_owned();
    let answer = match desk {
        Desk::Replays => ctx.call::<Replays>(input).await?,
        Desk::ReplaysAndLooks => ctx.call::<ReplaysAndLooks>(input).await?,
        Desk::Rejects => ctx.call::<Rejects>(input).await?,
        Desk::Natural => ctx.call::<Natural>(input).await?,
        Desk::Looks => ctx.call::<Looks>(input).await?,
        Desk::Blind => ctx.call::<Blind>(input).await?,
    };
    Ok(format!("{what}#{}", id(&answer)))
}

fn id(answer: &Value) -> &str {
    answer["id"].as_str().unwrap_or("nothing")
}
