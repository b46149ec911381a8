//! Publishes the cluster's CA in every namespace, so that pods can trust the API server.
//!
//! Upstream: `pkg/controller/certificates/rootcacertpublisher`.

mod plan;

use evenkeel_api::{
    View,
    time::Timestamp,
    views::{ConfigMap, Namespace},
};
use evenkeel_runtime::{
    cache::Cache,
    controller::{Builder, Controller, Env},
    plan::{Key, Outcomes, Plan, Planner},
};
use plan::{NAME, Seen};
use std::sync::Arc;

/// Builds the controller that publishes `ca` (PEM).
pub fn controller(env: &Env, ca: &str) -> Controller {
    let (namespaces, maps) = (
        env.caches.of::<Namespace>(),
        env.caches.selected::<ConfigMap>("", &format!("metadata.name={NAME}")),
    );
    Builder::new(env, "root-ca-certificate-publisher-controller", &namespaces)
        .queue("root_ca_cert_publisher")
        .component("root-ca-cert-publisher")
        .watches(&maps, |event, enqueue| {
            let meta = event.object().meta();
            if &*meta.name == NAME {
                enqueue.add(Key::new("", &meta.namespace));
            }
        })
        .planned(RootCa { namespaces, maps, ca: ca.into() })
}

struct RootCa {
    namespaces: Cache<Namespace>,
    maps: Cache<ConfigMap>,
    ca: Arc<str>,
}

impl Planner for RootCa {
    type Seen = Seen;

    fn observe(&self, key: &Key) -> Option<Seen> {
        let namespace = self.namespaces.get("", &key.name)?;
        Some(Seen { namespace, published: self.maps.get(&key.name, NAME), ca: self.ca.clone() })
    }

    fn plan(&self, seen: &Seen, _: Timestamp) -> Plan {
        plan::plan(seen)
    }

    fn status(&self, _: &Seen, _: &Outcomes, _: Timestamp) -> Plan {
        Plan::nothing()
    }
}
