//! What a send needs may run out between the decision and the send. Nothing is sent without it: the engine decides anew.

use std::time::Duration;

use counterfoil::ledger::{
    Backoff, Budget, Contract, ContractClass, LookupOffer, LookupResult, Quota, Rate, RetryPolicy,
};
use counterfoil::sim::{Offer, Service, Simulation};
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Failure, Key};
use serde_json::Value;

const WINDOW: Duration = Duration::from_secs(2);

/// Three attempts in all, so quick that the retries themselves stay inside the window.
fn quick() -> RetryPolicy {
    let backoff = Backoff { base: Duration::from_millis(50), cap: Duration::from_millis(50) };
    let mut policy = RetryPolicy { attempts: 3, backoff, ..RetryPolicy::default() };
    policy.attempt_timeout = Duration::from_millis(400);
    policy.retry_after_cap = Duration::from_millis(50);
    policy
}

macro_rules! tool {
    ($tool:ident: $class:ty { $($rest:tt)* }) => {
        pub(crate) struct $tool(pub(crate) Service);

        impl Tool for $tool {
            const NAME: &'static str = stringify!($tool);
            type Effect = effect::InternalMutation;
            type Contract = $class;
            type Input = String;
            type Output = Value;

            fn key(&self, case: &String) -> Option<Key> {
                Some(Key::of(Self::NAME).target(case))
            }

            async fn call(&self, call: &Call, case: &String) -> Result<Done<Value>, ToolError> {
                self.0.create(call, case).await
            }

            $($rest)*
        }
    };
}

// The gate lets one call through in four seconds: the second attempt waits there for longer than the key is remembered.
tool!(Gated: contract::ReplaysKey {
    fn contract(&self) -> Contract {
        Contract::new(ContractClass::ReplaysKey).key_window(WINDOW)
    }

    fn retry(&self) -> RetryPolicy {
        quick()
    }

    fn quota(&self) -> Quota {
        Quota::default().rate(Rate::per_minute(15).burst(1))
    }
});

// The lookup lags, and the provider's `Retry-After` is longer than it remembers keys.
tool!(Patient: contract::WithLookup<contract::ReplaysKey> {
    fn contract(&self) -> Contract {
        Contract::new(ContractClass::ReplaysKey).lookup(LookupOffer::Eventual).key_window(WINDOW)
    }
});

// Nothing holds it up but a process that is stopped.
tool!(Plain: contract::ReplaysKey {
    fn contract(&self) -> Contract {
        Contract::new(ContractClass::ReplaysKey).key_window(WINDOW)
    }

    fn retry(&self) -> RetryPolicy {
        quick()
    }
});

impl Reconcile for Patient {
    async fn reconcile(&self, call: &Call, case: &String) -> Result<LookupResult<Value>, ToolError> {
        self.0.find(call, case).await
    }
}

async fn once<T>(ctx: Ctx, case: String) -> Result<Value, Failure>
where
    T: Tool<Input = String, Output = Value, Effect = effect::InternalMutation>,
{
    ctx.call::<T>(case).await
}

pub(crate) fn forgetful<T>(offer: Offer, tool: fn(Service) -> T) -> Simulation
where
    T: Tool<Input = String, Output = Value, Effect = effect::InternalMutation>,
{
    Simulation::of(once::<T>, "case".to_owned()).engine(move |engine, world| {
        let service = world.service("desk", offer).forgets_after(WINDOW);
        engine.tool(tool(service.shows_after(Duration::from_secs(30))))
    })
}

fn holds(simulation: Simulation, schedule: &str) {
    let simulation = simulation.check("never two", |end| match end.count("desk", "case") {
        0 | 1 => Ok(()),
        n => Err(format!("{n} times")),
    });
    let replay = simulation.replay(&schedule.parse().unwrap());
    assert_eq!(replay.violations, [], "{schedule}\n{}", replay.timeline());
}

#[test]
fn a_key_that_expires_at_the_gate_is_not_sent_again() {
    holds(forgetful(Offer::ReplaysKey, Gated), "answer-lost@1");
}

#[test]
fn a_key_that_expires_while_the_provider_wants_to_be_left_alone_is_not_sent_again() {
    holds(forgetful(Offer::ReplaysKeyAndLookup, Patient), "answer-lost@1 rate-limited@2");
}

// The process is stopped after it has decided: at each point up to the call itself, and inside it.
#[test]
fn a_key_that_expires_while_its_sender_is_stopped_is_not_sent_again() {
    for crossing in 1..=24 {
        holds(forgetful(Offer::ReplaysKey, Plain), &format!("answer-lost@1 pause@1.{crossing}"));
    }
}

// A request that dawdles for longer than its key is remembered is a duplicate that nobody can prevent; it is marked.
#[test]
fn no_key_is_sent_again_when_it_may_be_forgotten_wherever_it_is_crashed() {
    crate::sim::quick(forgetful(Offer::ReplaysKey, Gated)).random(100).explore().assert_ok();
    crate::sim::quick(forgetful(Offer::ReplaysKeyAndLookup, Patient)).random(100).explore().assert_ok();
    crate::sim::quick(forgetful(Offer::ReplaysKey, Plain)).random(100).explore().assert_ok();
}

tool!(Asked: contract::Blind {});

// The budget of the run is looked at before the intent is written; the process is stopped after that.
#[test]
fn nothing_is_sent_when_the_run_has_no_time_left() {
    const TIME: Duration = Duration::from_secs(5);
    let simulation = || {
        Simulation::of(once::<Asked>, "case".to_owned())
            .engine(|engine, world| engine.tool(Asked(world.service("desk", Offer::Blind))))
            .workflow(|workflow| workflow.budget(Budget::default().timeout(TIME)))
            .check("nothing is sent late", |end| {
                let late =
                    end.effects().into_iter().find(|effect| effect.at > TIME + Duration::from_millis(50));
                late.map_or(Ok(()), |effect| Err(format!("sent at {:?}", effect.at)))
            })
    };
    for crossing in 1..=20 {
        let schedule = format!("pause@1.{crossing}");
        let replay = simulation().replay(&schedule.parse().unwrap());
        assert_eq!(replay.violations, [], "{schedule}\n{}", replay.timeline());
    }
}
