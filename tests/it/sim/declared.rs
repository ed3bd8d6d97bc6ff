//! Each life of the process is another build: it declares another namespace. The simulator sees an engine that makes its keys of
//! what it declares now.

use std::collections::BTreeSet;
use std::sync::Arc;

use counterfoil::sim::{Offer, Rule, Service, Simulation};
use counterfoil::store::{Change, Document, Store, StoreFuture, Verdict};
use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Failure, Key, Tenant};
use serde_json::Value;

use crate::sim::quick;

/// A tool whose provider tells copies apart by their key, and by nothing else.
struct Open(Service);

impl Tool for Open {
    const NAME: &'static str = "open";
    type Effect = effect::InternalMutation;
    type Contract = contract::ReplaysKey;
    type Input = String;
    type Output = Value;

    fn key(&self, case: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target(case))
    }

    async fn call(&self, call: &Call, case: &String) -> Result<Done<Value>, ToolError> {
        self.0.create(call, case).await
    }
}

async fn open(ctx: Ctx, case: String) -> Result<Value, Failure> {
    ctx.call::<Open>(case).await
}

/// A store that gives each declaration back as `read` leaves it, in a process that declares this namespace.
#[derive(Debug)]
struct Reads(Arc<dyn Store>, String, Read);

type Read = fn(String, &str) -> String;

impl Store for Reads {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        self.0.commit(changes)
    }

    fn document_list<'a>(
        &'a self,
        tenant: &'a Tenant,
        kind: &'a str,
        after: &'a str,
        limit: u32,
    ) -> StoreFuture<'a, Vec<Document>> {
        Box::pin(async move {
            let mut listed = self.0.document_list(tenant, kind, after, limit).await?;
            if kind == "declaration" {
                for document in &mut listed {
                    document.body = (self.2)(std::mem::take(&mut document.body), &self.1);
                }
            }
            Ok(listed)
        })
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.0)
    }
}

fn broken(read: Read) -> BTreeSet<Rule> {
    let simulation = Simulation::of(open, "case".to_owned()).engine(move |engine, world| {
        let namespace = format!("build {}", world.life());
        let (engine, desk) = (engine.namespace(&namespace), world.service("desk", Offer::ReplaysKey));
        engine.tool(Open(desk)).wrap_store(move |store| Arc::new(Reads(store, namespace.clone(), read)))
    });
    let checked = simulation.check(ONCE, |end| match end.count("desk", "case") {
        0 | 1 => Ok(()),
        many => Err(format!("{many} effects")),
    });
    let report = quick(checked).explore();
    report.failures().iter().flat_map(|failing| &failing.violations).map(|found| found.rule.clone()).collect()
}

const ONCE: &str = "a provider that keeps its word opens one case";

#[test]
fn a_build_with_another_namespace_goes_on_under_the_key_that_went_out() {
    assert_eq!(broken(|declaration, _| declaration), BTreeSet::new());
}

#[test]
fn an_engine_that_goes_by_what_it_declares_now_is_found_out() {
    let now = |declaration: String, namespace: &str| {
        let mut declaration: Value = serde_json::from_str(&declaration).unwrap();
        declaration["namespace"] = namespace.into();
        declaration.to_string()
    };
    assert_eq!(broken(now), BTreeSet::from([Rule::Own(ONCE.to_owned())]));
}
