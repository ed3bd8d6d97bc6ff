//! The order saga in the simulator: wherever a process dies, all of an order is done or nothing of it is left.

#[path = "../../workflows/order_saga.rs"]
pub(crate) mod order_saga;

// FLOW-4, SIM-2: delivered, declined, and lost on its way; with a courier who tells of it.
#[test]
fn an_order_is_carried_out_or_undone_wherever_it_is_crashed() {
    order_saga::simulation().explore().assert_ok();
}
