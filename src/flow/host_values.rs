//! The values that a host hands to its workflows, by their types.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;

/// The values that a host hands to its workflows: connection pools, clients, settings.
#[derive(Default)]
pub(super) struct HostValues(HashMap<TypeId, (&'static str, Box<dyn Any + Send + Sync>)>);

impl HostValues {
    /// Adds a value, in place of an earlier one of its type.
    pub(super) fn add<S: Send + Sync + 'static>(&mut self, state: S) {
        self.0.insert(TypeId::of::<S>(), (type_name::<S>(), Box::new(state)));
    }

    /// The value of this type.
    pub(super) fn get<S: Send + Sync + 'static>(&self) -> Option<&S> {
        self.0.get(&TypeId::of::<S>())?.1.downcast_ref()
    }

    /// True if there is a value of the type of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.values().any(|(known, _)| *known == name)
    }
}
