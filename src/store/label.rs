//! Labels: names and values by which runs and records are listed and erased.

use super::cell::table;
use super::row::Row;
use super::run::Run;
use crate::clock::Timestamp;
use crate::id::{IdError, Name, RecordId, RunId, Tenant, checked};
use crate::ledger::{OperationKey, Record};

/// A label of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLabel {
    /// The tenant that owns the run.
    pub tenant: Tenant,
    /// The run.
    pub run: RunId,
    /// The name of the label, such as `customer`. A run has one label of a name.
    pub name: String,
    /// The value of the label, such as `c-7`.
    pub value: String,
    /// The instant at which the run was started, by which the runs with a label are listed.
    pub started_at: Timestamp,
}

table! { RunLabel in "run_label", Keep by (tenant, run, name) {
    tenant, run, name, value, started_at
} }

impl Row for RunLabel {}

/// A label of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordLabel {
    /// The tenant that owns the record.
    pub tenant: Tenant,
    /// The record.
    pub record: RecordId,
    /// The name of the label, such as `customer`. A record has one label of a name.
    pub name: String,
    /// The value of the label, such as `c-7`.
    pub value: String,
    /// The key of the record, by which the records with a label are listed.
    pub key: OperationKey,
}

table! { RecordLabel in "record_label", Keep by (tenant, record, name) {
    tenant, record, name, value, key
} }

impl Row for RecordLabel {}

/// The labels that are given to a run or to a call: values by their names. Most runs and calls have none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels(Vec<(String, String)>);

impl Labels {
    /// The maximum number of labels of a run or a record.
    const MAX: usize = 8;
    /// The maximum length of a label's value, in bytes.
    pub(crate) const MAX_VALUE: usize = 256;

    /// Adds a label. It is checked with the others.
    pub(crate) fn add(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.push((name.into(), value.into()));
    }

    /// Refuses labels that are too many or too long, and two of one name.
    pub(crate) fn check(&self) -> Result<(), IdError> {
        let what = "set of labels";
        if self.0.len() > Self::MAX {
            let text = format!("{} labels", self.0.len());
            return Err(IdError::Malformed { what, text, form: "8 labels at most" });
        }
        for (place, (name, value)) in self.0.iter().enumerate() {
            Name::new(name)?;
            checked("label", value, Self::MAX_VALUE)?;
            if self.0[..place].iter().any(|(other, _)| other == name) {
                return Err(IdError::Malformed { what, text: name.clone(), form: "one label of each name" });
            }
        }
        Ok(())
    }

    /// The rows of a run's labels.
    pub(crate) fn of_run(&self, run: &Run) -> impl Iterator<Item = RunLabel> {
        self.0.iter().map(|(name, value)| RunLabel {
            tenant: run.tenant.clone(),
            run: run.id,
            name: name.clone(),
            value: value.clone(),
            started_at: run.created_at,
        })
    }

    /// The rows of a record's labels.
    pub(crate) fn of_record(&self, record: &Record) -> impl Iterator<Item = RecordLabel> {
        self.0.iter().map(|(name, value)| RecordLabel {
            tenant: record.tenant.clone(),
            record: record.id,
            name: name.clone(),
            value: value.clone(),
            key: record.key.clone(),
        })
    }
}

impl From<Vec<(String, String)>> for Labels {
    fn from(labels: Vec<(String, String)>) -> Self {
        Self(labels)
    }
}
