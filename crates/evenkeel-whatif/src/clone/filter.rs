//! Objects and fields that a copy of a cluster keeps.
//!
//! | objects and fields | in the copy | implemented in |
//! |---|---|---|
//! | Events, Leases, certificate requests, metrics, statuses of components | no | `is_left_out_type` |
//! | webhooks, extension API servers, flow control: they belong to the original API server | no | `is_left_out_type` |
//! | the Service `kubernetes` and its endpoints | no | `is_of_api_server` |
//! | Secrets of tokens | no | `is_token` |
//! | data of other Secrets, and of ConfigMaps if requested | keys with empty values | `empty_data` |
//! | resource version, managed fields, last applied configuration, election records | no | `clean_metadata` |
//! | conversion webhooks of definitions | conversion `None` | `without_webhook` |
//! | everything else, with UID, owners, node and status | yes | `keep` |

use serde_json::{Map, Value, json};

/// Options of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CloneOptions {
    /// Whether to leave out the data of ConfigMaps, too.
    pub without_config_maps: bool,
}

/// Annotations that are left out: the second one may contain the data of a Secret.
const LEFT_OUT_ANNOTATIONS: [&str; 2] = [
    "control-plane.alpha.kubernetes.io/leader",
    "kubectl.kubernetes.io/last-applied-configuration",
];

/// An empty value, and the base64 of an empty Docker configuration, which must be an object.
const EMPTY_DATA: [(&str, &str); 2] = [("", ""), (".dockerconfigjson", "e30=")];

/// Returns the object as it is in the copy; `None` if the copy leaves it out.
pub fn keep(mut object: Value, options: &CloneOptions) -> Option<Value> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("/apiVersion"), text("/kind").to_owned());
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    if is_left_out_type(group, &kind) || is_of_api_server(&object, &kind) {
        return None;
    }
    match (group, &*kind) {
        ("", "Secret") if is_token(text("/type")) => return None,
        ("", "Secret") => empty_data(&mut object),
        ("", "ConfigMap") if options.without_config_maps => empty_data(&mut object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => without_webhook(&mut object),
        _ => {}
    }
    clean_metadata(&mut object);
    Some(object)
}

/// Returns whether a copy has no objects of this type.
pub(super) fn is_left_out_type(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("", "Event" | "ComponentStatus" | "Binding")
            | (
                "events.k8s.io"
                    | "metrics.k8s.io"
                    | "custom.metrics.k8s.io"
                    | "external.metrics.k8s.io"
                    | "coordination.k8s.io"
                    | "certificates.k8s.io"
                    | "flowcontrol.apiserver.k8s.io"
                    | "apiregistration.k8s.io"
                    | "internal.apiserver.k8s.io"
                    | "storagemigration.k8s.io",
                _
            )
            | (
                "admissionregistration.k8s.io",
                "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration"
            )
    )
}

/// Returns whether an API server creates the object itself, from its own addresses and certificates.
fn is_of_api_server(object: &Value, kind: &str) -> bool {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    match kind {
        "Service" | "Endpoints" => (namespace, name) == ("default", "kubernetes"),
        "EndpointSlice" => {
            namespace == "default"
                && text("/metadata/labels/kubernetes.io~1service-name") == "kubernetes"
        }
        "ConfigMap" => (namespace, name) == ("kube-system", "extension-apiserver-authentication"),
        _ => false,
    }
}

/// Returns whether a Secret of this type holds a token.
fn is_token(secret_type: &str) -> bool {
    matches!(secret_type, "kubernetes.io/service-account-token" | "bootstrap.kubernetes.io/token")
}

/// Replaces the values in a Secret or ConfigMap by empty ones. The keys stay, because pods name them.
fn empty_data(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("stringData");
    }
    for field in ["data", "binaryData"] {
        for (key, value) in
            object.get_mut(field).and_then(Value::as_object_mut).into_iter().flatten()
        {
            let found = EMPTY_DATA.iter().find(|(name, _)| name == key);
            *value = found.map_or("", |(_, empty)| empty).into();
        }
    }
}

/// Removes metadata that the server and tools write: resource version, managed fields, annotations of tools.
fn clean_metadata(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    for field in ["managedFields", "resourceVersion", "selfLink"] {
        metadata.remove(field);
    }
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.retain(|key, _| !LEFT_OUT_ANNOTATIONS.contains(&&**key));
    }
    if metadata.get("annotations").and_then(Value::as_object).is_some_and(Map::is_empty) {
        metadata.remove("annotations");
    }
}

