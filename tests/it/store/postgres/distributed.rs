//! SCALE-3: a store that is declared distributed keeps each transaction to one tenant. Triggers on every table of tenants
//! watch it: a transaction that writes rows of a second tenant fails. The public suite runs over such a store (see
//! `store::conformance`), and so do engines here.

use std::time::Duration;

use counterfoil::flow::{RunError, RunHandle, Workflow};
use counterfoil::ledger::Retention;
use counterfoil::outbox::{Event, PublishResult, Publisher, Sink, SinkError};
use counterfoil::store::conformance::sample::{Sample, name};
use counterfoil::store::postgres::{Options, Postgres};
use counterfoil::store::{Admission, InQueue, Queue, Run, RunState, Store as _};
use counterfoil::{Ctx, Engine, Failure, Timestamp};
use futures_util::future::{join_all, try_join_all};

use super::{Kept, Schema, number, run};
use crate::flow::tools::Post;
use crate::flow::world::{Process, World};

const AT_ONCE: Duration = Duration::from_millis(1);

/// Makes each transaction fail that writes rows of two tenants.
pub(crate) async fn watch(schema: &Schema) {
    let mut connection = schema.plain().await;
    run(
        &mut connection,
        "CREATE FUNCTION one_tenant() RETURNS trigger LANGUAGE plpgsql AS $$
         DECLARE
            mine text := CASE WHEN TG_OP = 'DELETE' THEN OLD.tenant ELSE NEW.tenant END;
            seen text := coalesce(current_setting('watched.tenant', true), '');
         BEGIN
            IF seen NOT IN ('', mine) THEN
                RAISE EXCEPTION '% of a row of % in table %, in a transaction of %', TG_OP, mine, TG_TABLE_NAME, seen;
            END IF;
            PERFORM set_config('watched.tenant', mine, true);
            RETURN NULL;
         END $$;
         DO $$
         DECLARE t text;
         BEGIN
            FOR t IN SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant'
                WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
            LOOP
                EXECUTE format('CREATE TRIGGER one_tenant AFTER INSERT OR UPDATE OR DELETE ON %I FOR EACH ROW EXECUTE FUNCTION one_tenant()', t);
            END LOOP;
         END $$",
    )
    .await;
}

fn options(schema: &Schema) -> Options {
    Options { distributed: true, ..schema.options() }
}

/// An empty store that is declared distributed, and watched.
pub(crate) async fn fresh() -> Kept<Postgres> {
    let schema = Schema::new();
    let store = schema.open_with(options(&schema)).await.unwrap();
    watch(&schema).await;
    Kept { store, schema }
}

#[tokio::test]
async fn a_transaction_of_two_tenants_is_seen() {
    let schema = Schema::new();
    let store = schema.open().await; // one that is not declared distributed
    watch(&schema).await;
    let sample = Sample::enrol(&store, "ann").await;
    let other = sample.for_tenant("globex");
    let batch = [sample.change().record(sample.record("a")), other.change().record(other.record("b"))];
    let error = store.commit(&batch).await.unwrap_err().to_string();
    assert!(error.contains("of a row of globex in table record, in a transaction of acme"), "{error}");
}

#[tokio::test]
async fn every_table_of_tenants_is_watched() {
    let schema = Schema::new();
    drop(schema.open_with(options(&schema)).await.unwrap());
    watch(&schema).await;
    let mut connection = schema.plain().await;
    let watched = "SELECT count(*) FROM pg_trigger WHERE tgname = 'one_tenant' \
                   AND tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace = current_schema()::regnamespace)";
    let of_none = super::catalogue::OF_NO_TENANT.map(|table| format!("'{table}'")).join(", ");
    let others = format!(
        "SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' \
         AND relname NOT IN ({of_none})"
    );
    assert_eq!(number(&mut connection, watched).await, number(&mut connection, others).await);
}

fn queued(sample: &Sample, at: i64) -> Run {
    let queue = InQueue { name: name("mail"), key: None, priority: 0, admitted_at: None };
    let (state, queue) = (RunState::Queued, Some(Box::new(queue)));
    Run { state, queue, created_at: Timestamp(at), ..sample.run_without_key() }
}

