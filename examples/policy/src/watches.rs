//! Watches of the kinds that policies name.

use crate::{FieldPolicy, TargetKind};
use evenkeel_runtime::{cache::Caches, prelude::*};
use kube::ResourceExt as _;
use std::{
    collections::BTreeSet,
    sync::{Mutex, OnceLock, PoisonError},
};

/// Watches of the controller of policies. A kind that no policy names any longer stays watched until the program ends.
pub(crate) struct Watches {
    /// Policies by the kind that they name.
    policies: Index<Full<FieldPolicy>>,
    /// The controller, once it is declared.
    controller: OnceLock<ControllerHandle>,
    kinds: Mutex<BTreeSet<Kind>>,
}

impl Watches {
    /// Returns the watches of a manager's controller, without any kind.
    pub(crate) fn new(manager: &Manager) -> Self {
        let policies = manager.cached::<FieldPolicy>().index("target", |policy, each| {
            each(&policy.object().spec.target.to_string());
        });
        Self { policies, controller: OnceLock::new(), kinds: Mutex::default() }
    }

    /// Sets the controller that owns these watches.
    pub(crate) fn begin(&self, controller: ControllerHandle) {
        // It is declared once.
        let _ = self.controller.set(controller);
    }

    /// Returns the keys of the policies that name a kind.
    pub(crate) fn policies(&self, target: &TargetKind) -> Vec<Key> {
        let mut keys = Vec::new();
        self.policies.for_each(&target.to_string(), |policy| {
            keys.push(Key::new("", &policy.object().name_any()));
        });
        keys
    }

    /// Returns the cache of a kind, whose events enqueue the policies that name it from now on.
    pub(crate) fn watch(self: &Arc<Self>, caches: &Caches, kind: &Kind) -> Cache<Dynamic> {
        let objects = caches.dynamic(kind.clone());
        let is_new = self.kinds.lock().unwrap_or_else(PoisonError::into_inner).insert(kind.clone());
        if let (true, Some(controller)) = (is_new, self.controller.get()) {
            let target = TargetKind { group: kind.group.to_string(), kind: kind.kind.to_string() };
            let watches = Arc::clone(self);
            // A kind that is forbidden, or no longer served, does not make the operator unready.
            let watch = controller.new_watch().optional();
            watch.watches_dynamic(kind.clone(), move |_| watches.policies(&target));
        }
        objects
    }
}
