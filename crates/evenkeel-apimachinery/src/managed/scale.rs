//! Who manages the replicas of an object, as its `scale` sub-resource shows it (upstream: `managedfields.ScaleHandler`).
//!
//! In the view the field is `.spec.replicas` of `autoscaling/v1`, whatever it is in the object.

use serde_json::Value;

use super::entries::{Entry, ManagerId, Managers};
use super::set::FieldSet;

/// The version of the view.
const VIEW: &str = "autoscaling/v1";
/// The field in the view.
const REPLICAS: [&str; 2] = ["f:spec", "f:replicas"];

/// The managers of `object`'s replicas, for the view. `path` is the field in the object, as elements.
pub(crate) fn view(object: &Value, path: &[&str]) -> Managers {
    let mut shown = Managers::default();
    for (id, entry) in Managers::of(object).unwrap_or_default().entries {
        if entry.fields.has(path) {
            let fields = FieldSet::of(&[&REPLICAS]);
            shown.entries.insert(
                in_version(id, VIEW),
                Entry { api_version: VIEW.to_owned(), fields, ..entry },
            );
        }
    }
    shown
}

/// The managers of `object` after a write of the view that left it with the managers of `view`.
pub(crate) fn settle(object: &Value, view: &Value, api_version: &str, path: &[&str]) -> Managers {
    let mut left = Managers::of(view).unwrap_or_default().entries;
    let mut settled = Managers::default();
    for (id, mut entry) in Managers::of(object).unwrap_or_default().entries {
        // Updaters do not find themselves again, for their version is part of who they are: upstream forgets their time.
        if entry.fields.has(path) && (!id.applied || left.remove(&id).is_none()) {
            entry.fields = entry.fields.difference(&FieldSet::of(&[path]));
        }
        if !entry.fields.is_empty() {
            settled.entries.insert(id, entry);
        }
    }
    for (id, entry) in left {
        if entry.fields.has(&REPLICAS) {
            let fields = FieldSet::of(&[path]);
            let entry = Entry { api_version: api_version.to_owned(), fields, time: String::new() };
            settled.entries.insert(in_version(id, api_version), entry);
        }
    }
    settled
}

/// The same manager at another version.
fn in_version(id: ManagerId, api_version: &str) -> ManagerId {
    let api_version = if id.applied { String::new() } else { api_version.to_owned() };
    ManagerId { api_version, ..id }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_scaler_takes_the_replicas() {
        let entry = |manager: &str, operation: &str, fields: &Value| json!({"manager": manager, "operation": operation, "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": fields});
        let all = json!({"f:spec": {"f:replicas": {}, "f:selector": {}}});
        let mut object = json!({"metadata": {"managedFields": [entry("one", "Apply", &all), entry("two", "Update", &all)]}});
        let mut view = json!({"metadata": {}});
        super::view(&object, &REPLICAS).write(&mut view);
        let shown = view["metadata"]["managedFields"].as_array().map(Vec::len);
        assert_eq!(shown, Some(2));
        assert_eq!(view["metadata"]["managedFields"][0]["apiVersion"], VIEW);
        let taken = json!({"manager": "hpa", "operation": "Apply", "apiVersion": VIEW, "fieldsType": "FieldsV1",
            "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}});
        view["metadata"]["managedFields"] = json!([taken]);
        settle(&object.clone(), &view, "apps/v1", &REPLICAS).write(&mut object);
        let rest = json!({"f:spec": {"f:selector": {}}});
        let hpa = json!({"manager": "hpa", "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
            "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}});
        let want = json!([hpa, entry("one", "Apply", &rest), entry("two", "Update", &rest)]);
        assert_eq!(object["metadata"]["managedFields"], want);
    }
}
