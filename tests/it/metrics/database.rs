//! The metrics of the database and of the workers that share it.

use std::time::Duration;

use super::recorder::Recorded;
use crate::flow;
use crate::flow::tools::Post;
use crate::flow::world::{Process, World};
use crate::store::postgres::Schema;

#[test]
fn writes_and_the_state_of_a_file_show() {
    let (world, seen) = (World::new(), Recorded::default());
    let code = flow!(world, |ctx, input: String| ctx.call::<Post>(input).await);
    let engine = world.engine().workflow("order", 1, code.clone()).metrics(seen.metrics());
    let process = Process::start(&world, engine);
    process.on(async {
        process.acme().run(code, "one".to_owned()).await.unwrap();
        seen.until("counterfoil_write_seconds", |writes| writes > 0.0).await;
        seen.until("counterfoil_write_changes", |writes| writes > 0.0).await;
        seen.until("counterfoil_writes_queued", |writes| writes == 0.0).await;
        seen.until("counterfoil_database_away_seconds", |away| away == 0.0).await;
        seen.until("counterfoil_database_log_bytes", |bytes| bytes > 0.0).await;
        seen.until("counterfoil_connections{state=idle}", |idle| idle > 0.0).await;
        seen.until("counterfoil_connections{state=in use}", |busy| busy == 0.0).await;
    });
    assert!(seen.series("counterfoil_workers").is_empty(), "the file has one worker");
    process.shut_down();
}

#[test]
fn workers_and_their_leases_show() {
    let (world, schema, seen) = (World::new(), Schema::new(), Recorded::default());
    let engine = || world.engine_in(&schema, true).lease(Duration::from_secs(1));
    let lasting = Process::start(&world, engine().metrics(seen.metrics()));
    let dying = Process::start(&world, engine());
    lasting.on(async {
        seen.until("counterfoil_workers{state=live}", |workers| workers == 2.0).await;
        seen.until("counterfoil_heartbeats_total{result=renewed}", |beats| beats > 0.0).await;
        seen.until("counterfoil_heartbeat_age_seconds", |age| age < 1.0).await;
        seen.until("counterfoil_connections{state=idle}", |idle| idle > 0.0).await;
    });
    dying.crash();
    lasting.on(async {
        seen.until("counterfoil_leases_ended_total{whose=another}", |ended| ended == 1.0).await;
        seen.until("counterfoil_workers{state=live}", |workers| workers == 1.0).await;
        seen.until("counterfoil_workers{state=late}", |workers| workers == 0.0).await;
    });
    lasting.shut_down();
}
