//! Table tests of the plan.

use super::plan::{Observed, allocated, contains, is_covered, plan};
use crate::fixtures::{T0, at, object};
use evenkeel_api::views::{Metadata, ServiceCidr};
use evenkeel_runtime::plan::{Action, PatchForm};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

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

const HELD: &[&str] = &["networking.k8s.io/service-cidr-finalizer"];

/// Returns the field or condition that each patch sets, and the delay until the next pass in seconds.
fn done(cidr: Arc<ServiceCidr>, orphan: bool) -> (Vec<String>, Option<u64>) {
    let orphan = orphan.then(|| "10.1.0.1".parse().unwrap());
    let plan = plan(&Observed { cidr, orphan }, T0);
    let shown = |action: &Action| {
        let Action::Patch(patch) = action else { panic!("{action:?}") };
        let body: Value = serde_json::from_slice(&patch.body).unwrap();
        match patch.form {
            PatchForm::Apply(manager) => {
                assert_eq!((manager, patch.subresource), ("service-cidr-controller", "status"));
                format!("ready {}", body["status"]["conditions"][0]["status"].as_str().unwrap())
            }
            _ => body["metadata"].as_object().unwrap().keys().next().unwrap().clone(),
        }
    };
    (plan.actions.iter().map(shown).collect(), plan.requeue.map(|wait| Duration::as_secs(&wait)))
}

#[test]
fn finalizer_and_condition_follow_deletion_and_use() {
    type Want = (&'static [&'static str], Option<u64>);
    let ranges = &["10.1.0.0/16"];
    let service_cidr = |finalizers, deletion, ready| cidr("c", ranges, finalizers, deletion, ready);
    // State, ServiceCIDR, whether it has an address that no other ServiceCIDR covers, and the expected writes and
    // delay.
    let table: [(&str, Arc<ServiceCidr>, bool, Want); 8] = [
        ("new", service_cidr(&[], None, None), false, (&["finalizers", "ready True"], None)),
        ("with finalizer", service_cidr(HELD, None, None), false, (&["ready True"], None)),
        ("ready", service_cidr(HELD, None, Some("True")), false, (&[], None)),
        ("in use", service_cidr(HELD, Some(-60), Some("True")), true, (&["ready False"], None)),
        (
            "in use, condition written",
            service_cidr(HELD, Some(-60), Some("False")),
            true,
            (&[], None),
        ),
        ("just deleted", service_cidr(HELD, Some(-3), Some("True")), false, (&[], Some(7))),
        (
            "deleted",
            service_cidr(HELD, Some(-10), Some("True")),
            false,
            (&["$deleteFromPrimitiveList/finalizers"], None),
        ),
        ("another's finalizer", service_cidr(&["x"], Some(-60), Some("True")), false, (&[], None)),
    ];
    for (what, cidr, orphan, (writes, wait)) in table {
        let (done, waits) = done(cidr, orphan);
        assert_eq!(done, writes, "{what}");
        assert_eq!(waits, wait, "{what}");
    }
}

#[test]
fn service_cidr_is_covered_if_others_contain_all_its_ranges() {
    let service_cidr = |ranges: &[&str]| cidr("c", ranges, HELD, None, None);
    // Ranges of the ServiceCIDR, ranges of another one, and whether the other contains all of them.
    let table: [(&[&str], &[&str], bool); 5] = [
        (&["10.1.0.0/16"], &["10.0.0.0/8"], true),
        (&["10.1.0.0/16"], &["10.1.0.0/16"], true),
        (&["10.1.0.0/16"], &["10.1.0.0/24"], false),
        (&["10.1.0.0/16", "fd00::/112"], &["10.0.0.0/8"], false),
        (&["10.1.0.0/16", "fd00::/112"], &["10.0.0.0/8", "fd00::/64"], true),
    ];
    for (own, other, want) in table {
        assert_eq!(
            is_covered(&service_cidr(own), &[service_cidr(other)]),
            want,
            "{own:?} in {other:?}"
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
    assert!(allocated(&address("10.0.0.1", "ipallocator.k8s.io")).is_some());
    assert!(allocated(&address("10.0.0.1", "somebody")).is_none());
    assert!(allocated(&address("x", "ipallocator.k8s.io")).is_none());
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
    for (range, ip, want) in table {
        let cidr = cidr("c", &[range], HELD, None, None);
        assert_eq!(contains(&cidr, ip.parse().unwrap()), want, "{ip} in {range}");
    }
}
