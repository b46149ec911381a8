//! Strategy of PersistentVolumeClaims. A client may set `dataSource` or `dataSourceRef`. The strategy keeps both fields
//! equal.

use evenkeel_apimachinery::value::{get, get_mut, remove, set, text};
use serde_json::{Value, json};

/// Prepares the data sources of a claim. Drops sources that upstream ignores. If only one of the two fields is set,
/// copies the source to the other field.
///
/// Upstream: `DropDisabledFields`, `EnforceDataSourceBackwardsCompatibility`.
pub(crate) fn prepare(new: &mut Value, old: Option<&Value>) {
    let old_has = |field: &str| old.is_some_and(|old| get(old, field).is_some());
    let (source, reference) = ("spec.dataSource", "spec.dataSourceRef");
    // A source in another namespace needs an alpha feature.
    if !text(new, "spec.dataSourceRef.namespace").is_empty() && !old_has(reference) {
        remove(new, reference);
    }
    // Without `dataSourceRef`, upstream ignores a source that is neither a claim nor a snapshot.
    let is_only_source = !old_has(source) && !old_has(reference) && get(new, reference).is_none();
    if is_only_source && !get(new, source).is_some_and(is_claim_or_snapshot) {
        remove(new, source);
    }
    normalize_data_sources(new);
}

/// Drops status fields of alpha features unless the stored object has them.
///
/// Upstream: `DropDisabledFieldsFromStatus`.
pub(crate) fn prepare_status_update(new: &mut Value, old: &Value) {
    if get(old, "status.healthStatus").is_none() {
        remove(new, "status.healthStatus");
    }
}

/// Returns whether a data source is a claim or a VolumeSnapshot.
///
/// Upstream: `dataSourceIsPvcOrSnapshot`.
fn is_claim_or_snapshot(source: &Value) -> bool {
    matches!(
        (text(source, "kind"), text(source, "apiGroup")),
        ("PersistentVolumeClaim", "") | ("VolumeSnapshot", "snapshot.storage.k8s.io")
    )
}

/// Copies the data source to the other field if only one of the two fields is set.
///
/// Upstream: `NormalizeDataSources`.
pub(crate) fn normalize_data_sources(claim: &mut Value) {
    let Some(spec) = get_mut(claim, "spec") else { return };
    let (from, to) = match (get(spec, "dataSource"), get(spec, "dataSourceRef")) {
        (Some(source), None) => (source, "dataSourceRef"),
        (None, Some(source)) if text(source, "namespace").is_empty() => (source, "dataSource"),
        _ => return,
    };
    let mut copy = json!({"kind": text(from, "kind"), "name": text(from, "name")});
    if let Some(group) = get(from, "apiGroup") {
        copy["apiGroup"] = group.clone();
    }
    set(spec, to, copy);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supported_source_in_one_field_is_copied_to_the_other() {
        let none = Value::Null;
        let volume = json!({"kind": "PersistentVolumeClaim", "name": "a"});
        let snapshot =
            json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "a"});
        let other = json!({"apiGroup": "a", "kind": "A", "name": "a"});
        let mut foreign = volume.clone();
        foreign["namespace"] = json!("b");
        let claim = |source: &Value, reference: &Value| {
            let mut claim = json!({"spec": {}});
            for (field, value) in [("dataSource", source), ("dataSourceRef", reference)] {
                if !value.is_null() {
                    claim["spec"][field] = value.clone();
                }
            }
            claim
        };
        let bare = claim(&none, &none);
        for (new, old, expected) in [
            (claim(&volume, &none), None, claim(&volume, &volume)),
            (claim(&none, &snapshot), None, claim(&snapshot, &snapshot)),
            (claim(&other, &none), None, bare.clone()),
            (claim(&other, &none), Some(&bare), bare.clone()),
            (claim(&other, &none), Some(&claim(&other, &other)), claim(&other, &other)),
            (claim(&none, &other), None, claim(&other, &other)),
            (claim(&volume, &other), None, claim(&volume, &other)),
            (claim(&none, &foreign), None, bare.clone()),
            (claim(&none, &foreign), Some(&claim(&none, &foreign)), claim(&none, &foreign)),
            (json!({}), None, json!({})),
        ] {
            let mut prepared = new.clone();
            prepare(&mut prepared, old);
            assert_eq!(prepared, expected, "{new} {old:?}");
        }
    }
}
