use super::charge::{Refusal, Request, charge};
use super::*;
use evenkeel_api::{
    Encoding, View,
    views::{DeviceClass, ResourceQuota},
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Time of every request.
const T0: Timestamp = Timestamp::constant(1_790_000_000, 0);

fn object<V: View>(value: &Value) -> V {
    V::decode(value.to_string().as_bytes(), Encoding::Json).unwrap()
}

fn pods() -> Evaluator {
    Evaluator::new("", "pods").unwrap()
}

/// Returns the usage of a pod without `count/pods`.
fn usage_of(pod: &Value) -> String {
    let pod: Pod = object(pod);
    let mut usage = Item::Pod(&pod).usage(&pods(), &Classes::default(), T0);
    usage.retain(|name, _| name != "count/pods");
    usage.to_string()
}

fn container(resources: &Value) -> Value {
    json!({"name": "c", "resources": resources})
}

#[test]
fn evaluators_match_only_the_quota_resources_of_their_objects() {
    let none = Classes::default();
    let table = [
        (("", "pods"), vec!["pods", "count/pods", "cpu", "limits.memory", "hugepages-2Mi"]),
        (("", "pods"), vec!["requests.hugepages-2Mi", "requests.example.com/gpu"]),
        (("", "services"), vec!["services", "services.nodeports", "count/services"]),
        (("", "persistentvolumeclaims"), vec!["requests.storage", "count/persistentvolumeclaims"]),
        (("", "persistentvolumeclaims"), vec!["a.b.storageclass.storage.k8s.io/requests.storage"]),
        (("", "secrets"), vec!["secrets", "count/secrets"]),
        (("apps", "deployments"), vec!["count/deployments.apps"]),
        (("resource.k8s.io", "resourceclaims"), vec!["gpu.deviceclass.resource.k8s.io/devices"]),
    ];
    for ((group, plural), names) in &table {
        let evaluator = Evaluator::new(group, plural).unwrap();
        for name in names {
            assert!(evaluator.matches_resource(name, &none), "{plural} {name}");
        }
        for (_, others) in table.iter().filter(|((_, other), _)| other != plural) {
            for name in others {
                assert!(!evaluator.matches_resource(name, &none), "{plural} {name}");
            }
        }
    }
    assert!(!pods().matches_resource("requests.kubernetes.io/x", &none));
    assert!(!pods().matches_resource("requests.storage", &none));
    assert!(!Evaluator::new("example.com", "secrets").unwrap().matches_resource("secrets", &none));
    assert_eq!(Evaluator::new("events.k8s.io", "events"), None);
}

#[test]
fn pods_are_charged_for_their_requests_and_limits() {
    let table = [
        (
            "no requests and limits",
            json!({"containers": [container(&json!({}))]}),
            json!({}),
            "pods=1",
        ),
        (
            "requests and limits",
            json!({"containers": [container(&json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "1", "memory": "1Gi"}})), container(&json!({"requests": {"cpu": "0.2"}}))]}),
            json!({}),
            "cpu=300m,limits.cpu=1,limits.memory=1Gi,pods=1,requests.cpu=300m",
        ),
        (
            "huge pages and extended resources",
            json!({"containers": [container(&json!({"requests": {"hugepages-2Mi": "4Mi", "example.com/gpu": "2", "deviceclass.resource.kubernetes.io/x": "1", "kubernetes.io/odd": "1"}}))]}),
            json!({}),
            "hugepages-2Mi=4Mi,pods=1,requests.deviceclass.resource.kubernetes.io/x=1,requests.example.com/gpu=2,requests.hugepages-2Mi=4Mi",
        ),
        (
            "pod-level requests and overhead, which does not add a limit",
            json!({"containers": [container(&json!({"requests": {"cpu": "1"}}))], "resources": {"requests": {"cpu": "2"}}, "overhead": {"cpu": "10m"}}),
            json!({}),
            "cpu=2010m,pods=1,requests.cpu=2010m",
        ),
        (
            "a resize in progress counts the maximum of desired, allocated and actual amounts",
            json!({"containers": [container(&json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}))]}),
            json!({"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "1500m"}, "limits": {"cpu": "3"}}}]}),
            "cpu=2,limits.cpu=3,pods=1,requests.cpu=2",
        ),
        (
            "an infeasible resize does not count the desired amounts",
            json!({"containers": [container(&json!({"requests": {"cpu": "9"}, "limits": {"cpu": "9"}}))]}),
            json!({"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}], "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}]}),
            "cpu=1,limits.cpu=2,pods=1,requests.cpu=1",
        ),
        (
            "sidecars add to the containers and to later init containers",
            json!({"initContainers": [{"name": "s", "restartPolicy": "Always", "resources": {"limits": {"cpu": "1"}}}, {"name": "i", "resources": {"limits": {"cpu": "4"}}}], "containers": [container(&json!({"limits": {"cpu": "2"}}))]}),
            json!({}),
            "limits.cpu=5,pods=1",
        ),
        (
            "a finished pod",
            json!({"containers": [container(&json!({"requests": {"cpu": "1"}}))]}),
            json!({"phase": "Succeeded"}),
            "",
        ),
    ];
    for (name, spec, status, want) in table {
        assert_eq!(usage_of(&json!({"spec": spec, "status": status})), want, "{name}");
    }
}

