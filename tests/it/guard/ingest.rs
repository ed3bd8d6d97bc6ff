//! Ingested documents and index builds (GUARD-7): the same content has the same snippets, an index is built once, and an
//! alias points to builds that are committed.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::flow::{FailureCode, RunError, WorkflowFn};
use counterfoil::guard::index::Alias;
use counterfoil::guard::ingest::Ingested;
use counterfoil::sim::{CrashPoint, Simulation};
use counterfoil::tool::lookup::Sha256;
use counterfoil::{Ctx, Engine, Failure, Payload};
use serde::{Deserialize, Serialize};

use crate::flow;
use crate::flow::world::{Process, World};
use crate::sim::quick;
use crate::store::postgres::Schema;

/// A document's text, and what it is cut at.
type Text = (String, String);

fn ingests(world: &Arc<World>) -> impl WorkflowFn<Text, Ingested> + Clone {
    flow!(world, |ctx, text: Text| {
        let (text, at) = text;
        let cut: Vec<_> = text.split(at.as_str()).map(str::to_owned).collect();
        ctx.ingest("hand/book", "chapter 3", &text, &cut).await
    })
}

/// What a run does with an index.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Deed {
    /// Builds it of this, and tells how often it was built.
    Build(String),
    /// Builds it of this, and moves the alias there from the build of that.
    Swap(String, Option<String>),
    /// Moves the alias to what nobody has built.
    Unbuilt,
}

fn hash(of: &str) -> String {
    Sha256(Payload::of(of).unwrap().digest().0).to_string()
}

fn indexes(world: &Arc<World>) -> impl WorkflowFn<Deed, Option<Alias>> + Clone {
    flow!(world, |ctx, deed: Deed| {
        let index = ctx.index("hand/book");
        let build = async |of: &String| {
            let built = index.build(of, async |hash| {
                world.count("built");
                Ok(format!("at {hash}"))
            });
            built.await
        };
        match deed {
            Deed::Build(of) => build(&of).await.map(|_| None),
            Deed::Swap(to, former) => {
                let there = build(&to).await?;
                let former = former.as_deref().map(hash);
                index.swap("live", &there.hash, former.as_deref()).await.map(Some)
            }
            Deed::Unbuilt => index.swap("live", &hash("never"), None).await.map(Some),
        }
    })
}

async fn ingested(
    process: &Process,
    world: &Arc<World>,
    text: &str,
    at: &str,
) -> Result<Ingested, FailureCode> {
    match process.acme().run(ingests(world), (text.to_owned(), at.to_owned())).await {
        Ok(ingested) => Ok(ingested),
        Err(RunError::Failed { failure, .. }) => Err(failure.code),
        Err(other) => panic!("{other}"),
    }
}

async fn documents(process: &Process, world: &Arc<World>) {
    let first = ingested(process, world, "one. two", ". ").await.unwrap();
    assert_eq!((first.version, first.latest, first.snippets), (1, 1, 2));
    let ids = first.ids();
    assert!(ids[0] != ids[1] && ids.iter().all(|id| id.len() == 36));
    assert_eq!(ingested(process, world, "one. two", ". ").await.unwrap(), first, "the same again");
    let second = ingested(process, world, "one. two. three", ". ").await.unwrap();
    assert_eq!((second.version, second.latest, second.snippets), (2, 2, 3));
    assert!(second.ids().iter().all(|id| !ids.contains(id)));
    let late = ingested(process, world, "one. two", ". ").await.unwrap();
    assert_eq!((late.version, late.latest, late.ids()), (1, 2, ids), "a retry that comes late");
    assert_eq!(ingested(process, world, "one. two", "o").await, Err(FailureCode::Conflict));

    let acme = process.acme();
    let read = async |version| acme.ingested("hand/book", "chapter 3", version).await.unwrap();
    assert_eq!(read(None).await, Some(second));
    assert_eq!(read(Some(1)).await, Some(late.clone()));
    assert_eq!((read(Some(0)).await, read(Some(3)).await), (None, None));
    assert_eq!(
        acme.ingested("hand", "book/chapter 3", None).await.unwrap(),
        None,
        "names do not run together"
    );
    let globex = process.engine().tenant("globex").unwrap();
    assert_eq!(globex.ingested("hand/book", "chapter 3", None).await.unwrap(), None);
    let text = ("one. two".to_owned(), ". ".to_owned());
    let theirs = globex.run(ingests(world), text).await.unwrap();
    assert!(theirs.ids().iter().all(|id| !late.ids().contains(id)), "tenants may share an index");
}

