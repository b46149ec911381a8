//! Marks objects that this program generates from a configuration file, so that a later start removes no other objects.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

/// Annotation of a generated object: a hash of its kind, namespace and name. If a user copies the object under another name,
/// the copy has the hash of the original, so it does not count as generated. With the plain name instead of a hash, replacing
/// the name in the object's JSON would also replace it here.
pub(crate) const GENERATED: &str = "evenkeel.dev/generated";

/// Returns the mark of an object.
pub(crate) fn mark(kind: &str, namespace: &str, name: &str) -> String {
    hash(&json!([kind, namespace, name]))
}

/// Returns a hash of a value.
pub(crate) fn hash(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, value.to_string().as_bytes()))
}

/// Adds its mark to an object.
pub(crate) fn marked(mut object: Value) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    let mark =
        mark(&text(&object["kind"]), &text(&metadata["namespace"]), &text(&metadata["name"]));
    object["metadata"]["annotations"][GENERATED] = mark.into();
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_not_its_own_mark() {
        let object = json!({"kind": "RoleBinding", "metadata": {"name": "a", "namespace": "ns"}});
        let copy = marked(object).to_string().replace("\"a\"", "\"b\"");
        let copy: Value = serde_json::from_str(&copy).expect("JSON");
        assert_eq!(copy["metadata"]["name"], "b");
        let of_copy = &copy["metadata"]["annotations"][GENERATED];
        assert_eq!(*of_copy, mark("RoleBinding", "ns", "a"));
        for (kind, namespace, name) in [
            ("RoleBinding", "ns", "b"),
            ("RoleBinding", "other", "a"),
            ("ClusterRoleBinding", "ns", "a"),
        ] {
            assert_ne!(*of_copy, mark(kind, namespace, name));
        }
    }
}
