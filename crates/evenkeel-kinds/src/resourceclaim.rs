//! Strategy of resource.k8s.io: fields of claims, slices and taint rules that the server sets or drops.

use evenkeel_apimachinery::value::{each, get, get_mut, is_empty, list, remove, set, text};
use serde_json::Value;
use std::collections::BTreeSet;

pub use crate::validation::{DeviceId, device_id};

/// Sets `timeAdded` of taints that lack it.
///
/// Upstream: `SetDefaults_DeviceTaint`.
pub(crate) fn set_time_added(kind: &str, object: &mut Value, now: &str) {
    let path = match kind {
        "DeviceTaintRule" => "spec?.taint?",
        "ResourceSlice" => "spec?.devices.*.taints.*",
        _ => return,
    };
    each(object, path, &mut |taint| {
        if taint.is_object() && get(taint, "timeAdded").is_none() {
            set(taint, "timeAdded", now);
        }
    });
}

/// Sets `timeAdded` of a rule's taint when the effect changes, unless the client changes `timeAdded` itself.
///
/// Upstream: `deviceTaintRuleStrategy.PrepareForUpdate`.
pub(crate) fn prepare_taint_rule_update(new: &mut Value, old: &Value, now: &str) {
    let (effect, time) = ("spec.taint.effect", "spec.taint.timeAdded");
    if text(new, effect) != text(old, effect) && get(new, time) == get(old, time) {
        set(new, time, now);
    }
}

/// Drops the status of devices that this update deallocates.
///
/// Upstream: `dropDeallocatedStatusDevices`.
pub(crate) fn drop_deallocated_devices(claim: &mut Value, old: &Value) {
    const RESULTS: &str = "status.allocation.devices.results";
    let kept: Vec<Value> = {
        let allocated: BTreeSet<_> = list(claim, RESULTS).iter().map(device_id).collect();
        let deallocated: BTreeSet<_> =
            list(old, RESULTS).iter().map(device_id).filter(|id| !allocated.contains(id)).collect();
        let devices = list(claim, "status.devices").iter();
        devices.filter(|device| !deallocated.contains(&device_id(device))).cloned().collect()
    };
    let Some(status) = get_mut(claim, "status").and_then(Value::as_object_mut) else { return };
    if kept.is_empty() {
        status.remove("devices");
    } else {
        status.insert("devices".to_owned(), kept.into());
    }
}

/// Drops an empty list of a slice's devices or counters. If both lists are present, keeps both: validation rejects such
/// a slice even if the lists are empty.
pub(crate) fn drop_empty_pools(slice: &mut Value) {
    let fields = ["spec.devices", "spec.sharedCounters"];
    if fields.iter().all(|field| get(slice, field).is_some()) {
        return;
    }
    for field in fields {
        if is_empty(slice, field) {
            remove(slice, field);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn taints_without_a_time_get_the_current_time() {
        let mut rule = json!({"spec": {"taint": {"key": "a", "effect": "None"}}});
        set_time_added("DeviceTaintRule", &mut rule, "now");
        assert_eq!(rule["spec"]["taint"]["timeAdded"], "now");
        let mut slice =
            json!({"spec": {"devices": [{"taints": [{}, {"timeAdded": "then"}]}, {"name": "b"}]}});
        set_time_added("ResourceSlice", &mut slice, "now");
        let expected = json!({"spec": {"devices": [{"taints": [{"timeAdded": "now"}, {"timeAdded": "then"}]}, {"name": "b"}]}});
        assert_eq!(slice, expected);
        let mut no_spec = json!({});
        set_time_added("ResourceSlice", &mut no_spec, "now");
        assert_eq!(no_spec, json!({}));
    }

    #[test]
    fn a_changed_effect_sets_the_time_of_the_taint() {
        let rule = |effect: &str, time: &str| json!({"spec": {"taint": {"effect": effect, "timeAdded": time}}});
        let old = rule("None", "then");
        for (sent, expected) in [
            (rule("None", "then"), "then"),
            (rule("NoExecute", "then"), "now"),
            (rule("NoExecute", "other"), "other"),
        ] {
            let mut new = sent;
            prepare_taint_rule_update(&mut new, &old, "now");
            assert_eq!(new["spec"]["taint"]["timeAdded"], expected);
        }
    }

    #[test]
    fn the_status_of_deallocated_devices_is_dropped() {
        let device = |name: &str| json!({"driver": "d", "pool": "p", "device": name});
        let claim = |allocated: &[&str], devices: &[&str]| {
            let all = |names: &[&str]| names.iter().map(|name| device(name)).collect::<Value>();
            json!({"status": {"allocation": {"devices": {"results": all(allocated)}}, "devices": all(devices)}})
        };
        let old = claim(&["a", "b"], &["a", "b"]);
        let mut new = claim(&["a"], &["a", "b", "c"]);
        drop_deallocated_devices(&mut new, &old);
        assert_eq!(
            new,
            claim(&["a"], &["a", "c"]),
            "c was never allocated, so validation rejects it"
        );
        let mut new = claim(&[], &["a"]);
        drop_deallocated_devices(&mut new, &old);
        assert_eq!(new["status"].get("devices"), None);
    }
}
