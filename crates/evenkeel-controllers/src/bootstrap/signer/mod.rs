//! Bootstrap signer: signs the ConfigMap `cluster-info` with every bootstrap token. A new node has one of the tokens,
//! with which it verifies the ConfigMap. Upstream: `pkg/controller/bootstrap/bootstrapsigner.go`; RFC 7515, appendix F.

mod plan;

use super::token::{NAMESPACE, TokenSecret, token_secrets};
use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError, Started};
use evenkeel_api::{View as _, time::Timestamp};
use evenkeel_runtime::{
    cache::{Cache, Full},
    introspect::Description,
    plan::{Key, Plan, Planner},
};
use k8s_openapi::api::core::v1::ConfigMap;
use plan::Observed;

/// Namespace of the signed ConfigMap.
const CLUSTER_INFO_NAMESPACE: &str = "kube-public";
/// Name of the signed ConfigMap.
const CLUSTER_INFO: &str = "cluster-info";

/// The bootstrap signer. Upstream: `newBootstrapSignerControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "bootstrap-signer-controller",
    aliases: &["bootstrapsigner"],
    queue: "bootstrap_signer_queue",
    client: "bootstrap-signer",
    on_by_default: false,
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let caches = &context.env.caches;
    let tokens = token_secrets(caches);
    let config_maps =
        caches.selected::<Full<ConfigMap>>("", &format!("metadata.name={CLUSTER_INFO}"));
    let cluster_info = || Key::new(CLUSTER_INFO_NAMESPACE, CLUSTER_INFO);
    let builder = context
        .builder_watching(&DESCRIPTOR, &config_maps, move |event, enqueue| {
            if &*event.object().meta().namespace == CLUSTER_INFO_NAMESPACE {
                enqueue.add(cluster_info());
            }
        })
        .watches(&tokens, move |event, enqueue| {
            if &*event.object().meta().namespace == NAMESPACE {
                enqueue.add(cluster_info());
            }
        });
    context.run(builder.planned(Signer { config_maps, tokens }));
    Ok(Started::Yes)
}

/// Decides the signatures in the ConfigMap `cluster-info`.
struct Signer {
    config_maps: Cache<Full<ConfigMap>>,
    tokens: Cache<TokenSecret>,
}

impl Planner for Signer {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed> {
        let cluster_info = self.config_maps.get(&key.namespace, &key.name)?;
        Some(Observed { cluster_info, tokens: self.tokens.namespace(NAMESPACE) })
    }

    fn describe(&self, observed: &Observed, now: Timestamp) -> Description {
        let mut description = Description::new();
        description.fact("tokens that sign", plan::signing_ids(observed, now).join(", "));
        description
    }

    fn plan(&self, observed: &Observed, (): &(), now: Timestamp) -> (Plan, ()) {
        (plan::plan(observed, now), ())
    }
}
