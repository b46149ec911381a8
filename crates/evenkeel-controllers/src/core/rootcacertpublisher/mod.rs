//! Root CA certificate publisher: publishes the ConfigMap `kube-root-ca.crt` in every namespace. Upstream:
//! `pkg/controller/certificates/rootcacertpublisher`.

mod plan;

use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError, Started};
use evenkeel_api::{
    View,
    time::Timestamp,
    views::{ConfigMap, Namespace},
};
use evenkeel_runtime::{
    cache::Cache,
    introspect::Description,
    plan::{Key, Plan, Planner},
};
use plan::{CONFIG_MAP_NAME, Observed};
use std::sync::Arc;

/// Options of the controller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// The CA certificate as PEM, from the file of `--root-ca-file`. Without this flag, it is the CA with which the
    /// controller manager verifies the API server. Without a CA, the controller does not run.
    pub ca: Option<Arc<str>>,
}

/// The root CA certificate publisher. Upstream: `newRootCACertificatePublisherControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "root-ca-certificate-publisher-controller",
    aliases: &["root-ca-cert-publisher"],
    queue: "root_ca_cert_publisher",
    client: "root-ca-cert-publisher",
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let Some(ca) = context.options.rootcacertpublisher.ca.clone() else {
        return Ok(Started::No("no root CA is configured; set --root-ca-file"));
    };
    let caches = &context.env.caches;
    let namespaces = caches.of::<Namespace>();
    // The cache contains only the ConfigMaps with this name.
    let maps = caches.selected::<ConfigMap>("", &format!("metadata.name={CONFIG_MAP_NAME}"));
    let builder = context.builder(&DESCRIPTOR, &namespaces).passes_metric("root_ca_cert_publisher");
    let builder = builder.watches(&maps, |event, enqueue| {
        enqueue.add(Key::new("", &event.object().meta().namespace));
    });
    context.run(builder.planned(RootCa { namespaces, maps, ca }));
    Ok(Started::Yes)
}

/// Decides the content of a namespace's ConfigMap `kube-root-ca.crt`.
struct RootCa {
    namespaces: Cache<Namespace>,
    maps: Cache<ConfigMap>,
    ca: Arc<str>,
}

impl Planner for RootCa {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed> {
        let namespace = self.namespaces.get("", &key.name)?;
        Some(Observed {
            namespace,
            published: self.maps.get(&key.name, CONFIG_MAP_NAME),
            ca: self.ca.clone(),
        })
    }

    fn describe(&self, observed: &Observed, _: Timestamp) -> Description {
        let mut description = Description::new();
        description.fact(
            CONFIG_MAP_NAME,
            if observed.published.is_some() { "is there" } else { "is missing" },
        );
        description
    }

    fn plan(&self, observed: &Observed, (): &(), _: Timestamp) -> (Plan, ()) {
        (plan::plan(observed), ())
    }
}
