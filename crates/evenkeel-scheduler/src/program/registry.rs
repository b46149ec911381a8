//! Which plugins a program knows, and how each is made of its arguments.

use super::config::{Wire, typed};
use super::plugins;
use crate::framework::Plugin;
use crate::plugins::inert::{INERT, Inert};
use evenkeel_component::features::FeatureGates;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{collections::BTreeMap, error::Error, sync::Arc};

/// What a plugin is made of.
pub struct Making<'a> {
    /// Its arguments from the configuration; null where there are none.
    pub args: &'a Value,
    /// Which features are on.
    pub gates: &'a FeatureGates,
}

impl Making<'_> {
    /// The arguments as a type of the plugin's own; its default where there are none.
    ///
    /// # Errors
    /// When they are of another form.
    pub fn parse<T: DeserializeOwned + Default>(&self) -> Result<T, serde_json::Error> {
        if self.args.is_null() { Ok(T::default()) } else { T::deserialize(self.args) }
    }

    /// Arguments that the configuration's reader knows.
    pub(super) fn wire<T: Wire>(&self) -> T {
        let mut args: T = typed(self.args);
        args.complete(self.gates);
        args
    }
}

/// A plugin, or why it cannot be made.
pub type Made = Result<Arc<dyn Plugin>, Box<dyn Error + Send + Sync>>;

type Make = Box<dyn Fn(&Making<'_>) -> Made + Send + Sync>;

/// The plugins that a configuration may name.
pub struct Registry(BTreeMap<String, Make>);

impl Default for Registry {
    fn default() -> Self {
        Self::builtin()
    }
}

impl Registry {
    /// Those that come with Evenkeel.
    pub fn builtin() -> Self {
        let inert = INERT.iter().fold(Self(BTreeMap::new()), |registry, (name, _)| {
            registry.with(name, |_| Ok(Arc::new(Inert(name))))
        });
        plugins::ALL.iter().fold(inert, |registry, (name, make)| registry.with(name, make))
    }

    /// These, and one more, or another in the place of one.
    #[must_use]
    pub fn with(
        mut self,
        name: &str,
        make: impl Fn(&Making<'_>) -> Made + Send + Sync + 'static,
    ) -> Self {
        self.0.insert(name.to_owned(), Box::new(make));
        self
    }

    /// Makes a plugin; none where the name is not known.
    pub(crate) fn make(&self, name: &str, making: &Making<'_>) -> Option<Made> {
        self.0.get(name).map(|make| make(making))
    }
}
