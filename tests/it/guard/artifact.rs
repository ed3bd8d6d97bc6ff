//! Artifacts (GUARD-4): one key has one content, whoever makes it and however often; other content is a version or refused.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::flow::{FailureCode, RunError, WorkflowFn};
use counterfoil::guard::artifact::Artifact;
use counterfoil::sim::{CrashPoint, Simulation};
use counterfoil::{Ctx, Engine, Failure};
use futures_util::future::try_join;
use serde_json::json;

use crate::flow;
use crate::flow::lives::{NAME, died_at, life, stand};
use crate::flow::world::{Process, World};
use crate::sim::quick;
use crate::store::postgres::Schema;

/// Puts this text as the report about a case.
fn report(world: &Arc<World>) -> impl WorkflowFn<(String, bool), Artifact> + Clone {
    flow!(world, |ctx, put: (String, bool)| {
        world.count("put");
        let artifact = ctx.artifact("report", "case 17").source(format!("mail {}", put.0.len()));
        if put.1 { artifact.new_version().put(&put.0).await } else { artifact.put(&put.0).await }
    })
}

async fn put(
    process: &Process,
    world: &Arc<World>,
    text: &str,
    as_new: bool,
) -> Result<Artifact, FailureCode> {
    match process.acme().run(report(world), (text.to_owned(), as_new)).await {
        Ok(artifact) => Ok(artifact),
        Err(RunError::Failed { failure, .. }) => Err(failure.code),
        Err(other) => panic!("{other}"),
    }
}

fn on(process: &Process, world: &Arc<World>) {
    process.on(async {
        let first = put(process, world, "all is well", false).await.unwrap();
        assert_eq!((first.version, first.digest.len()), (1, 64));
        assert_eq!(
            put(process, world, "all is well", true).await.unwrap(),
            first,
            "the same content is no new version"
        );
        assert_eq!(put(process, world, "all is lost!", false).await, Err(FailureCode::Conflict));
        let second = put(process, world, "all is lost!", true).await.unwrap();
        assert_eq!(second.version, 2);
        assert_ne!(second.digest, first.digest);

        let acme = process.acme();
        let last = acme.artifact("report", "case 17", None).await.unwrap().unwrap();
        assert_eq!((&last.artifact, &last.content), (&second, &json!("all is lost!")));
        let earlier = acme.artifact("report", "case 17", Some(1)).await.unwrap().unwrap();
        assert_eq!((earlier.artifact, earlier.content), (first, json!("all is well")));
        assert_eq!(earlier.sources.into_iter().collect::<Vec<_>>(), ["mail 11"]);
        for (kind, id, version) in
            [("report", "case 17", Some(3)), ("report", "case 17", Some(0)), ("reports", "", None)]
        {
            assert_eq!(acme.artifact(kind, id, version).await.unwrap(), None);
        }
        let globex = process.engine().tenant("globex").unwrap();
        assert_eq!(globex.artifact("report", "case 17", None).await.unwrap(), None);
    });
}

#[test]
fn one_key_has_one_content_until_a_new_version_is_asked_for() {
    let world = World::new();
    let process = Process::start(&world, world.engine().workflow("report", 1, report(&world)));
    on(&process, &world);
    process.shut_down();
}

#[test]
fn artifacts_are_kept_on_postgres() {
    let (world, schema) = (World::new(), Schema::new());
    let engine = world.equip(Engine::postgres_with(crate::server::url(), schema.options()), &world.tap);
    let process = Process::start(&world, engine.workflow("report", 1, report(&world)));
    on(&process, &world);
    process.shut_down();
}

#[test]
fn hostile_names_and_large_contents() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| {
        world.count("begun");
        let large = "x".repeat(1_000_000);
        let artifact = ctx.artifact("report", "a/../b'; DROP TABLE document; --").put(&large).await?;
        Ok::<_, Failure>(artifact.version)
    });
    let process = Process::start(&world, world.engine().workflow(NAME, 1, code.clone()));
    process.on(async {
        assert_eq!(process.acme().run(code, ()).await.unwrap(), 1);
        let stored =
            process.acme().artifact("report", "a/../b'; DROP TABLE document; --", None).await.unwrap();
        assert_eq!(stored.unwrap().content.as_str().map(str::len), Some(1_000_000));
    });
    process.shut_down();
}