#[test]
fn a_pod_is_charged_until_its_grace_period_ends() {
    let deleted = |seconds: i64, grace: i64| {
        let deletion = T0 - evenkeel_api::time::SignedDuration::from_secs(seconds);
        let meta =
            json!({"deletionTimestamp": deletion.to_string(), "deletionGracePeriodSeconds": grace});
        usage_of(&json!({"metadata": meta, "spec": {"containers": [container(&json!({}))]}}))
    };
    assert_eq!(deleted(10, 30), "pods=1");
    assert_eq!(deleted(30, 30), "pods=1");
    assert_eq!(deleted(31, 30), "");
}

#[test]
fn services_are_charged_for_node_ports_and_claims_for_storage() {
    let service = |spec: Value| {
        let service: Service = object(&json!({"spec": spec}));
        let evaluator = Evaluator::new("", "services").unwrap();
        Item::Service(&service).usage(&evaluator, &Classes::default(), T0).to_string()
    };
    let ports = json!([{"port": 80}, {"port": 81, "nodePort": 30001}]);
    assert_eq!(
        service(json!({"ports": ports})),
        "count/services=1,services=1,services.loadbalancers=0,services.nodeports=0"
    );
    assert_eq!(
        service(json!({"ports": ports, "type": "NodePort"})),
        "count/services=1,services=1,services.loadbalancers=0,services.nodeports=2"
    );
    assert_eq!(
        service(
            json!({"ports": ports, "type": "LoadBalancer", "allocateLoadBalancerNodePorts": false})
        ),
        "count/services=1,services=1,services.loadbalancers=1,services.nodeports=1"
    );
    let claim = |claim: Value| {
        let claim: PersistentVolumeClaim = object(&claim);
        let evaluator = Evaluator::new("", "persistentvolumeclaims").unwrap();
        Item::VolumeClaim(&claim).usage(&evaluator, &Classes::default(), T0).to_string()
    };
    assert_eq!(
        claim(
            json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1.5"}}}, "status": {"allocatedResources": {"storage": "1"}}})
        ),
        "count/persistentvolumeclaims=1,gold.storageclass.storage.k8s.io/persistentvolumeclaims=1,gold.storageclass.storage.k8s.io/requests.storage=2,persistentvolumeclaims=1,requests.storage=2"
    );
    assert_eq!(
        claim(
            json!({"spec": {"resources": {"requests": {"storage": "1Gi"}}}, "status": {"allocatedResources": {"storage": "2Gi"}}})
        ),
        "count/persistentvolumeclaims=1,persistentvolumeclaims=1,requests.storage=2Gi"
    );
}

