//! The ClusterTrustBundle of the signer. Its name contains a hash of its content.

pub(super) use crate::newer_kinds::ClusterTrustBundle as Bundle;
use crate::wire;
use evenkeel_api::View;
use evenkeel_runtime::{
    cache::Full,
    plan::{Create, Delete, OnError, Plan, Target, Update},
};
use ring::digest::{SHA256, digest};
use serde_json::json;
use std::{fmt::Write as _, sync::Arc};

/// Signer of the API server's serving certificate.
pub(super) const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";

/// Bundles of the signer, and the CA to publish.
pub(super) struct Observed {
    pub(super) bundles: Vec<Arc<Full<Bundle>>>,
    /// The CA's certificates as PEM.
    pub(super) ca: Arc<str>,
    /// Name of the CA's bundle.
    pub(super) name: String,
}

/// Returns the name of the CA's bundle, which contains a hash of the CA. Upstream: `constructBundleName`.
pub(super) fn bundle_name(ca: &str) -> String {
    let mut name = SIGNER.replace('/', ":") + ":";
    for byte in &digest(&SHA256, ca.as_bytes()).as_ref()[..12] {
        // A write to a String cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// Creates or repairs the bundle, then deletes other bundles of the signer.
pub(super) fn plan(observed: &Observed) -> Plan {
    let mut plan = Plan::nothing();
    let kind = Full::<Bundle>::kind();
    let (current, others): (Vec<_>, Vec<_>) =
        observed.bundles.iter().partition(|bundle| *bundle.meta().name == *observed.name);
    match current.first() {
        None => {
            let body = json!({
                "apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle",
                "metadata": {"name": observed.name}, "spec": {"signerName": SIGNER, "trustBundle": &*observed.ca},
            });
            let create = Create::new(kind.clone(), "", body.to_string());
            plan.push(Create { on_error: OnError::Abort, ..create });
        }
        Some(bundle) if trusted(bundle) != &*observed.ca => {
            let mut repaired = wire::copy_for_update(&****bundle);
            repaired.spec.get_or_insert_default().trust_bundle = observed.ca.to_string();
            let target = Target::of(kind.clone(), bundle.meta());
            plan.push(Update {
                on_error: OnError::Abort,
                ..Update::new(target, wire::json(&repaired))
            });
        }
        Some(_) => {}
    }
    for other in others {
        plan.push(Delete::new(Target::of(kind.clone(), other.meta())));
    }
    plan
}

/// Returns the certificates of a bundle, as PEM.
fn trusted(bundle: &Bundle) -> &str {
    bundle.spec.as_ref().map_or("", |spec| &spec.trust_bundle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::object;
    use evenkeel_runtime::plan::Action;
    use serde_json::Value;

    fn observed(bundles: &[(&str, &str)]) -> Observed {
        let bundles = bundles.iter().map(|(name, text)| {
            Arc::new(object(&json!({
                "metadata": {"name": name, "uid": name}, "spec": {"signerName": SIGNER, "trustBundle": text},
            })))
        });
        Observed { bundles: bundles.collect(), ca: "PEM".into(), name: bundle_name("PEM") }
    }

    #[test]
    fn name_contains_the_sha256_of_the_content() {
        // Expected from `sha256sum`.
        assert_eq!(
            bundle_name(""),
            "kubernetes.io:kube-apiserver-serving:e3b0c44298fc1c149afbf4c8"
        );
    }

    #[test]
    fn stale_bundles_are_replaced_or_updated() {
        let name = bundle_name("PEM");
        assert!(plan(&observed(&[(&name, "PEM")])).is_nothing());
        let replacement = plan(&observed(&[("old", "OLD")]));
        let [Action::Create(create), Action::Delete(delete)] = &*replacement.actions else {
            panic!("{replacement:?}")
        };
        let body: Value = serde_json::from_slice(&create.body).unwrap();
        assert_eq!((&body["metadata"]["name"], &*delete.target.name), (&json!(name), "old"));
        let repaired = plan(&observed(&[(&name, "forged")]));
        let [Action::Update(update)] = &*repaired.actions else { panic!("{repaired:?}") };
        let body: Value = serde_json::from_slice(&update.body).unwrap();
        assert_eq!(body["spec"]["trustBundle"], "PEM");
    }
}