/// Several workers at once ask for runs of many tenants, and no limit is passed.
#[tokio::test]
async fn a_queue_admits_the_runs_of_one_tenant_at_a_time() {
    const TENANTS: usize = 6;
    let schema = Schema::new();
    let stores: Vec<_> = join_all((0..3).map(|_| schema.open_with(options(&schema)))).await;
    let stores: Vec<_> = stores.into_iter().map(Result::unwrap).collect();
    watch(&schema).await;
    let mut workers = Vec::new();
    for (place, store) in stores.iter().enumerate() {
        workers.push((store, Sample::enrol(store, &format!("worker {place}")).await));
    }
    let (store, sample) = &workers[0];
    for at in 0..60_usize {
        let of = sample.for_tenant(&format!("tenant{}", at % TENANTS));
        let put = of.change().run(queued(&of, i64::try_from(at).unwrap()));
        assert!(store.commit(&[put]).await.unwrap()[0].is_admitted());
    }
    let asks = join_all(workers.iter().map(async |(store, sample)| {
        let queue = Queue::new("mail").concurrency(20).per_tenant(4);
        let admission = Admission { queue, at: Timestamp(100), most: 7, known: None };
        let mut change = sample.change();
        change.admission = Some(Box::new(admission));
        assert!(store.commit(&[change]).await.unwrap()[0].is_admitted());
        store.queue_admitted("mail", sample.fence, Timestamp(100)).await.unwrap().len()
    }));
    let begun = asks.await;
    assert!(begun.iter().all(|begun| *begun <= 7), "{begun:?}");
    assert_eq!(begun.iter().sum::<usize>(), 20, "{begun:?}");
    let mut connection = schema.plain().await;
    let most = "SELECT max(taken) FROM (SELECT count(*) AS taken FROM run WHERE state = 1 GROUP BY tenant) t";
    assert_eq!(number(&mut connection, most).await, 4, "tenants take turns, up to their limit");
    let least =
        "SELECT min(taken) FROM (SELECT count(*) AS taken FROM run WHERE state = 1 GROUP BY tenant) t";
    assert!(number(&mut connection, least).await >= 2);
}

/// A lane that goes through several tenants stops at its first refused change.
#[tokio::test]
async fn a_refused_change_stops_its_lane_for_all_tenants() {
    let store = fresh().await;
    let sample = Sample::enrol(&*store, "ann").await;
    let other = sample.for_tenant("globex");
    let stale = sample.committed(&sample.record("a")); // of a record that is not there
    let lane = |mut change: counterfoil::store::Change| {
        change.lane = Some(counterfoil::store::OrderingKey(7));
        change
    };
    let batch = [
        lane(other.change().record(other.record("first"))),
        lane(sample.change().record(stale)),
        lane(other.change().record(other.record("second"))),
        other.change().record(other.record("third")),
    ];
    let verdicts = store.commit(&batch).await.unwrap();
    let admitted: Vec<_> = verdicts.iter().map(counterfoil::store::Verdict::is_admitted).collect();
    assert_eq!(admitted, [true, false, false, true], "{verdicts:?}");
}

async fn letter(ctx: Ctx, to: String) -> Result<String, Failure> {
    ctx.emit(&to, "asked", &to).await?;
    ctx.publish("to", &to).await?;
    ctx.call::<Post>(format!("a letter for {to}")).await?;
    let signed: String = ctx.signal("sign").await?;
    Ok(format!("{to} signed by {signed}"))
}

struct Nowhere;

impl Sink for Nowhere {
    async fn publish(&self, _: &[Event]) -> Result<PublishResult, SinkError> {
        Ok(PublishResult::all())
    }
}

/// All that engines write, sweeps included, for three tenants at once.
#[test]
fn engines_write_for_one_tenant_at_a_time() {
    let (world, schema) = (World::new(), Schema::new());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        drop(schema.open_with(options(&schema)).await.unwrap());
        watch(&schema).await;
    });
    let build = || {
        let letters = Workflow::new("letter", letter).retention(Retention::tombstone_after(AT_ONCE));
        let engine = Engine::postgres_with(crate::server::url(), options(&schema));
        world
            .equip(engine, &world.tap)
            .register(letters)
            .queue(Queue::new("letters").concurrency(5).per_tenant(2).rate(1000, AT_ONCE))
            .sink(Publisher::new(Nowhere).keep(AT_ONCE))
    };
    let (one, two) = (Process::start(&world, build()), Process::start(&world, build()));
    one.on(async {
        let start = async |n: usize| {
            let tenant = one.engine().tenant(format!("tenant{}", n % 3))?;
            let run = tenant.run(letter, format!("to {n}")).queue("letters").start().await?;
            run.signal("sign", "ann").await?;
            Ok::<_, RunError>(run)
        };
        let runs: Vec<RunHandle<String>> = try_join_all((0..30).map(start)).await.unwrap();
        for run in &runs {
            match run.result().await {
                Ok(_) | Err(RunError::Expired { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        for run in &runs {
            while run.status().await.unwrap().state.name() != "expired" {
                tokio::task::yield_now().await;
            }
        }
    });
    assert_eq!(world.effects("post").len(), 30);
    one.shut_down();
    two.shut_down();
    runtime.block_on(async {
        let mut connection = schema.plain().await;
        assert_eq!(
            number(&mut connection, "SELECT count(*) FROM run WHERE substr(outcome, 1, 1) = '#'").await,
            30
        );
    });
}
