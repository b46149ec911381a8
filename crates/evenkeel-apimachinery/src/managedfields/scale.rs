//! Managers of an object's replicas, translated for its `scale` subresource and back.
//!
//! In the Scale, the field is always `.spec.replicas` of `autoscaling/v1`.
//!
//! Upstream: `ScaleHandler`.

use serde_json::Value;

use super::field_set::FieldSet;
use super::managers::{ManagerEntry, ManagerId, Managers};

/// apiVersion of the Scale.
const SCALE_VERSION: &str = "autoscaling/v1";
/// Path of the replicas in the Scale.
const REPLICAS: [&str; 2] = ["f:spec", "f:replicas"];

/// Returns the managers of the replicas for the Scale. `path` is the replicas' path in the parent object.
///
/// Upstream: `ToSubresource`.
pub(crate) fn to_subresource(object: &Value, path: &[&str]) -> Managers {
    let mut scale_managers = Managers::default();
    for (id, entry) in Managers::decode(object).unwrap_or_default().entries {
        if entry.fields.has(path) {
            let fields = FieldSet::from_paths(&[&REPLICAS]);
            scale_managers.entries.insert(
                in_version(id, SCALE_VERSION),
                ManagerEntry { api_version: SCALE_VERSION.to_owned(), fields, ..entry },
            );
        }
    }
    scale_managers
}

/// Returns the managers of the parent object after a write of its Scale.
///
/// Upstream: `ToParent`.
pub(crate) fn to_parent(
    object: &Value,
    view: &Value,
    api_version: &str,
    path: &[&str],
) -> Managers {
    let mut rest = Managers::decode(view).unwrap_or_default().entries;
    let mut settled = Managers::default();
    for (id, mut entry) in Managers::decode(object).unwrap_or_default().entries {
        // An updater at the parent's version never matches one at the Scale's version. As in upstream, its time is
        // therefore lost.
        if entry.fields.has(path) && (!id.applied || rest.remove(&id).is_none()) {
            entry.fields = entry.fields.difference(&FieldSet::from_paths(&[path]));
        }
        if !entry.fields.is_empty() {
            settled.entries.insert(id, entry);
        }
    }
    for (id, entry) in rest {
        if entry.fields.has(&REPLICAS) {
            let fields = FieldSet::from_paths(&[path]);
            let entry =
                ManagerEntry { api_version: api_version.to_owned(), fields, time: String::new() };
            settled.entries.insert(in_version(id, api_version), entry);
        }
    }
    settled
}

/// Returns the same manager at another API version.
fn in_version(id: ManagerId, api_version: &str) -> ManagerId {
    let api_version = if id.applied { String::new() } else { api_version.to_owned() };
    ManagerId { api_version, ..id }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn replicas_written_through_scale_change_their_manager() {
        let entry = |manager: &str, operation: &str, fields: &Value| json!({"manager": manager, "operation": operation, "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": fields});
        let all = json!({"f:spec": {"f:replicas": {}, "f:selector": {}}});
        let mut object = json!({"metadata": {"managedFields": [entry("one", "Apply", &all), entry("two", "Update", &all)]}});
        let mut view = json!({"metadata": {}});
        super::to_subresource(&object, &REPLICAS).encode(&mut view);
        let scale_managers = view["metadata"]["managedFields"].as_array().map(Vec::len);
        assert_eq!(scale_managers, Some(2));
        assert_eq!(view["metadata"]["managedFields"][0]["apiVersion"], SCALE_VERSION);
        let taken = json!({"manager": "hpa", "operation": "Apply", "apiVersion": SCALE_VERSION, "fieldsType": "FieldsV1",
            "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}});
        view["metadata"]["managedFields"] = json!([taken]);
        to_parent(&object.clone(), &view, "apps/v1", &REPLICAS).encode(&mut object);
        let rest = json!({"f:spec": {"f:selector": {}}});
        let hpa = json!({"manager": "hpa", "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
            "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}});
        let want = json!([hpa, entry("one", "Apply", &rest), entry("two", "Update", &rest)]);
        assert_eq!(object["metadata"]["managedFields"], want);
    }
}