// The record of the artifact that the code put before does not answer for another one.
#[test]
fn changed_code_puts_the_artifact_of_its_new_id() {
    let world = World::new();
    let puts = |id: &'static str| {
        flow!(world, |ctx, _n: ()| {
            let artifact = ctx.artifact("report", id).put("all is well").await?;
            stand(&ctx, &world).await?;
            Ok::<_, Failure>(artifact.version)
        })
    };
    let run = died_at(&world, "stand", puts("a"));
    let process = life(&world, puts("b"));
    process.on(async {
        assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 1);
        for id in ["a", "b"] {
            let stored = process.acme().artifact("report", id, None).await.unwrap();
            assert_eq!(stored.map(|stored| stored.content), Some(json!("all is well")), "{id}");
        }
    });
    process.shut_down();
}

#[test]
fn several_artifacts_of_one_kind_are_put_at_once() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| {
        world.count("begun");
        let put = |id: &str| ctx.artifact("report", id).put("all is well");
        let (a, b) = try_join(put("a"), put("b")).await?;
        Ok::<_, Failure>(a.version + b.version)
    });
    let process = Process::start(&world, world.engine().workflow(NAME, 1, code.clone()));
    process.on(async {
        assert_eq!(process.acme().run(code, ()).await.unwrap(), 2);
        for id in ["a", "b"] {
            assert!(process.acme().artifact("report", id, None).await.unwrap().is_some());
        }
    });
    process.shut_down();
}

/// Two runs make the report about one case, and one of them a new version.
async fn clerk(ctx: Ctx, text: String) -> Result<u32, Failure> {
    let drafted = ctx.step("draft", &text, |text| format!("{text}, in full")).await?;
    let artifact = ctx.artifact("report", "case 17").source(&text).new_version().put(&drafted).await?;
    ctx.sleep(Duration::from_mins(1)).await?;
    let again = ctx.artifact("report", "case 17").source("again").new_version().put(&drafted).await?;
    Ok(artifact.version * 10 + again.version)
}

// Wherever a process dies: each content that was put is there, and none twice in a row.
#[test]
fn no_version_is_lost_or_doubled_wherever_it_is_crashed() {
    let simulation = Simulation::of(clerk, "good news".to_owned())
        .with_run(Simulation::TENANT, "two", clerk, "bad news".to_owned())
        .with_actor("reader", |engine, world| async move {
            world.sleep(Duration::from_hours(1)).await;
            let tenant = engine.tenant(Simulation::TENANT).unwrap();
            let mut contents = Vec::new();
            for version in 1.. {
                match tenant.artifact("report", "case 17", Some(version)).await {
                    Ok(Some(artifact)) => contents.push(artifact.content.to_string()),
                    Ok(None) => break,
                    Err(error) => return error.to_string(),
                }
            }
            contents.join("; ")
        })
        .check("each content is a version of its own", |end| {
            let Some(said) = end.heard("reader").last().map(|said| (*said).to_owned()) else { return Ok(()) };
            let contents: Vec<_> = said.split("; ").collect();
            let doubled = contents.windows(2).any(|pair| pair[0] == pair[1]);
            let lost = ["\"good news, in full\"", "\"bad news, in full\""]
                .iter()
                .any(|text| !contents.contains(text));
            // Between the two puts of one run the other's may come: then each is there twice.
            if doubled || contents.len() > 4 || (end.succeeded() && lost) { Err(said) } else { Ok(()) }
        });
    let report = quick(simulation).explore();
    assert!(report.failures().is_empty(), "{report}\n{}", report.failures()[0].timeline);
    assert!(report.crashed_at().contains_key(&CrashPoint::AfterDocument));
}