#[test]
fn device_claims_are_charged_for_devices_that_their_pod_does_not_request() {
    let class: DeviceClass = object(
        &json!({"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}}),
    );
    let classes: Classes = [&class].into_iter().collect();
    let evaluator = Evaluator::new("resource.k8s.io", "resourceclaims").unwrap();
    assert!(evaluator.matches_resource("requests.example.com/gpu", &classes));
    assert!(
        evaluator.matches_resource("requests.deviceclass.resource.kubernetes.io/gpu", &classes)
    );
    assert!(!evaluator.matches_resource("requests.example.com/other", &classes));
    let claim: ResourceClaim = object(&json!({
        "metadata": {"name": "c", "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}]},
        "spec": {"devices": {"requests": [
            {"exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}},
            {"firstAvailable": [
                {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
                {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 3},
                {"deviceClassName": "other", "allocationMode": "All"},
            ]},
        ]}},
    }));
    let count = |pod: Option<&Pod>| {
        let usage = Item::DeviceClaim(&claim, pod).usage(&evaluator, &classes, T0);
        usage.to_string()
    };
    assert_eq!(
        count(None),
        "count/resourceclaims.resource.k8s.io=1,gpu.deviceclass.resource.k8s.io/devices=5,other.deviceclass.resource.k8s.io/devices=32,\
         requests.deviceclass.resource.kubernetes.io/gpu=5,requests.deviceclass.resource.kubernetes.io/other=32,requests.example.com/gpu=5"
    );
    let pod: Pod = object(&json!({"metadata": {"name": "p", "uid": "u"},
        "spec": {"containers": [container(&json!({"requests": {"example.com/gpu": "4"}}))]}}));
    assert!(is_claim_of(&claim, &pod, [&claim].into_iter()));
    assert!(count(Some(&pod)).ends_with("requests.example.com/gpu=1"), "{}", count(Some(&pod)));
    // Of two claims of the same age, the first by name counts as the pod's own.
    let mut other = claim.clone();
    other.meta.name = "a".into();
    assert!(!is_claim_of(&claim, &pod, [&claim, &other].into_iter()));
}

#[test]
fn scopes_select_pods_and_volume_claims() {
    let within = |item: Item<'_>, spec: Value| {
        item.is_within(&object::<ResourceQuota>(&json!({"spec": spec})).spec)
    };
    let scope = |name: &str| json!({"scopes": [name]});
    let selector = |name: &str, operator: &str, values: &[&str]| json!({"scopeSelector": {"matchExpressions": [{"scopeName": name, "operator": operator, "values": values}]}});
    let plain: Pod = object(&json!({"spec": {"containers": [container(&json!({}))]}}));
    let busy: Pod = object(
        &json!({"spec": {"activeDeadlineSeconds": 5, "priorityClassName": "high",
        "containers": [container(&json!({"requests": {"memory": "1"}}))],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z", "namespaceSelector": {}}]}}}}),
    );
    let class = "PriorityClass";
    let table = [
        (json!({}), true, true),
        (scope("Terminating"), false, true),
        (scope("NotTerminating"), true, false),
        (scope("BestEffort"), true, false),
        (scope("NotBestEffort"), false, true),
        (scope("CrossNamespacePodAffinity"), false, true),
        (scope(class), false, true),
        (scope("VolumeAttributesClass"), false, false),
        (json!({"scopes": ["Terminating", "BestEffort"]}), false, false),
        (selector(class, "In", &["high", "low"]), false, true),
        (selector(class, "In", &["low"]), false, false),
        (selector(class, "NotIn", &["high"]), true, false),
        (selector(class, "DoesNotExist", &[]), true, false),
        (selector(class, "Exists", &[]), false, true),
        (selector(class, "Near", &[]), false, false),
    ];
    for (spec, selects_plain, selects_busy) in table {
        assert_eq!(within(Item::Pod(&plain), spec.clone()), selects_plain, "{spec}");
        assert_eq!(within(Item::Pod(&busy), spec.clone()), selects_busy, "{spec}");
    }
    let claim: PersistentVolumeClaim = object(
        &json!({"spec": {"volumeAttributesClassName": "gold"},
        "status": {"currentVolumeAttributesClassName": "silver", "modifyVolumeStatus": {"targetVolumeAttributesClassName": "gold"}}}),
    );
    let class = "VolumeAttributesClass";
    assert_eq!(volume_classes(&claim), ["gold", "silver"]);
    assert!(within(Item::VolumeClaim(&claim), selector(class, "In", &["silver"])));
    assert!(!within(Item::VolumeClaim(&claim), selector(class, "In", &["bronze"])));
    assert!(!within(Item::VolumeClaim(&claim), scope("Terminating")));
    assert!(within(
        Item::VolumeClaim(&PersistentVolumeClaim::default()),
        selector(class, "DoesNotExist", &[])
    ));
    assert!(within(Item::Plain, json!({})));
    assert!(!within(Item::Plain, scope("BestEffort")));
}

fn quota(hard: &Value, used: &Value) -> ResourceQuota {
    object(
        &json!({"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": {"hard": hard, "used": used}}),
    )
}

/// Returns the quota's usage after `new` replaces `old`, or the reason for a rejection.
fn charged(
    quota: &ResourceQuota,
    new: &Value,
    old: Option<&Value>,
) -> Result<Option<String>, Refusal> {
    let (new, old): (Pod, Option<Pod>) = (object(new), old.map(object));
    let (evaluator, classes) = (pods(), Classes::default());
    let request = Request {
        evaluator: &evaluator,
        new: Item::Pod(&new),
        old: old.as_ref().map(Item::Pod),
        is_status_update: false,
        classes: &classes,
        now: T0,
    };
    let used = charge(std::slice::from_ref(quota), &request)?;
    Ok(used[0].as_ref().map(Usage::to_string))
}

#[test]
fn a_write_is_charged_or_rejected() {
    let pod = |cpu: &str| json!({"spec": {"containers": [container(&json!({"requests": {"cpu": cpu}}))]}});
    let limits = quota(&json!({"pods": "2", "cpu": "1"}), &json!({"pods": "1", "cpu": "500m"}));
    assert_eq!(charged(&limits, &pod("500m"), None).unwrap().as_deref(), Some("cpu=1,pods=2"));
    assert_eq!(
        charged(&limits, &pod("600m"), None).unwrap_err().to_string(),
        "exceeded quota: q, requested: cpu=600m, used: cpu=500m, limited: cpu=1"
    );
    let without_requests = json!({"spec": {"containers": [{"name": "b"}, {"name": "a"}]}});
    assert_eq!(
        charged(&limits, &without_requests, None).unwrap_err().to_string(),
        "failed quota: q: must specify cpu for: a,b"
    );
    let pod_resources = json!({"spec": {"containers": [{"name": "a"}], "resources": {"requests": {"cpu": "250m"}}}});
    assert_eq!(charged(&limits, &pod_resources, None).unwrap().as_deref(), Some("cpu=750m,pods=2"));
    let without_used =
        quota(&json!({"pods": "2", "cpu": "1", "secrets": "1"}), &json!({"pods": "1"}));
    assert_eq!(
        charged(&without_used, &pod("1m"), None).unwrap_err().to_string(),
        "status unknown for quota: q, resources: cpu,pods"
    );
    let full = quota(&json!({"pods": "1", "cpu": "1"}), &json!({"pods": "1", "cpu": "1"}));
    assert_eq!(
        charged(&full, &pod("1"), None).unwrap_err().to_string(),
        "exceeded quota: q, requested: cpu=1,pods=1, used: cpu=1,pods=1, limited: cpu=1,pods=1"
    );
    assert_eq!(
        charged(&limits, &pod("-1"), None).unwrap_err().to_string(),
        "quota usage is negative for resource(s): cpu,requests.cpu"
    );
    // An update is charged for the usage that it adds. Usage that it removes is not credited.
    assert_eq!(charged(&full, &pod("1"), Some(&pod("1"))), Ok(None));
    assert_eq!(charged(&full, &pod("500m"), Some(&pod("1"))), Ok(None));
    assert_eq!(
        charged(&limits, &pod("700m"), Some(&pod("500m"))).unwrap().as_deref(),
        Some("cpu=700m,pods=1")
    );
    // Resources that the quota does not limit are not charged.
    let secrets = quota(&json!({"secrets": "1"}), &json!({}));
    assert_eq!(charged(&secrets, &pod("1"), None), Ok(None));
}

#[test]
fn an_object_that_newly_matches_a_scope_is_charged_in_full() {
    let mut terminating = quota(&json!({"pods": "3"}), &json!({"pods": "1"}));
    terminating.spec.scopes = Box::new(["Terminating".into()]);
    let pod = |deadline: Value| json!({"spec": {"activeDeadlineSeconds": deadline, "containers": [container(&json!({}))]}});
    let (without, with) = (pod(Value::Null), pod(json!(5)));
    assert_eq!(charged(&terminating, &without, None), Ok(None));
    assert_eq!(charged(&terminating, &with, Some(&without)).unwrap().as_deref(), Some("pods=2"));
    assert_eq!(charged(&terminating, &with, Some(&with)), Ok(None));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn admitted_pods_never_exceed_the_limit(
        limit in 1i64..2000,
        pods in proptest::collection::vec(1i64..900, 1..12),
    ) {
        let mut quota = quota(&json!({"cpu": format!("{limit}m")}), &json!({"cpu": "0"}));
        let mut admitted = 0;
        for cpu in pods {
            let pod = json!({"spec": {"containers": [container(&json!({"requests": {"cpu": format!("{cpu}m")}}))]}});
            match charged(&quota, &pod, None) {
                Ok(used) => {
                    admitted += cpu;
                    let used = used.unwrap();
                    prop_assert_eq!(&used, &format!("cpu={}", Quantity::from_millis(admitted)));
                    quota.status.used = [("cpu", Quantity::from_millis(admitted))].into_iter().collect();
                }
                Err(_) => prop_assert!(admitted + cpu > limit),
            }
            prop_assert!(admitted <= limit);
        }
    }

    #[test]
    fn subtracting_added_usage_restores_the_original(
        a in proptest::collection::btree_map("[a-c]", 0i64..100, 0..4),
        b in proptest::collection::btree_map("[a-c]", 0i64..100, 0..4),
    ) {
        let usage = |map: &std::collections::BTreeMap<String, i64>| -> Usage {
            map.iter().map(|(name, amount)| (name.as_str(), Quantity::from_units(*amount))).collect()
        };
        let (a, b) = (usage(&a), usage(&b));
        let mut sum = a.clone();
        sum.add(&b);
        let back = sum.saturating_sub(&b);
        for (name, amount) in a.iter() {
            prop_assert_eq!(back.get(name), Some(amount));
        }
        for (name, _) in b.iter().filter(|(name, _)| a.get(name).is_none()) {
            prop_assert_eq!(back.get(name), Some(Quantity::ZERO));
        }
        prop_assert_eq!(a.times(3).saturating_sub(&a), a.times(2));
    }
}
