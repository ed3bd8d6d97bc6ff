//! The service in the simulated world: two tenants with an order of the same id, and two workers that die.

use counterfoil::Engine;
use counterfoil::sim::{Simulation, World};

use super::books::Books;
use super::{Order, PAID, order};

const OTHER: &str = "globex";

fn input() -> Order {
    Order { id: "o-1".to_owned(), cents: 4200 }
}

/// The bank tells of both payments, and tells each twice.
async fn bank(engine: Engine, _world: World) -> String {
    let told = async {
        for tenant in [Simulation::TENANT, OTHER, Simulation::TENANT, OTHER] {
            let run = engine.tenant(tenant)?.run(order, input()).key(Simulation::KEY).start().await?;
            run.signal(PAID, "evt_1".to_owned()).id("evt_1").await?;
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    };
    match told.await {
        Ok(()) => "told".to_owned(),
        Err(error) => error.to_string(),
    }
}

pub fn simulation() -> Simulation {
    Simulation::of(order, input())
        .with_run(OTHER, Simulation::KEY, order, input())
        .with_actor("bank", bank)
        .workers(2)
        .engine(|builder, world| builder.tool(super::Enter(Books::World(world.clone()))))
        .check("entered once for the one", |end| {
            end.exactly_once_if_succeeded("books", &format!("{} o-1", Simulation::TENANT))
        })
        .check("entered once for the other", |end| {
            end.exactly_once_if_succeeded("books", &format!("{OTHER} o-1"))
        })
        .single_crashes()
}
