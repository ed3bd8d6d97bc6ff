//! Does the simulator bite where a key comes with another payload? An engine that does not compare what a key is bound to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use counterfoil::Tenant;
use counterfoil::ledger::{OperationKey, Record, RequestHash};
use counterfoil::sim::{Failing, Report, Rule};
use counterfoil::store::{Change, Store, StoreFuture, Verdict};

use crate::sim::scenarios::another_amount;

/// A store whose records have the request hash that their reader asks with. The store learns that hash from the reader's own intent: it
/// hides a record until the intent is refused beside it.
#[derive(Debug)]
struct Mutant {
    store: Arc<dyn Store>,
    /// The records have their own hashes, and are only hidden at first: the control.
    compares: bool,
    /// The hash of the intent that was last refused, for each key.
    refused: Mutex<BTreeMap<OperationKey, RequestHash>>,
}

impl Mutant {
    fn note(&self, change: &Change, verdict: &Verdict) {
        let first = change.record.as_ref().filter(|record| record.revision == 1);
        if let Some(record) = first.filter(|_| !verdict.is_admitted()) {
            self.refused.lock().unwrap().insert(record.key.clone(), record.request_hash);
        }
    }
}

impl Store for Mutant {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        Box::pin(async move {
            let verdicts = self.store.commit(changes).await?;
            changes.iter().zip(&verdicts).for_each(|(change, verdict)| self.note(change, verdict));
            Ok(verdicts)
        })
    }

    fn record_find<'a>(
        &'a self,
        tenant: &'a Tenant,
        key: &'a OperationKey,
    ) -> StoreFuture<'a, Option<Record>> {
        Box::pin(async move {
            let asked_with = self.refused.lock().unwrap().remove(key);
            match asked_with {
                None => Ok(None),
                Some(request_hash) => {
                    let found = self.store.record_find(tenant, key).await?;
                    Ok(found
                        .map(|record| if self.compares { record } else { Record { request_hash, ..record } }))
                }
            }
        })
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.store)
    }
}

fn one_amount_is_broken(failing: &Failing) -> bool {
    failing.violations.iter().any(|violation| violation.rule == Rule::Own("one amount".to_owned()))
}

fn explored(compares: bool) -> Report {
    let mutant = another_amount().engine(move |engine, _| {
        engine.wrap_store(move |store| Arc::new(Mutant { store, compares, refused: Mutex::default() }))
    });
    mutant.explore_while(|report| {
        report.schedules() < 300 && !report.failures().iter().any(one_amount_is_broken)
    })
}

// KEY-6: without the comparison, a caller who asks for another amount under a used key is told that it is paid.
#[test]
fn an_engine_that_does_not_compare_request_hashes_is_found_out() {
    let report = explored(false);
    assert!(
        report.failures().iter().any(one_amount_is_broken),
        "it survives, or breaks another rule: {report}"
    );
    let control = explored(true);
    assert!(
        !control.failures().iter().any(one_amount_is_broken),
        "the comparison is not what is missed: {control}"
    );
}
