//! Table tests of the plan.

use super::plan::{Observed, allocated_ip, contains, is_covered, plan};
use crate::fixtures::{T0, at, object};
use evenkeel_api::views::{Metadata, ServiceCidr};
use evenkeel_runtime::plan::{Action, PatchType};
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns a ServiceCIDR, deleted at this second, with this status of its condition `Ready`.
fn cidr(
    name: &str,
    ranges: &[&str],
    finalizers: &[&str],
    deletion: Option<i64>,
    ready: Option<&str>,
) -> Arc<ServiceCidr> {
    let mut cidr =
        json!({"metadata": {"name": name, "finalizers": finalizers}, "spec": {"cidrs": ranges}});
    if let Some(seconds) = deletion {
        cidr["metadata"]["deletionTimestamp"] = at(seconds).to_string().into();
    }
    if let Some(status) = ready {
        let (reason, message) = match status {
            "True" => ("", "Kubernetes Service CIDR is ready"),
            _ => (
                "Terminating",
                "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR",
            ),
        };
        cidr["status"] = json!({"conditions": [{"type": "Ready", "status": status, "reason": reason, "message": message}]});
    }
    Arc::new(object(&cidr))
}

const WITH_FINALIZER: &[&str] = &["networking.k8s.io/service-cidr-finalizer"];

/// Returns the field or condition that each patch sets, and the delay until the next sync in seconds.
fn planned(cidr: Arc<ServiceCidr>, has_orphan: bool) -> (Vec<String>, Option<u64>) {
    let orphan = has_orphan.then(|| "10.1.0.1".parse().unwrap());
    let plan = plan(&Observed { cidr, orphan }, T0);
    let field_or_condition = |action: &Action| {
        let Action::Patch(patch) = action else { panic!("{action:?}") };
        let body: Value = serde_json::from_slice(&patch.body).unwrap();
        match patch.form {
            PatchType::Apply(manager) => {
                assert_eq!((manager, patch.subresource), ("service-cidr-controller", "status"));
                format!("ready {}", body["status"]["conditions"][0]["status"].as_str().unwrap())
            }
            _ => body["metadata"].as_object().unwrap().keys().next().unwrap().clone(),
        }
    };
    let delay = plan.requeue.map(|delay| delay.as_secs());
    (plan.actions.iter().map(field_or_condition).collect(), delay)
}

#[test]
fn finalizer_and_condition_follow_deletion_and_use() {
    type WritesAndDelay = (&'static [&'static str], Option<u64>);
    let ranges = &["10.1.0.0/16"];
    let service_cidr = |finalizers, deletion, ready| cidr("c", ranges, finalizers, deletion, ready);
    // State, ServiceCIDR, whether it has an address that no other ServiceCIDR covers, and the expected writes and
    // delay.
    let table: [(&str, Arc<ServiceCidr>, bool, WritesAndDelay); 8] = [
        ("new", service_cidr(&[], None, None), false, (&["finalizers", "ready True"], None)),
        (
            "with finalizer",
            service_cidr(WITH_FINALIZER, None, None),
            false,
            (&["ready True"], None),
        ),
        ("ready", service_cidr(WITH_FINALIZER, None, Some("True")), false, (&[], None)),
        (
            "in use",
            service_cidr(WITH_FINALIZER, Some(-60), Some("True")),
            true,
            (&["ready False"], None),
        ),
        (
            "in use, condition written",
            service_cidr(WITH_FINALIZER, Some(-60), Some("False")),
            true,
            (&[], None),
        ),
        (
            "just deleted",
            service_cidr(WITH_FINALIZER, Some(-3), Some("True")),
            false,
            (&[], Some(7)),
        ),
        (
            "deleted",
            service_cidr(WITH_FINALIZER, Some(-10), Some("True")),
            false,
            (&["$deleteFromPrimitiveList/finalizers"], None),
        ),
        ("another's finalizer", service_cidr(&["x"], Some(-60), Some("True")), false, (&[], None)),
    ];
    for (state, cidr, has_orphan, (expected_writes, expected_delay)) in table {
        let (writes, delay) = planned(cidr, has_orphan);
        assert_eq!(writes, expected_writes, "{state}");
        assert_eq!(delay, expected_delay, "{state}");
    }
}

#[test]
fn service_cidr_is_covered_if_others_contain_all_its_ranges() {
    let service_cidr = |ranges: &[&str]| cidr("c", ranges, WITH_FINALIZER, None, None);
    // Ranges of the ServiceCIDR, ranges of another one, and whether the other contains all of them.
    let table: [(&[&str], &[&str], bool); 5] = [
        (&["10.1.0.0/16"], &["10.0.0.0/8"], true),
        (&["10.1.0.0/16"], &["10.1.0.0/16"], true),
        (&["10.1.0.0/16"], &["10.1.0.0/24"], false),
        (&["10.1.0.0/16", "fd00::/112"], &["10.0.0.0/8"], false),
        (&["10.1.0.0/16", "fd00::/112"], &["10.0.0.0/8", "fd00::/64"], true),
    ];
    for (ranges, other_ranges, expected) in table {
        assert_eq!(
            is_covered(&service_cidr(ranges), &[service_cidr(other_ranges)]),
            expected,
            "{ranges:?} in {other_ranges:?}"
        );
    }
    assert!(!is_covered(&service_cidr(&["10.1.0.0/16"]), &[]));
}

#[test]
fn only_addresses_of_the_service_allocator_count() {
    let address = |name: &str, manager: &str| -> Metadata {
        object(
            &json!({"metadata": {"name": name, "labels": {"ipaddress.kubernetes.io/managed-by": manager}}}),
        )
    };
    assert!(allocated_ip(&address("10.0.0.1", "ipallocator.k8s.io")).is_some());
    assert!(allocated_ip(&address("10.0.0.1", "somebody")).is_none());
    assert!(allocated_ip(&address("x", "ipallocator.k8s.io")).is_none());
}

#[test]
fn network_and_broadcast_addresses_are_excluded() {
    // Range, address, and whether a Service may have the address.
    let table = [
        ("10.0.1.0/24", "10.0.1.0", false),
        ("10.0.1.0/24", "10.0.1.1", true),
        ("10.0.1.0/24", "10.0.1.255", false),
        ("10.0.0.0/16", "10.0.1.255", true),
        ("10.0.0.0/16", "10.1.0.1", false),
        ("fd00::/112", "fd00::", false),
        ("fd00::/112", "fd00::ffff", true),
    ];
    for (range, ip, expected) in table {
        let cidr = cidr("c", &[range], WITH_FINALIZER, None, None);
        assert_eq!(contains(&cidr, ip.parse().unwrap()), expected, "{ip} in {range}");
    }
}
