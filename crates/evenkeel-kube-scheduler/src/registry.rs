//! Registry of plugins: their factories, by name in the configuration.
//!
//! Upstream: `Registry` (pkg/scheduler/framework/runtime/registry.go)

use crate::config::{PluginArgs, typed};
use crate::plugins;
use evenkeel_component::features::FeatureGates;
use evenkeel_scheduler::framework::Plugin;
use evenkeel_scheduler::plugins::inert::{INERT, Inert};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{collections::BTreeMap, error::Error, sync::Arc};

/// Arguments of a plugin factory.
pub struct PluginContext<'a> {
    /// Arguments in `pluginConfig`; null if there are none.
    pub args: &'a Value,
    /// The program's feature gates.
    pub gates: &'a FeatureGates,
}

impl PluginContext<'_> {
    /// Parses the arguments of an out-of-tree plugin. Returns the default if there are none.
    ///
    /// Upstream: `DecodeInto`.
    ///
    /// # Errors
    /// Fails if the arguments do not have the form of `T`.
    pub fn parse<T: DeserializeOwned + Default>(&self) -> Result<T, serde_json::Error> {
        if self.args.is_null() { Ok(T::default()) } else { T::deserialize(self.args) }
    }

    /// Returns the arguments of an in-tree plugin, with their defaults.
    pub(crate) fn args<T: PluginArgs>(&self) -> T {
        let mut args: T = typed(self.args);
        args.set_defaults(self.gates);
        args
    }
}

/// Result of a plugin factory.
pub type PluginResult = Result<Arc<dyn Plugin>, Box<dyn Error + Send + Sync>>;

/// Function that creates a plugin from its arguments.
///
/// Upstream: `PluginFactory`.
type PluginFactory = Arc<dyn Fn(&PluginContext<'_>) -> PluginResult + Send + Sync>;

/// Plugin factories, by name in the configuration.
#[derive(Clone)]
pub struct Registry(BTreeMap<String, PluginFactory>);

impl Default for Registry {
    fn default() -> Self {
        Self::in_tree()
    }
}

impl Registry {
    /// Returns the registry of the in-tree plugins.
    ///
    /// Upstream: `NewInTreeRegistry`.
    pub fn in_tree() -> Self {
        let inert = INERT.iter().fold(Self(BTreeMap::new()), |registry, (name, _)| {
            registry.with(name, |_| Ok(Arc::new(Inert(name))))
        });
        plugins::FACTORIES
            .iter()
            .fold(inert, |registry, (name, factory)| registry.with(name, factory))
    }

    /// Registers a factory. It replaces any factory with the same name.
    ///
    /// Upstream: `WithPlugin`.
    #[must_use]
    pub fn with(
        mut self,
        name: &str,
        factory: impl Fn(&PluginContext<'_>) -> PluginResult + Send + Sync + 'static,
    ) -> Self {
        self.0.insert(name.to_owned(), Arc::new(factory));
        self
    }

    /// Creates a plugin. Returns `None` if the name is unknown.
    pub(crate) fn create(&self, name: &str, context: &PluginContext<'_>) -> Option<PluginResult> {
        self.0.get(name).map(|factory| factory(context))
    }
}