async fn builds(process: &Process, world: &Arc<World>) {
    let acme = process.acme();
    let run = async |deed: Deed| match acme.run(indexes(world), deed).await {
        Ok(alias) => Ok(alias),
        Err(RunError::Failed { failure, .. }) => Err(failure.code),
        Err(other) => panic!("{other}"),
    };
    let live = async || acme.index_alias("hand/book", "live").await.unwrap();
    assert_eq!(run(Deed::Unbuilt).await, Err(FailureCode::Invalid));
    assert_eq!(live().await, None);
    for _ in 0..2 {
        run(Deed::Build("a".into())).await.unwrap();
        assert_eq!(world.counted("built"), 1, "once for its hash");
    }
    assert_eq!(live().await, None, "a build is not asked before it is swapped in");
    let swapped = run(Deed::Swap("a".into(), None)).await.unwrap().unwrap();
    assert_eq!((swapped.hash.clone(), swapped.former.clone(), swapped.swaps), (hash("a"), None, 1));
    assert_eq!(swapped.output, format!("at {}", hash("a")));
    assert_eq!(
        run(Deed::Swap("a".into(), None)).await.unwrap(),
        Some(swapped.clone()),
        "it is there already"
    );
    assert_eq!(run(Deed::Swap("b".into(), None)).await, Err(FailureCode::Conflict));
    assert_eq!(run(Deed::Swap("b".into(), Some("c".into()))).await, Err(FailureCode::Conflict));
    assert_eq!(live().await, Some(swapped));
    assert_eq!(acme.index_build("hand/book", &hash("b")).await.unwrap().unwrap().hash, hash("b"));

    // Of many who move it from the same place, one does; the others are told where it is.
    let both = (0..6).map(|n| run(Deed::Swap(format!("n{n}"), Some("a".into()))));
    let swapped = futures_util::future::join_all(both).await;
    let (moved, told): (Vec<_>, Vec<_>) = swapped.into_iter().partition(Result::is_ok);
    assert!(
        moved.len() == 1 && told.iter().all(|told| *told == Err(FailureCode::Conflict)),
        "{moved:?} {told:?}"
    );
    let now = live().await.unwrap();
    assert_eq!((moved[0].clone().unwrap(), now.swaps, now.former.clone()), (Some(now), 2, Some(hash("a"))));
    let globex = process.engine().tenant("globex").unwrap();
    assert_eq!(globex.index_alias("hand/book", "live").await.unwrap(), None);
}

fn on(process: &Process, world: &Arc<World>) {
    process.on(async {
        documents(process, world).await;
        builds(process, world).await;
    });
}

// R-GUARD-7
#[test]
fn documents_and_builds_are_made_once() {
    let world = World::new();
    let engine =
        world.engine().workflow("ingests", 1, ingests(&world)).workflow("indexes", 1, indexes(&world));
    let process = Process::start(&world, engine);
    on(&process, &world);
    process.shut_down();
}

#[test]
fn documents_and_builds_are_kept_on_postgres() {
    let (world, schema) = (World::new(), Schema::new());
    let engine = world.equip(Engine::postgres_with(crate::server::url(), schema.options()), &world.tap);
    let engine = engine.workflow("ingests", 1, ingests(&world)).workflow("indexes", 1, indexes(&world));
    let process = Process::start(&world, engine);
    on(&process, &world);
    process.shut_down();
}

// A collection's name may be longer than the name of a checkpoint.
#[test]
fn a_document_of_a_collection_with_a_long_name_is_ingested() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| {
        let ingested = ctx.ingest("c".repeat(200), "chapter 3", "one", &["one"]).await?;
        Ok::<_, Failure>(ingested.version)
    });
    let process = Process::start(&world, world.engine().workflow("ingests", 1, code.clone()));
    assert_eq!(process.on(async { process.acme().run(code, ()).await.unwrap() }), 1);
    process.shut_down();
}

/// Ingests, builds and swaps, from wherever the alias is; again if somebody else was first.
async fn publisher(ctx: Ctx, text: String) -> Result<u32, Failure> {
    let ingested = ctx.ingest("handbook", "chapter 3", &text, &[&text]).await?;
    ctx.sleep(Duration::from_mins(1)).await?;
    let index = ctx.index("handbook");
    let built = index.build(&ingested.digest, async |hash| Ok::<_, Failure>(hash)).await?;
    loop {
        let former = index.alias("live").await?.map(|alias| alias.hash);
        match index.swap("live", &built.hash, former.as_deref()).await {
            Err(failure) if failure.code == FailureCode::Conflict => {}
            swapped => return swapped.map(|alias| alias.swaps),
        }
    }
}

// Wherever a process dies: both builds are there, each was swapped in once, and the alias always points to one of them.
#[test]
fn no_version_and_no_swap_is_lost_wherever_it_is_crashed() {
    let simulation = Simulation::of(publisher, "good news".to_owned())
        .with_run(Simulation::TENANT, "two", publisher, "bad news".to_owned())
        .with_actor("reader", |engine, world| async move {
            world.sleep(Duration::from_hours(1)).await;
            let tenant = engine.tenant(Simulation::TENANT).unwrap();
            match tenant.index_alias("handbook", "live").await.unwrap() {
                None => "nowhere".into(),
                Some(alias) => match tenant.index_build("handbook", &alias.hash).await.unwrap() {
                    Some(built) if built.output == alias.output => "at a build".into(),
                    _ => format!("{alias:?}"),
                },
            }
        })
        .check("the alias points to a build", |end| {
            let astray =
                end.heard("reader").into_iter().find(|said| !["nowhere", "at a build"].contains(said));
            astray.map_or(Ok(()), |said| Err(said.to_owned()))
        })
        .check("each run's swap counts", |end| {
            let mut swaps: Vec<_> = end.rows().iter().map(|run| format!("{:?}", run.state)).collect();
            swaps.sort();
            let counted = swaps.len() == 2 && swaps[0].contains("(\"1\")") && swaps[1].contains("(\"2\")");
            if end.succeeded() && !counted { Err(format!("{swaps:?}")) } else { Ok(()) }
        });
    let report = quick(simulation).explore();
    assert!(report.failures().is_empty(), "{report}\n{}", report.failures()[0].timeline);
    assert!(report.crashed_at().contains_key(&CrashPoint::AfterDocument));
}
