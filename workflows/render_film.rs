//! A provider that accepts a call and finishes it later: it answers 202 at once, and calls back when the film is rendered. The run waits
//! as a row. A second callback changes nothing, and without any callback the film is found by the lookup.
//!
//! ```text
//! cargo run --example render_film
//! ```

#![allow(
    missing_docs,
    unreachable_pub,
    reason = "an example, which tests and `counterfoil simulate` include as a module"
)]

#[cfg(feature = "sim")]
#[path = "render_film/simulated.rs"]
pub mod simulated;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use counterfoil::ledger::{self, LookupResult};
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Completion, Ctx, Engine, Failure, Tenant};
use serde_json::json;

/// The outside world: render jobs by the reference of whoever ordered them, and their films once they are finished.
#[derive(Clone, Default)]
struct Studio(Arc<Mutex<BTreeMap<String, Option<String>>>>);

impl Studio {
    fn jobs(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Option<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, job: &str, film: &str) {
        self.jobs().insert(job.to_owned(), Some(film.to_owned()));
    }
}

/// No film takes longer: after that a person is asked.
const LONGEST: Duration = Duration::from_hours(2);

struct Render(Studio);

impl Tool for Render {
    const NAME: &'static str = "render";
    type Effect = effect::InternalMutation;
    type Contract = contract::Lookup;
    type Input = String;
    type Output = String;

    fn contract(&self) -> ledger::Contract {
        <Self::Contract as contract::Contract>::declaration().completes_within(LONGEST)
    }

    async fn call(&self, call: &Call, _film: &String) -> Result<Done<String>, ToolError> {
        self.0.jobs().insert(call.key().to_owned(), None);
        // What a studio says with 202 and `Retry-After: 2`. Its id for the job is our reference here.
        Err(ToolError::accepted(Some(call.key().to_owned())).retry_after(Duration::from_secs(2)))
    }
}

impl Reconcile for Render {
    async fn reconcile(&self, call: &Call, _film: &String) -> Result<LookupResult<String>, ToolError> {
        let external_ref = Some(call.key().to_owned());
        Ok(match self.0.jobs().get(call.key()) {
            None => LookupResult::NotFound,
            Some(None) => LookupResult::Pending { external_ref, look_again: Duration::from_secs(2) },
            Some(Some(film)) => LookupResult::Committed { output: film.clone(), external_ref },
        })
    }
}

/// Shows a film, through whatever tool renders it.
pub async fn premiere<Render>(ctx: Ctx, film: String) -> Result<String, Failure>
where
    Render: Tool<Input = String, Output = String, Effect = effect::InternalMutation>,
{
    let url = ctx.call::<Render>(film.clone()).await?;
    Ok(format!("{film} is shown from {url}"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let studio = Studio::default();
    let engine = Engine::sqlite(folder.path().join("films.db"))
        .tool(Render(studio.clone()))
        .workflow("premiere", 1, premiere::<Render>)
        .start()
        .await?;
    let acme = engine.tenant("acme")?;

    for (film, calls_back) in [("Metropolis", true), ("Nosferatu", false)] {
        let run = acme.run(premiere::<Render>, film.to_owned()).key(film).start().await?;
        let job = loop {
            let ordered = studio.jobs().iter().find(|(_, film)| film.is_none()).map(|(job, _)| job.clone());
            match ordered {
                Some(job) => break job,
                None => tokio::task::yield_now().await,
            }
        };
        println!("{film}: the studio has accepted the job, and the run waits");
        let url = format!("https://studio.example/{film}");
        studio.finish(&job, &url);
        if calls_back {
            for _ in 0..2 {
                let done = Completion::done(Render::NAME, &job, json!(url));
                println!(
                    "  the studio calls back: {:?}",
                    engine.executor().complete(&Tenant::new("acme")?, done).await?
                );
            }
        }
        println!("  {}", run.result().await?);
    }
    println!("{} jobs for two films", studio.jobs().len());
    engine.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
