//! Which of several waits was over first stays so on resume (FLOW-2, DESIGN 4.1).

use counterfoil::flow::Failure;
use counterfoil::ledger::State;
use futures_util::future::Either;

use crate::flow;
use crate::flow::store::Tapped;
use crate::flow::tools::{Bill, Pay, post};
use crate::flow::wait::{HOUR, LINGER, MINUTE, begin, life, result, settle};
use crate::flow::world::World;
use crate::world::TestClock;

fn is_paid(tapped: &Tapped) -> bool {
    let mut records = tapped.batches.iter().flatten().filter_map(|change| change.record.as_ref());
    records
        .any(|record| record.operation.as_str() == "pay" && matches!(record.state, State::Committed { .. }))
}

// FLOW-2: the payment ends after the time limit won. A resume finds it done, and must not see another winner,
// nor ask anybody about an effect that the run itself stopped waiting for.
#[test]
fn the_winner_of_a_select_is_the_same_on_resume() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, _input: u32| {
        let paying = ctx.call::<Pay>(Bill::new("inv-1", 5));
        let won = match ctx.select("in time?", paying, ctx.sleep(10 * MINUTE)).await? {
            Either::Left(_) => "paid",
            Either::Right(_) => "late",
        };
        post(&ctx, won).await?;
        Ok::<_, Failure>(won.to_owned())
    });
    world.hold("pay before");
    world.hold("post after");
    let first = life(&world, &hands, &flow);
    let run = begin(&first, &flow, 0);
    first.on(async {
        world.reached("pay before").await;
        hands.asleep_for(10 * MINUTE).await;
        hands.advance(10 * MINUTE);
        world.reached("post after").await; // so the winner is durable
        world.release("pay before");
        while !world.tap.see(is_paid) {
            hands.advance(LINGER); // nobody waits for it
            settle().await;
        }
    });
    first.crash();
    world.release("post after");
    let second = life(&world, &hands, &flow);
    assert_eq!(result(&second, run), "late");
    assert_eq!((world.effects("pay").len(), world.effects("post")), (1, vec!["late".to_owned()]));
    assert_eq!(second.on(second.acme().questions()).unwrap(), []);
}

// DESIGN 4.1, FLOW-2: when the run is resumed, what lost is over too, and is polled first. In the second way it is
// not even the context's, so that only the recorded winner tells.
#[test]
fn what_lost_never_becomes_ready_on_resume() {
    for way in 0..2 {
        let (world, hands) = (World::new(), TestClock::default());
        let flow = flow!(world, |ctx, way: u32| {
            let (long, short) = (ctx.sleep_named("long", HOUR), ctx.sleep_named("short", 10 * MINUTE));
            let won = if way == 0 {
                tokio::select! { biased; _ = long => "long", _ = short => "short" }
            } else {
                let won = ctx.select("first", world.pass("door"), short).await?;
                if matches!(won, Either::Left(())) { "door" } else { "short" }
            };
            post(&ctx, won).await?;
            Ok::<_, Failure>(won.to_owned())
        });
        world.hold("door");
        world.hold("post after");
        let first = life(&world, &hands, &flow);
        let run = begin(&first, &flow, way);
        first.on(async {
            hands.asleep_for(10 * MINUTE).await;
            hands.advance(10 * MINUTE);
            world.reached("post after").await;
        });
        first.crash();
        world.release("door");
        world.release("post after");
        hands.advance(2 * HOUR);
        let second = life(&world, &hands, &flow);
        assert_eq!(result(&second, run), "short", "way {way}");
        assert_eq!(world.effects("post"), ["short"], "way {way}");
    }
}
