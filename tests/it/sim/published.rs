//! Published values in the simulator: a reader sees no earlier value after a later one, with a crash wherever there can be
//! one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil::sim::{Offer, Simulation, World};
use counterfoil::{Ctx, Engine, Failure};

use crate::sim::{Looks, quick};

const LAST: u32 = 4;

async fn progress(ctx: Ctx, input: String) -> Result<String, Failure> {
    for n in 1..=LAST {
        ctx.publish("progress", &n).await?;
        ctx.call::<Looks>(format!("{input} {n}")).await?;
        ctx.sleep(Duration::from_secs(1)).await?;
    }
    Ok(input)
}

/// What the reader of one simulation has seen over all lives, and the number of simulations in which that was the last value.
#[derive(Clone, Default)]
struct Seen {
    values: Arc<Mutex<Vec<u32>>>,
    whole: Arc<Mutex<usize>>,
}

/// Reads again and again, and notes what it reads.
async fn reads(engine: Engine, world: World, seen: Seen) -> String {
    let tenant = engine.tenant(Simulation::TENANT).unwrap();
    for _ in 0..100 {
        world.sleep(Duration::from_millis(100)).await;
        let Ok(found) = tenant.run_of(progress, Simulation::KEY).find().await else { continue };
        let Some(run) = found else { continue };
        let Ok(read) = run.published::<u32>("progress").await else { continue };
        seen.values.lock().unwrap().push(read.unwrap_or_default());
    }
    "enough".to_owned()
}

fn simulation(seen: &Seen) -> Simulation {
    let (reader, checks) = (seen.clone(), seen.clone());
    Simulation::of(progress, "import".to_owned())
        .engine(|engine, world| engine.tool(Looks(world.service("shop", Offer::Lookup))))
        .with_actor("reader", move |engine, world| reads(engine, world, reader.clone()))
        .check("no value is followed by an earlier one", move |_| {
            let values = std::mem::take(&mut *checks.values.lock().unwrap()); // the next simulation begins anew
            *checks.whole.lock().unwrap() += usize::from(values.last() == Some(&LAST));
            if values.is_sorted() { Ok(()) } else { Err(format!("{values:?}")) }
        })
}

#[test]
fn a_reader_sees_no_earlier_value_after_a_later_one() {
    let seen = Seen::default();
    quick(simulation(&seen)).explore().assert_ok();
    assert!(*seen.whole.lock().unwrap() > 10, "it has read the values at all");
}
