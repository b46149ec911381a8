//! Manifests of `evenkeel load`: parses them, and sorts them into the order in which they are applied.

use anyhow::{Context, Result, bail};
use evenkeel_scheduler::simulate::read_objects;
use serde_json::{Map, Value};

/// Rank of kinds that no other kind needs: workloads, and all kinds that are not named.
const WORKLOAD_RANK: u8 = 3;

/// Object of a manifest.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Manifest {
    /// File of the manifest, for messages.
    pub(super) source: String,
    pub(super) object: Map<String, Value>,
}

impl Manifest {
    fn text(&self, field: &str) -> &str {
        self.object.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    fn metadata(&self, field: &str) -> &str {
        let metadata = self.object.get("metadata");
        metadata.and_then(|m| m.get(field)).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn api_version(&self) -> &str {
        self.text("apiVersion")
    }

    pub(super) fn kind(&self) -> &str {
        self.text("kind")
    }

    pub(super) fn name(&self) -> &str {
        self.metadata("name")
    }

    /// Returns the namespace of the object, or `default` if it has none.
    pub(super) fn namespace(&self) -> &str {
        match self.metadata("namespace") {
            "" => "default",
            namespace => namespace,
        }
    }

    /// Returns whether the object defines a custom resource.
    pub(super) fn is_definition(&self) -> bool {
        self.kind() == "CustomResourceDefinition"
            && self.api_version().starts_with("apiextensions.k8s.io/")
    }

    /// Returns whether the object may be a pod or create pods, which the server refuses without their service account.
    pub(super) fn may_need_account(&self) -> bool {
        self.rank() == WORKLOAD_RANK
    }

    /// Returns the rank in the order of application: objects that others need come first, webhooks and policies that may refuse
    /// others last.
    fn rank(&self) -> u8 {
        match self.kind() {
            _ if self.is_definition() => 0,
            "Namespace" => 1,
            "ServiceAccount" | "PriorityClass" | "StorageClass" | "RuntimeClass"
            | "IngressClass" | "DeviceClass" | "LimitRange" | "ResourceQuota" | "ClusterRole"
            | "Role" | "ConfigMap" | "Secret" => 2,
            "MutatingWebhookConfiguration"
            | "ValidatingWebhookConfiguration"
            | "MutatingAdmissionPolicyBinding"
            | "ValidatingAdmissionPolicyBinding" => 4,
            _ => WORKLOAD_RANK,
        }
    }
}

/// Returns the objects of a manifest, which is JSON or YAML documents. Lists are replaced by their items.
///
/// # Errors
/// Fails if the manifest cannot be parsed, or an object lacks its type or its name.
pub(super) fn parse(source: &str, text: &str) -> Result<Vec<Manifest>> {
    let objects = read_objects(text).with_context(|| source.to_owned())?;
    let manifests = objects.into_iter().map(|object| match object {
        Value::Object(object) => Ok(Manifest { source: source.to_owned(), object }),
        _ => bail!("{source}: a document is not an object with apiVersion, kind and metadata"),
    });
    manifests.collect()
}

/// Returns the manifests in the order in which they are applied. Manifests of one rank keep their order.
pub(super) fn ordered(mut manifests: Vec<Manifest>) -> Vec<Manifest> {
    manifests.sort_by_key(Manifest::rank);
    manifests
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let parsed = parse("f", text).expect("parsed");
        ordered(parsed).iter().map(|manifest| manifest.name().to_owned()).collect()
    }

    #[test]
    fn texts_are_yaml_documents_json_and_lists() {
        let object =
            |name: &str| format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}}}\n");
        assert_eq!(names(&format!("{}---\n---\n{}", object("a"), object("b"))), ["a", "b"]);
        let json = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"n"}}"#;
        assert_eq!(parse("f", json).expect("parsed")[0].namespace(), "n");
        let list = format!(
            "apiVersion: v1\nkind: List\nitems: [{}, {}]\n",
            object("a").trim(),
            object("b").trim()
        );
        assert_eq!(names(&list), ["a", "b"]);
        assert_eq!(names("# nothing\n"), [""; 0]);
    }

    #[test]
    fn definitions_and_namespaces_come_first_and_webhooks_last() {
        let kinds = [
            ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
            ("apps/v1", "Deployment"),
            ("v1", "Secret"),
            ("example.com/v1", "CustomResourceDefinition"),
            ("v1", "Namespace"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ];
        let documents = kinds.iter().enumerate().map(|(n, (version, kind))| {
            format!("{{apiVersion: {version}, kind: {kind}, metadata: {{name: n{n}}}}}")
        });
        let text = documents.collect::<Vec<_>>().join("\n---\n");
        assert_eq!(names(&text), ["n5", "n4", "n2", "n1", "n3", "n0"]);
    }

    #[test]
    fn objects_without_type_or_name_are_refused() {
        for (text, why) in [
            ("kind: Pod\nmetadata: {name: a}\n", "has no apiVersion"),
            ("apiVersion: v1\nmetadata: {name: a}\n", "has no kind"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {generateName: a}\n", "has no metadata.name"),
            ("[1]\n", "has no apiVersion"),
            ("a: [\n", "f"),
        ] {
            let error = format!("{:#}", parse("f", text).expect_err(text));
            assert!(error.contains(why), "{error}");
        }
    }
}
