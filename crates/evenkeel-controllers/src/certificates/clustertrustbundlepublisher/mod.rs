//! ClusterTrustBundle publisher: publishes the CA of the API server's serving certificate (KEP-3257). Upstream:
//! `pkg/controller/certificates/clustertrustbundlepublisher`.

mod plan;

use crate::{
    needs::Resource,
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::{
    cache::{Cache, Full},
    introspect::Description,
    plan::{Key, Plan, Planner},
    queue::Priority,
};
use plan::{Bundle, Observed, SIGNER};
use std::sync::Arc;

/// Descriptor of the ClusterTrustBundle publisher.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "kube-apiserver-serving-clustertrustbundle-publisher-controller",
    queue: "ca_cert_publisher_cluster_trust_bundles",
    client: "kube-apiserver-serving-clustertrustbundle-publisher",
    gates: &["ClusterTrustBundle"],
    resources: &[Resource {
        group: "certificates.k8s.io",
        version: "v1",
        plural: "clustertrustbundles",
    }],
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let Some(ca) = context.options.rootcacertpublisher.ca.clone().filter(|ca| !ca.is_empty())
    else {
        return Ok(Started::No("no root CA is configured; set --root-ca-file"));
    };
    let bundles =
        context.env.caches.selected::<Full<Bundle>>("", &format!("spec.signerName={SIGNER}"));
    let name = plan::bundle_name(&ca);
    let key = Key::new("", &name);
    let initial_key = key.clone();
    let builder = context
        .builder_watching(&DESCRIPTOR, &bundles, move |_, enqueue| enqueue.add(key.clone()))
        .passes_metric("clustertrustbundle_publisher");
    let controller = builder.planned(Publisher { bundles, ca, name });
    // While no bundle exists, no event enqueues the key.
    controller.queue().add(initial_key, Priority::NORMAL);
    context.run(controller);
    Ok(Started::Yes)
}

/// Decides the content of the published ClusterTrustBundle.
struct Publisher {
    bundles: Cache<Full<Bundle>>,
    ca: Arc<str>,
    name: String,
}

impl Planner for Publisher {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, _: &Key, (): &()) -> Option<Observed> {
        let ca = Arc::clone(&self.ca);
        let name = self.name.clone();
        Some(Observed { bundles: self.bundles.list(), ca, name })
    }

    fn describe(&self, observed: &Observed, _: Timestamp) -> Description {
        let mut description = Description::new();
        description.fact("bundles of the signer", observed.bundles.len());
        description
    }

    fn plan(&self, observed: &Observed, (): &(), _: Timestamp) -> (Plan, ()) {
        (plan::plan(observed), ())
    }
}
