//! The order saga in the simulator: wherever a process dies, all of an order is done or nothing of it is left.

#[path = "../../../workflows/order_saga.rs"]
pub(crate) mod order_saga;

// FLOW-4, SIM-2: delivered, declined, and lost on its way; with a courier who tells of it.
#[test]
fn an_order_is_carried_out_or_undone_wherever_it_is_crashed() {
    order_saga::simulation().explore().assert_ok();
}

// Found by random mixtures: set back, the clock turned the order of the way back around; and a way back that is refused or late.
#[test]
fn the_last_is_undone_first_whatever_the_clock_says() {
    let mixtures = [
        (1_795_346_104, "clock-6129@2 pause@1.26"),
        (1_795_346_112, "pause@1.21 clock-6780@2 crash@1.85"),
        (1_795_346_114, "too-late@11 refused@12"),
        (4253, "crash@1.109 refused@10"),
    ];
    for (seed, schedule) in mixtures {
        let replay = order_saga::simulation().seed(seed).replay(&schedule.parse().unwrap());
        assert_eq!(replay.violations, [], "{seed} {schedule}: {}", replay.timeline());
    }
}
