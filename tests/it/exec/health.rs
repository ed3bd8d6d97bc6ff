//! The health of a worker, and its name.

use counterfoil::exec::{StartError, Trouble};

use crate::flow;
use crate::flow::answers::Place;
use crate::flow::tools::Ring;
use crate::flow::world::{Process, World};

#[test]
fn a_worker_is_ready_until_it_closes() {
    for place in Place::both() {
        let world = World::new();
        let process = Process::start(&world, place.engine(&world));
        let engine = process.engine().clone();
        assert!(engine.health().is_live() && engine.health().is_ready());
        assert_eq!(engine.health().to_string(), "ready");
        process.shut_down();
        let health = engine.health();
        assert_eq!(health.troubles, [Trouble::Closing]);
        assert!(health.is_live() && !health.is_ready());
    }
}

#[test]
fn a_worker_whose_file_is_gone_is_not_ready() {
    let world = World::new();
    let process = Process::start(&world, world.engine());
    std::fs::remove_file(world.path()).unwrap();
    process.on(async {
        while process.engine().health().is_ready() {
            tokio::task::yield_now().await; // a check of the file holds for a moment
        }
    });
    let health = process.engine().health();
    assert!(matches!(&health.troubles[..], [Trouble::DatabaseGone { .. }]), "{health:?}");
    assert!(health.is_live() && health.to_string().contains("was removed or replaced"));
    process.crash();
}

#[test]
fn a_worker_that_was_fenced_is_dead() {
    let [_, place] = Place::both();
    let world = World::new();
    let lease = std::time::Duration::from_secs(1);
    let process = Process::start(&world, place.engine(&world).lease(lease));
    process.on(async {
        let Place::Schema(schema) = &place else { unreachable!() };
        let end = sqlx::raw_sql("UPDATE worker SET ended_at = 1");
        end.execute(&mut schema.plain().await).await.unwrap();
        process.engine().fenced().await;
        let health = process.engine().health();
        assert_eq!(health.troubles, [Trouble::Fenced]);
        assert!(!health.is_live() && health.to_string() == "dead: another worker has taken over", "{health}");
    });
    process.crash();
}

#[test]
fn the_name_of_a_worker_is_shown_in_its_row_its_health_and_the_evidence_of_its_calls() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, _input: ()| ctx.call::<Ring>("door".into()).await);
        let engine = place.engine(&world).worker_name("billing/1").workflow("ring", 1, code.clone());
        let process = Process::start(&world, engine);
        assert_eq!(process.engine().health().name.as_deref(), Some("billing/1"));
        process.on(async {
            let run = process.acme().run(code.clone(), ()).start().await.unwrap();
            run.result().await.unwrap();
            let key = run.history(None).await.unwrap()[0].calls[0].key.to_string();
            let evidence = process.acme().evidence(&key).await.unwrap().unwrap();
            let attempt = &evidence.history.attempts[0];
            assert_eq!(attempt.worker_name.as_deref(), Some("billing/1"));
            let text = evidence.to_string();
            assert!(text.contains(&format!("by worker {} (billing/1)", attempt.worker)), "{text}");
        });
        process.shut_down();
        let refused = Process::try_start(&world, place.engine(&world).worker_name("a\nb"));
        assert!(matches!(refused.err(), Some(StartError::Name(_))));
    }
}
