//! Gives every namespace its default service account.
//!
//! Upstream: `pkg/controller/serviceaccount/serviceaccounts_controller.go`.

mod plan;

use evenkeel_api::{
    View,
    views::{Namespace, ServiceAccount},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    controller::{Builder, Controller, Env},
    plan::{Key, Outcomes, Plan, Planner},
};
use plan::{NAME, Seen};

/// Builds the controller.
pub fn controller(env: &Env) -> Controller {
    let (namespaces, accounts) = (env.caches.of::<Namespace>(), env.caches.of::<ServiceAccount>());
    Builder::new(env, "serviceaccount-controller", &namespaces)
        .queue("serviceaccount")
        .component("service-account-controller")
        .watches(&accounts, |event, enqueue| {
            if let CacheEvent::Deleted(account) = event {
                enqueue.add(Key::new("", &account.meta().namespace));
            }
        })
        .planned(ServiceAccounts { namespaces, accounts })
}

struct ServiceAccounts {
    namespaces: Cache<Namespace>,
    accounts: Cache<ServiceAccount>,
}

impl Planner for ServiceAccounts {
    type Seen = Seen;

    fn observe(&self, key: &Key) -> Option<Seen> {
        let namespace = self.namespaces.get("", &key.name)?;
        let account = self.accounts.get(&key.name, NAME);
        Some(Seen { namespace, account })
    }

    fn plan(&self, seen: &Seen, _: evenkeel_api::time::Timestamp) -> Plan {
        plan::plan(seen)
    }

    fn status(&self, _: &Seen, _: &Outcomes, _: evenkeel_api::time::Timestamp) -> Plan {
        Plan::nothing()
    }
}
