//! Controller builder for operators, over whole objects of `k8s-openapi` or derived types.

use super::Manager;
use crate::{
    cache::Full,
    controller::{Builder, Context, Error, Outcome, Request},
    plan::{Key, Planner},
};
use evenkeel_api::View;

/// Settings of one controller. See [`Manager::controller`].
#[must_use = "a controller is added by `reconcile` or `planned`"]
pub struct ControllerBuilder<'m> {
    manager: &'m Manager,
    builder: Builder,
}

impl Manager {
    /// Returns a builder of a controller of all objects of `K`. Its default name is the kind in lower case.
    #[doc(alias = "For")]
    pub fn controller<K>(&self) -> ControllerBuilder<'_>
    where
        Full<K>: View,
    {
        let root = self.env.caches.of::<Full<K>>();
        let name = root.kind().kind.to_lowercase();
        ControllerBuilder { manager: self, builder: Builder::new(&self.env, &name, &root) }
    }
}

impl ControllerBuilder<'_> {
    /// Sets the controller's name, for a second controller of the same kind.
    pub fn named(self, name: &str) -> Self {
        Self { builder: self.builder.named(name), ..self }
    }

    /// Enqueues the owner (controller reference) of each `D` on the `D`'s events.
    #[doc(alias = "Owns")]
    pub fn owns<D>(self) -> Self
    where
        Full<D>: View,
    {
        let cache = self.manager.env.caches.of::<Full<D>>();
        Self { builder: self.builder.owns(&cache), ..self }
    }

    /// Enqueues the keys that `map` returns for each `W` on the `W`'s events.
    #[doc(alias = "Watches")]
    pub fn watches<W>(self, map: impl Fn(&Full<W>) -> Vec<Key> + Send + Sync + 'static) -> Self
    where
        Full<W>: View,
    {
        let cache = self.manager.env.caches.of::<Full<W>>();
        let builder = self.builder.watches(&cache, move |event, enqueue| {
            map(event.object()).into_iter().for_each(|key| enqueue.add(key));
        });
        Self { builder, ..self }
    }

    /// Sets the number of objects that are reconciled concurrently. Default: 1.
    #[doc(alias = "MaxConcurrentReconciles")]
    pub fn max_concurrent(self, n: usize) -> Self {
        Self { builder: self.builder.workers(n), ..self }
    }

    /// Adds the controller with an async reconcile function.
    #[doc(alias = "Complete")]
    pub fn reconcile<F, Fut>(self, function: F)
    where
        F: Fn(Request, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, Error>> + Send + 'static,
    {
        self.manager.add_controller(self.builder.reconcile(function));
    }

    /// Adds the controller with a pure [`Planner`].
    pub fn planned(self, planner: impl Planner) {
        self.manager.add_controller(self.builder.planned(planner));
    }
}
