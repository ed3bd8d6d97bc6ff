//! The nightly ingest in a simulated world: wherever a process dies, no tick is lost and none begins two runs.

use counterfoil::Clock as _;
use counterfoil::ledger::LookupResult;
use counterfoil::sim::{End, Offer, Service, Simulation};
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Failure, Key};
use serde_json::Value;

use super::{Page, Site, nightly, prepared};

/// Two nights of a simulated year that begins on 1 January 2026.
const NIGHTS: [i64; 2] = [1_767_236_400, 1_767_322_800];

/// Stores in a simulated service.
struct Store(Service);

impl Tool for Store {
    const NAME: &'static str = "store";
    type Effect = effect::InternalMutation;
    type Contract = contract::Lookup;
    type Input = Page;
    type Output = Value;

    fn key(&self, page: &Page) -> Option<Key> {
        Some(Key::of(Self::NAME).target(&page.site).operation(page.reference()))
    }

    async fn call(&self, call: &Call, page: &Page) -> Result<Done<Value>, ToolError> {
        self.0.create(call, &page.reference()).await
    }
}

impl Reconcile for Store {
    async fn reconcile(&self, call: &Call, page: &Page) -> Result<LookupResult<Value>, ToolError> {
        self.0.find(call, &page.reference()).await
    }
}

async fn nothing(_: Ctx, input: String) -> Result<String, Failure> {
    Ok(input)
}

/// Two nights of two pages each.
pub fn simulation() -> Simulation {
    Simulation::of(nothing, "day".to_owned())
        .engine(|engine, world| {
            prepared::<Store>(engine.tool(Store(world.service("archive", Offer::Lookup))))
        })
        .with_actor("admin", |engine, world| async move {
            let set = async {
                let acme = engine.tenant("acme").map_err(|e| e.to_string())?;
                let two_nights = acme.schedule("nightly").cron("0 0 3 1,2 1 * 2026");
                let site = Site::of("example.org", &["/", "/news"]);
                two_nights.run(nightly::<Store>, site).await.map_err(|e| e.to_string())
            };
            set.await.map_or_else(|error| error, |_| format!("set by {}", world.clock().now().0))
        })
        .check("each page once a night", each_page_once_a_night)
}

fn each_page_once_a_night(end: &End<'_>) -> Result<(), String> {
    let runs = end.runs();
    let nights: Vec<_> = runs.iter().filter(|run| run.workflow.as_str() == "nightly").collect();
    let heard = end.heard("admin");
    let set = heard.iter().filter_map(|told| told.strip_prefix("set by ")?.parse::<i64>().ok()).max();
    let Some(set) = set else { return Ok(()) }; // it may have died before it was set
    // A night that was over when the machine came back is caught up, unless the run of the night before was under way.
    let due = NIGHTS.iter().filter(|night| **night * 1_000_000 > set).count();
    if !(due..=NIGHTS.len()).contains(&nights.len()) && end.questions().is_empty() {
        return Err(format!("{} nights", nights.len()));
    }
    // One whose page the archive refuses for good has failed, and is listed.
    for run in nights.iter().filter(|run| run.state.name() == "succeeded") {
        let key = run.key.as_deref().unwrap_or_default();
        let night = NIGHTS.iter().find(|night| key == format!("~tick/{night}000000/nightly"));
        let night = night.ok_or_else(|| format!("{key} is no night"))?;
        for page in ["/", "/news"] {
            end.exactly_once_if_succeeded("archive", &format!("example.org{page}@{night}"))?;
        }
    }
    Ok(())
}
