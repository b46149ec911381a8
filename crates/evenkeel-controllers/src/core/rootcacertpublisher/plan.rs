//! ConfigMap with the root CA of a namespace.

use crate::wire;
use evenkeel_api::{
    Kind, View,
    views::{ConfigMap, Namespace},
};
use evenkeel_runtime::plan::{Create, Plan, Target, Update};
use serde_json::json;
use std::sync::Arc;

/// Name of the ConfigMap. Upstream: `RootCACertConfigMapName`.
pub(super) const CONFIG_MAP_NAME: &str = "kube-root-ca.crt";
/// Key of the CA in the ConfigMap.
const CA_KEY: &str = "ca.crt";
/// Annotation with the description. Upstream: `DescriptionAnnotation`.
const DESCRIPTION_ANNOTATION: &str = "kubernetes.io/description";
/// The description, in upstream's words. Upstream: `Description`.
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
    endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
    distributions of Kubernetes clusters.";

/// A namespace, its ConfigMap, and the CA.
pub(super) struct Observed {
    pub(super) namespace: Arc<Namespace>,
    pub(super) published: Option<Arc<ConfigMap>>,
    pub(super) ca: Arc<str>,
}

/// Creates or repairs the ConfigMap, except in a terminating namespace. Upstream: `syncNamespace`.
pub(super) fn plan(observed: &Observed) -> Plan {
    let mut plan = Plan::nothing();
    if observed.namespace.meta.deleting() || &*observed.namespace.status.phase == "Terminating" {
        return plan;
    }
    let namespace = &*observed.namespace.meta.name;
    let kind: Kind = ConfigMap::kind();
    match &observed.published {
        None => {
            let body = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": CONFIG_MAP_NAME, "namespace": namespace, "annotations": {DESCRIPTION_ANNOTATION: DESCRIPTION}},
                "data": {CA_KEY: &*observed.ca},
            });
            plan.push(Create::new(kind, namespace, body.to_string()));
        }
        // The controller's role permits create and update of ConfigMaps, but neither get nor patch.
        Some(map) if !is_up_to_date(map, &observed.ca) => {
            let annotations = map.meta.annotations.with(DESCRIPTION_ANNOTATION, DESCRIPTION);
            let body = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": wire::PreservedMetadata::with_annotations(&map.meta, &annotations),
                "data": {CA_KEY: &*observed.ca},
            });
            plan.push(Update::new(Target::of(kind, &map.meta), body.to_string()));
        }
        Some(_) => {}
    }
    plan
}

/// Returns whether the ConfigMap's data are exactly the CA, and it has a description, whatever its content.
fn is_up_to_date(map: &ConfigMap, ca: &str) -> bool {
    map.data.len() == 1
        && map.data.get(CA_KEY) == Some(ca)
        && map.meta.annotations.get(DESCRIPTION_ANNOTATION).is_some_and(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::{Meta, StrMap};
    use evenkeel_runtime::plan::Action;

    /// Returns a namespace whose ConfigMap has this data and the usual description. `None` means no ConfigMap.
    fn observed(data: Option<&[(&str, &str)]>) -> Observed {
        described(data, DESCRIPTION)
    }

    fn described(data: Option<&[(&str, &str)]>, description: &str) -> Observed {
        let published = data.map(|data| {
            let annotations: StrMap = [(DESCRIPTION_ANNOTATION, description)].into_iter().collect();
            let meta = Meta {
                name: CONFIG_MAP_NAME.into(),
                namespace: "ns".into(),
                annotations,
                ..Meta::default()
            };
            Arc::new(ConfigMap {
                meta,
                data: data.iter().copied().collect(),
                ..ConfigMap::default()
            })
        });
        let namespace = Namespace {
            meta: Meta { name: "ns".into(), ..Meta::default() },
            ..Namespace::default()
        };
        Observed { namespace: namespace.into(), published, ca: "PEM".into() }
    }

    #[test]
    fn config_map_is_created_once() {
        assert!(matches!(&*plan(&observed(None)).actions, [Action::Create(_)]));
        assert!(plan(&observed(Some(&[(CA_KEY, "PEM")]))).is_nothing());
    }

    #[test]
    fn only_a_missing_description_is_added() {
        let action_count =
            |text: &str| plan(&described(Some(&[(CA_KEY, "PEM")]), text)).actions.len();
        assert_eq!(
            [action_count(""), action_count("Our own"), action_count(DESCRIPTION)],
            [1, 0, 0]
        );
    }

    #[test]
    fn changed_data_is_restored() {
        let plan = plan(&observed(Some(&[(CA_KEY, "OLD"), ("more", "x")])));
        let [Action::Update(update)] = &*plan.actions else { panic!("{plan:?}") };
        let body: serde_json::Value = serde_json::from_slice(&update.body).expect("JSON");
        assert_eq!(body["data"], json!({CA_KEY: "PEM"}));
        assert_eq!(body["metadata"]["annotations"][DESCRIPTION_ANNOTATION], DESCRIPTION);
    }
}
