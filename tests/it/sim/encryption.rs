//! The simulation of an engine with encryption at rest: the simulator reads its rows.

use counterfoil::sim::{Offer, Simulation};
use counterfoil::store::encryption::{EncryptionKey, TenantKeys};
use counterfoil::{Ctx, Failure};

use crate::sim::{Looks, quick};

async fn order(ctx: Ctx, input: String) -> Result<String, Failure> {
    let priced = ctx.step("price", &input, |input| format!("{input} for 7")).await?;
    ctx.call::<Looks>(priced.clone()).await?;
    Ok(priced)
}

#[test]
fn an_engine_with_encryption_is_simulated() {
    let keys = TenantKeys::new(EncryptionKey::new("k1", [1; 32]).unwrap());
    let simulation = Simulation::of(order, "a pear".to_owned()).engine(move |engine, world| {
        engine.tool(Looks(world.service("shop", Offer::Lookup))).encrypted(keys.clone())
    });
    quick(simulation).explore().assert_ok();
}
