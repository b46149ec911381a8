//! Declares a controller over whole objects of `k8s-openapi` or derived types: the operator author's way in.

use super::Manager;
use crate::{
    cache::Full,
    controller::{Builder, Context, Error, Outcome, Request},
    plan::{Key, Planner},
};
use evenkeel_api::View;

/// A controller of a manager under construction; made by [`Manager::controller`].
#[must_use = "a controller is added by `reconcile` or `planned`"]
pub struct ControllerBuilder<'m> {
    manager: &'m Manager,
    builder: Builder,
}

impl Manager {
    /// A controller of all objects of `K`; its name is the kind in lower case unless said otherwise.
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
    /// Another name than the kind's, for a second controller of the same kind.
    pub fn named(self, name: &str) -> Self {
        Self { builder: self.builder.named(name), ..self }
    }

    /// An event of a `D` reconciles the object that controls it.
    #[doc(alias = "Owns")]
    pub fn owns<D>(self) -> Self
    where
        Full<D>: View,
    {
        let cache = self.manager.env.caches.of::<Full<D>>();
        Self { builder: self.builder.owns(&cache), ..self }
    }

    /// An event of a `W` reconciles the objects that `map` names.
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

    /// How many objects are reconciled at a time; 1 unless said otherwise.
    #[doc(alias = "MaxConcurrentReconciles")]
    pub fn max_concurrent(self, n: usize) -> Self {
        Self { builder: self.builder.workers(n), ..self }
    }

    /// Adds the controller with an async function.
    #[doc(alias = "Complete")]
    pub fn reconcile<F, Fut>(self, function: F)
    where
        F: Fn(Request, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, Error>> + Send + 'static,
    {
        self.manager.add_controller(self.builder.reconcile(function));
    }

    /// Adds the controller with a pure planner.
    pub fn planned(self, planner: impl Planner) {
        self.manager.add_controller(self.builder.planned(planner));
    }
}
