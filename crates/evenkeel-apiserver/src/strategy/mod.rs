//! Strategies of built-in resources. Their methods depend only on their arguments, not on the store.

mod builtin;
mod customresourcedefinition;
mod rest;

use std::sync::Arc;

pub(crate) use rest::{DefaultStrategy, GarbageCollectionPolicy, Strategy};

use evenkeel_kinds::registry;

/// Returns the strategy of a built-in resource.
pub(crate) fn of(group: &str, resource: &str) -> Arc<dyn Strategy> {
    if (group, resource) == ("apiextensions.k8s.io", "customresourcedefinitions") {
        return Arc::new(customresourcedefinition::DefinitionStrategy);
    }
    match registry::strategy(group, resource) {
        Some(kind_strategy) => Arc::new(builtin::BuiltIn::new(kind_strategy)),
        None => Arc::new(DefaultStrategy),
    }
}
