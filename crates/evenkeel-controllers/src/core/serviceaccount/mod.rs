//! Service account controller: creates the service account `default` in every namespace. Upstream:
//! `pkg/controller/serviceaccount/serviceaccounts_controller.go`.

mod plan;

use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError, Started};
use evenkeel_api::{
    View,
    time::Timestamp,
    views::{Namespace, ServiceAccount},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    introspect::Description,
    plan::{Key, Plan, Planner},
};
use plan::{NAME, Observed};
use std::time::Duration;

/// The service account controller. Upstream: `newServiceAccountControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "serviceaccount-controller",
    aliases: &["serviceaccount"],
    queue: "serviceaccount",
    client: "service-account-controller",
    start,
    ..Descriptor::DEFAULTS
};

/// Delay from a namespace's creation to the creation of its account. A client that applies a folder of manifests often
/// creates the account right after the namespace. Without the delay, both would create it, and one write would fail.
const CREATE_DELAY: Duration = Duration::from_millis(50);

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let caches = &context.env.caches;
    let namespaces = caches.of::<Namespace>();
    let accounts = caches.of::<ServiceAccount>();
    let builder = context.builder(&DESCRIPTOR, &namespaces).batch_period(CREATE_DELAY).watches(
        &accounts,
        |event, enqueue| {
            if let CacheEvent::Deleted(account) = event {
                enqueue.add(Key::new("", &account.meta().namespace));
            }
        },
    );
    context.run(builder.planned(ServiceAccounts { namespaces, accounts }));
    Ok(Started::Yes)
}

/// Decides whether to create the service account `default` of a namespace.
struct ServiceAccounts {
    namespaces: Cache<Namespace>,
    accounts: Cache<ServiceAccount>,
}

impl Planner for ServiceAccounts {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed> {
        let namespace = self.namespaces.get("", &key.name)?;
        let account = self.accounts.get(&key.name, NAME);
        Some(Observed { namespace, account })
    }

    fn describe(&self, observed: &Observed, _: Timestamp) -> Description {
        let mut description = Description::new();
        description.fact(
            "account default",
            if observed.account.is_some() { "is there" } else { "is missing" },
        );
        description
    }

    fn plan(&self, observed: &Observed, (): &(), _: Timestamp) -> (Plan, ()) {
        (plan::plan(observed), ())
    }
}