/// Sets the conversion `None` in a definition with a conversion webhook, because the copy cannot call the webhook.
fn without_webhook(definition: &mut Value) {
    if definition.pointer("/spec/conversion/strategy").is_some_and(|found| found == "Webhook") {
        definition["spec"]["conversion"] = json!({ "strategy": "None" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_have_no_secrets_and_no_volatile_objects() {
        let cases = [
            ("v1", "Event", json!({}), None),
            ("events.k8s.io/v1", "Event", json!({}), None),
            ("coordination.k8s.io/v1", "Lease", json!({}), None),
            ("certificates.k8s.io/v1", "CertificateSigningRequest", json!({}), None),
            ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", json!({}), None),
            (
                "admissionregistration.k8s.io/v1",
                "ValidatingAdmissionPolicy",
                json!({"spec": {}}),
                Some(json!({"spec": {}})),
            ),
            ("v1", "Secret", json!({"type": "kubernetes.io/service-account-token"}), None),
            ("v1", "Secret", json!({"type": "bootstrap.kubernetes.io/token"}), None),
            (
                "v1",
                "Secret",
                json!({"type": "Opaque", "data": {"password": "aHVudGVyMg=="}}),
                Some(json!({"type": "Opaque", "data": {"password": ""}})),
            ),
            (
                "v1",
                "Secret",
                json!({"data": {".dockerconfigjson": "c2VjcmV0"}, "stringData": {"a": "b"}}),
                Some(json!({"data": {".dockerconfigjson": "e30="}})),
            ),
            ("v1", "ConfigMap", json!({"data": {"a": "b"}}), Some(json!({"data": {"a": "b"}}))),
            (
                "apiextensions.k8s.io/v1",
                "CustomResourceDefinition",
                json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": {}}}}),
                Some(json!({"spec": {"conversion": {"strategy": "None"}}})),
            ),
            // A kind of the same name in another group is kept.
            (
                "example.com/v1",
                "Secret",
                json!({"data": {"a": "b"}}),
                Some(json!({"data": {"a": "b"}})),
            ),
            ("example.com/v1", "Event", json!({}), Some(json!({}))),
        ];
        for (api_version, kind, fields, expected) in cases {
            let whole = |mut fields: Value| {
                fields["apiVersion"] = api_version.into();
                fields["kind"] = kind.into();
                fields["metadata"] = json!({"name": "a", "uid": "u"});
                fields
            };
            let kept = keep(whole(fields), &CloneOptions::default());
            assert_eq!(kept, expected.map(whole), "{api_version} {kind}");
        }
    }

    #[test]
    fn data_of_config_maps_is_left_out_on_request() {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"},
            "data": {"a": "b"}, "binaryData": {"c": "ZA=="}});
        let kept = keep(map, &CloneOptions { without_config_maps: true }).unwrap();
        assert_eq!((&kept["data"], &kept["binaryData"]), (&json!({"a": ""}), &json!({"c": ""})));
    }

    #[test]
    fn identity_and_status_are_kept_without_what_the_server_writes() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "a", "namespace": "b", "uid": "u", "resourceVersion": "5",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "managedFields": [{}],
                "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "yes"
                },
                "ownerReferences": [{"uid": "o"}],
            },
            "spec": {"nodeName": "n"}, "status": {"phase": "Running"}});
        let expected = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "a", "namespace": "b", "uid": "u",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {"kept": "yes"},
                "ownerReferences": [{"uid": "o"}],
            },
            "spec": {"nodeName": "n"}, "status": {"phase": "Running"}});
        assert_eq!(keep(pod, &CloneOptions::default()), Some(expected));
    }

    #[test]
    fn objects_of_the_api_server_itself_are_left_out() {
        for (kind, namespace, name, labels, kept) in [
            ("Service", "default", "kubernetes", json!({}), false),
            ("Service", "shop", "kubernetes", json!({}), true),
            ("Endpoints", "default", "kubernetes", json!({}), false),
            (
                "EndpointSlice",
                "default",
                "x",
                json!({"kubernetes.io/service-name": "kubernetes"}),
                false,
            ),
            ("EndpointSlice", "default", "x", json!({"kubernetes.io/service-name": "web"}), true),
            ("ConfigMap", "kube-system", "extension-apiserver-authentication", json!({}), false),
        ] {
            let object = json!({"apiVersion": "v1", "kind": kind,
                "metadata": {"namespace": namespace, "name": name, "labels": labels}});
            let found = keep(object, &CloneOptions::default());
            assert_eq!(found.is_some(), kept, "{kind} {namespace}/{name}");
        }
    }
}
