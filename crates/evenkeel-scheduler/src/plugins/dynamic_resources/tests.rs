//! Tests of the allocation of published devices to the requests of claims.

mod writes;

use evenkeel_api::{
    Encoding, View,
    views::{DeviceClass, DeviceTaintRule, Node, ResourceClaim, ResourceSlice},
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

use super::{
    allocate::{self, Failure},
    in_use::{InUse, Tracker},
    inventory::{Inventory, Offer},
    requests::{self, ClaimRequests},
    result,
    selectors::{Selector, SelectorCache},
};
use crate::fixtures::{merge, node};

pub(super) const DRIVER: &str = "gpu.example";

/// Returns an object in namespace `shop` whose uid is its name, with `more` merged into it.
pub(super) fn object<V: View>(name: &str, more: &Value) -> Arc<V> {
    let mut base = json!({"metadata": {"name": name, "uid": name, "namespace": "shop"}});
    merge(&mut base, more);
    Arc::new(V::decode(base.to_string().as_bytes(), Encoding::Json).unwrap())
}

/// Returns the only slice of the pool `p`, with `more` merged into its spec.
#[expect(clippy::needless_pass_by_value, reason = "values are written where they are used")]
pub(super) fn slice(name: &str, devices: Value, more: &Value) -> Arc<ResourceSlice> {
    let mut spec = json!({
        "driver": DRIVER, "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "allNodes": true, "devices": devices,
    });
    merge(&mut spec, more);
    object(name, &json!({"spec": spec}))
}

/// Returns devices with these values of the attribute `size`, named by index: `d0`, `d1`…
pub(super) fn devices_of_sizes(sizes: &[i64]) -> Value {
    let device = |(n, size): (usize, &i64)| {
        let attributes = json!({"size": {"int": size}, "odd": {"bool": size % 2 == 1}});
        json!({"name": format!("d{n}"), "attributes": attributes})
    };
    sizes.iter().enumerate().map(device).collect()
}

/// Returns a request for one device of the class `any`, with `more` merged into it.
fn exactly(name: &str, more: &Value) -> Value {
    let mut request = json!({"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1});
    merge(&mut request, more);
    json!({"name": name, "exactly": request})
}

fn claim(devices: &Value) -> Arc<ResourceClaim> {
    object("c", &json!({"spec": {"devices": devices}}))
}

fn requests(requests: &[Value]) -> Arc<ResourceClaim> {
    claim(&json!({"requests": requests}))
}

/// Slices, claims and devices in use of one test.
struct Fixture {
    slices: Vec<Arc<ResourceSlice>>,
    rules: Vec<Arc<DeviceTaintRule>>,
    in_use: InUse,
}

impl Fixture {
    fn new(slices: Vec<Arc<ResourceSlice>>) -> Self {
        Self { slices, rules: Vec::new(), in_use: InUse::default() }
    }

    /// Adds a claim to which these devices are allocated.
    #[expect(clippy::needless_pass_by_value, reason = "values are written where they are used")]
    fn with_allocated(mut self, results: Value) -> Self {
        let claim = object::<ResourceClaim>(
            "other",
            &json!({"status": {"allocation": {"devices": {"results": results}}}}),
        );
        self.in_use.add(claim.status.allocation.as_deref().unwrap());
        self
    }

    fn allocate_with<T>(
        &self,
        node: &Node,
        claims: &[Arc<ResourceClaim>],
        check: impl Fn(&[Arc<ClaimRequests>], Result<Vec<allocate::AllocatedDevices<'_>>, Failure>) -> T,
    ) -> T {
        let class = |name: &str| match name {
            "any" => Some(object::<DeviceClass>(name, &json!({}))),
            "odd" => {
                let odd = format!("device.attributes['{DRIVER}'].odd");
                let spec = json!({"selectors": [{"cel": {"expression": odd}}],
                    "config": [{"opaque": {"driver": DRIVER, "parameters": {"of": "class"}}}]});
                Some(object(name, &json!({"spec": spec})))
            }
            _ => None,
        };
        let inventory = Inventory::new(self.slices.clone(), self.rules.clone(), None);
        let compile = |text: &str| SelectorCache::default().get_or_compile(text);
        let claim_requests: Result<Vec<_>, _> = claims
            .iter()
            .map(|claim| requests::claim_requests(claim, &class, &compile).map(Arc::new))
            .collect();
        match claim_requests {
            Err(error) => check(&[], Err(Failure::Fatal(error))),
            Ok(claim_requests) => {
                let evaluate = |offer: &Offer, selector: &Selector, device: usize| {
                    selector.selects(offer.driver(), &offer.devices()[device])
                };
                let in_use = &self.in_use;
                let found = allocate::allocate(
                    &inventory,
                    in_use,
                    node,
                    &claim_requests,
                    &evaluate,
                    &|| false,
                );
                check(&claim_requests, found)
            }
        }
    }

    /// Returns the allocated devices, or the reason why there are none.
    fn allocate(&self, claims: &[Arc<ResourceClaim>]) -> String {
        self.allocate_on("n", claims)
    }

    fn allocate_on(&self, name: &str, claims: &[Arc<ResourceClaim>]) -> String {
        let node = node(name, &json!({"metadata": {"labels": {"zone": format!("z-{name}")}}}));
        self.allocate_with(&node, claims, |claim_requests, found| match found {
            Ok(found) => allocate::names(&found, claim_requests).join(" "),
            Err(Failure::NoSolution) => "none".to_owned(),
            Err(Failure::InvalidPool) => "invalid".to_owned(),
            Err(Failure::TimedOut) => "timed out".to_owned(),
            Err(Failure::Fatal(error)) => format!("error: {error}"),
        })
    }
}

/// Returns the fields of a request with this CEL selector.
fn with_selector(expression: &str) -> Value {
    json!({"selectors": [{"cel": {"expression": expression}}]})
}

#[test]
fn each_request_is_allocated_the_first_devices_that_match() {
    let fixture = Fixture::new(vec![slice("s", devices_of_sizes(&[1, 2, 3, 4]), &json!({}))]);
    let big = with_selector(&format!("device.attributes['{DRIVER}'].size >= 3"));
    for (requested, expected) in [
        (vec![exactly("r", &json!({}))], "r=p/d0"),
        (vec![exactly("r", &json!({"count": 2}))], "r=p/d0 r=p/d1"),
        (vec![exactly("r", &json!({"count": 5}))], "none"),
        (vec![exactly("r", &big)], "r=p/d2"),
        (vec![exactly("r", &json!({"deviceClassName": "odd", "count": 2}))], "r=p/d0 r=p/d2"),
        // The search releases the device of the first request if the second request needs it.
        (
            vec![
                exactly("a", &big),
                exactly("b", &with_selector(&format!("device.attributes['{DRIVER}'].size == 3"))),
            ],
            "a=p/d3 b=p/d2",
        ),
        (vec![exactly("r", &json!({"allocationMode": "All"}))], "r=p/d0 r=p/d1 r=p/d2 r=p/d3"),
        (
            vec![exactly("r", &json!({"allocationMode": "All", "deviceClassName": "odd"}))],
            "r=p/d0 r=p/d2",
        ),
        (vec![exactly("a", &json!({})), exactly("r", &json!({"allocationMode": "All"}))], "none"),
    ] {
        assert_eq!(fixture.allocate(&[requests(&requested)]), expected, "{requested:?}");
    }
    let two_devices = requests(&[exactly("r", &json!({"count": 2}))]);
    assert_eq!(
        fixture.allocate(&[Arc::clone(&two_devices), two_devices]),
        "r=p/d0 r=p/d1 r=p/d2 r=p/d3"
    );
}

#[test]
fn only_admin_access_is_allocated_devices_in_use() {
    let result_for =
        |device: &str| json!({"request": "r", "driver": DRIVER, "pool": "p", "device": device});
    let fixture = Fixture::new(vec![slice("s", devices_of_sizes(&[1, 2]), &json!({}))])
        .with_allocated(json!([result_for("d0")]));
    assert_eq!(fixture.allocate(&[requests(&[exactly("r", &json!({}))])]), "r=p/d1");
    let admin = exactly("r", &json!({"adminAccess": true, "allocationMode": "All"}));
    assert_eq!(fixture.allocate(&[requests(std::slice::from_ref(&admin))]), "r=p/d0 r=p/d1");
    // A device that is allocated with admin access remains available to other claims.
    let mut admin_result = result_for("d0");
    admin_result["adminAccess"] = json!(true);
    let fixture = Fixture::new(fixture.slices).with_allocated(json!([admin_result]));
    assert_eq!(fixture.allocate(&[requests(&[exactly("r", &json!({}))])]), "r=p/d0");
    let twice = requests(&[exactly("r", &json!({})), exactly("s", &json!({"adminAccess": true}))]);
    assert_eq!(
        fixture.allocate(&[twice]),
        "r=p/d0 s=p/d1",
        "a claim is not allocated a device twice"
    );
}

#[test]
fn fatal_errors_have_upstreams_messages() {
    let fixture = Fixture::new(vec![slice("s", devices_of_sizes(&[1]), &json!({}))]);
    for (requested, expected) in [
        (
            exactly("r", &with_selector("device.attributes['gpu.example'].none")),
            "error: claim shop/c: selector #0 on device gpu.example/p/d0: CEL runtime error: no such key: none. consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields",
        ),
        (
            exactly("r", &json!({"deviceClassName": "none"})),
            "error: claim shop/c, request r: could not retrieve device class none: deviceclass.resource.k8s.io \"none\" not found",
        ),
        (
            exactly("r", &json!({"count": 33})),
            "error: claim shop/c, request r: adding 33 devices exceeds the claim limit of 32, with 0 already accounted for",
        ),
    ] {
        assert_eq!(fixture.allocate(&[requests(&[requested])]), expected);
    }
}

#[test]
fn the_first_subrequest_that_can_be_satisfied_is_selected() {
    let choice = |name: &str, more: &Value| {
        let mut choice = json!({"name": name, "deviceClassName": "any", "allocationMode": "ExactCount", "count": 1});
        merge(&mut choice, more);
        choice
    };
    let first = |choices: &[Value]| json!({"name": "r", "firstAvailable": choices});
    let big = with_selector(&format!("device.attributes['{DRIVER}'].size > 8"));
    let requested = requests(&[first(&[choice("big", &big), choice("two", &json!({"count": 2}))])]);
    let fixture =
        |sizes: &[i64]| Fixture::new(vec![slice("s", devices_of_sizes(sizes), &json!({}))]);
    assert_eq!(fixture(&[1, 9]).allocate(&[Arc::clone(&requested)]), "r/big=p/d1");
    assert_eq!(fixture(&[1, 2]).allocate(&[Arc::clone(&requested)]), "r/two=p/d0 r/two=p/d1");
    assert_eq!(fixture(&[1]).allocate(&[Arc::clone(&requested)]), "none");
    // A later request may need the devices that the first alternative takes.
    let later = requests(&[
        first(&[choice("two", &json!({"count": 2})), choice("one", &json!({}))]),
        exactly("s", &json!({})),
    ]);
    assert_eq!(fixture(&[1, 2]).allocate(&[later]), "r/one=p/d0 s=p/d1");
    // An alternative with more devices than a claim may have is skipped.
    let many: Vec<i64> = (0..40).collect();
    let requested = requests(&[
        exactly("a", &json!({"count": 30})),
        first(&[choice("three", &json!({"count": 3})), choice("two", &json!({"count": 2}))]),
    ]);
    assert!(fixture(&many).allocate(&[requested]).ends_with("r/two=p/d30 r/two=p/d31"));
}

#[test]
fn devices_of_a_claim_satisfy_its_constraints() {
    let devices = json!([
        {"name": "a", "attributes": {"numa": {"int": 0}}},
        {"name": "b", "attributes": {"gpu.example/numa": {"int": 1}}},
        {"name": "c", "attributes": {"numa": {"int": 1}}},
        {"name": "d"},
    ]);
    let fixture = Fixture::new(vec![slice("s", devices, &json!({}))]);
    let allocate = |constraint: Value, requests: Vec<Value>| {
        fixture.allocate(&[claim(&json!({"requests": requests, "constraints": [constraint]}))])
    };
    let two = || vec![exactly("r", &json!({})), exactly("s", &json!({}))];
    let numa = "gpu.example/numa";
    assert_eq!(allocate(json!({"matchAttribute": numa}), two()), "r=p/b s=p/c");
    assert_eq!(allocate(json!({"distinctAttribute": numa}), two()), "r=p/a s=p/b");
    assert_eq!(allocate(json!({"matchAttribute": numa, "requests": ["r"]}), two()), "r=p/a s=p/b");
    let three = vec![exactly("r", &json!({"count": 3}))];
    assert_eq!(allocate(json!({"matchAttribute": numa}), three), "none");
    let all = vec![exactly("r", &json!({"allocationMode": "All"}))];
    assert_eq!(
        allocate(json!({"matchAttribute": numa}), all),
        "error: claim shop/c, request r: cannot add device gpu.example/p/b because a claim constraint would not be satisfied"
    );
}

#[test]
fn a_tainted_device_needs_a_toleration() {
    let tainted = |effect: &str| json!([{"name": "a", "taints": [{"key": "sick", "value": "yes", "effect": effect}]}]);
    let fixture = |effect: &str| Fixture::new(vec![slice("s", tainted(effect), &json!({}))]);
    let with_toleration =
        |toleration: Value| requests(&[exactly("r", &json!({"tolerations": [toleration]}))]);
    let one_device = || requests(&[exactly("r", &json!({}))]);
    assert_eq!(fixture("NoSchedule").allocate(&[one_device()]), "none");
    assert_eq!(fixture("NoExecute").allocate(&[one_device()]), "none");
    assert_eq!(fixture("None").allocate(&[one_device()]), "r=p/a");
    let exists = json!({"key": "sick", "operator": "Exists"});
    assert_eq!(fixture("NoExecute").allocate(&[with_toleration(exists)]), "r=p/a");
    let equal =
        |value: &str| with_toleration(json!({"key": "sick", "operator": "Equal", "value": value}));
    assert_eq!(fixture("NoSchedule").allocate(&[equal("yes")]), "r=p/a");
    assert_eq!(fixture("NoSchedule").allocate(&[equal("no")]), "none");
    // A DeviceTaintRule has the same effect as a taint that the driver publishes.
    let mut healthy = Fixture::new(vec![slice("s", devices_of_sizes(&[1, 2]), &json!({}))]);
    let rule = |selector: Value| {
        let taint = json!({"key": "k", "effect": "NoSchedule"});
        object("rule", &json!({"spec": {"deviceSelector": selector, "taint": taint}}))
    };
    healthy.rules = vec![rule(json!({"driver": DRIVER, "device": "d0"}))];
    assert_eq!(healthy.allocate(&[one_device()]), "r=p/d1");
    healthy.rules = vec![rule(json!({}))];
    assert_eq!(healthy.allocate(&[one_device()]), "none");
    healthy.rules = vec![rule(json!(null))];
    assert_eq!(healthy.allocate(&[one_device()]), "r=p/d0");
}

#[test]
fn devices_are_allocated_only_to_the_nodes_of_their_slice() {
    let one_device = requests(&[exactly("r", &json!({}))]);
    let on_n = json!({"allNodes": false, "nodeName": "n"});
    let zone = json!({"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "zone", "operator": "In", "values": ["z-n"]}]}]});
    let in_zone = json!({"allNodes": false, "nodeSelector": zone});
    let per_device = json!({"allNodes": false, "perDeviceNodeSelection": true});
    let devices_of_nodes =
        json!([{"name": "x", "nodeName": "m"}, {"name": "y", "nodeSelector": zone}]);
    for (devices, more, expected_on_n, expected_on_m) in [
        (devices_of_sizes(&[1]), on_n, "r=p/d0", "none"),
        (devices_of_sizes(&[1]), in_zone, "r=p/d0", "none"),
        (devices_of_nodes, per_device, "r=p/y", "r=p/x"),
    ] {
        let fixture = Fixture::new(vec![slice("s", devices, &more)]);
        assert_eq!(fixture.allocate_on("n", &[Arc::clone(&one_device)]), expected_on_n, "{more}");
        assert_eq!(fixture.allocate_on("m", &[Arc::clone(&one_device)]), expected_on_m, "{more}");
    }
}

#[test]
fn pools_must_be_complete_and_of_the_newest_generation() {
    let one_device = || requests(&[exactly("r", &json!({}))]);
    let all = || requests(&[exactly("r", &json!({"allocationMode": "All"}))]);
    let pool = |generation: i64, count: i64| json!({"pool": {"generation": generation, "resourceSliceCount": count}});
    let device_named = |name: &str| json!([{"name": name}]);
    let incomplete = Fixture::new(vec![slice("s", device_named("a"), &pool(1, 2))]);
    assert_eq!(incomplete.allocate(&[one_device()]), "none");
    assert_eq!(
        incomplete.allocate(&[all()]),
        "error: claim shop/c, request r: asks for all devices, but resource pool gpu.example/p is currently being updated"
    );
    let complete = Fixture::new(vec![
        slice("t", device_named("b"), &pool(1, 2)),
        slice("s", device_named("a"), &pool(1, 2)),
    ]);
    assert_eq!(complete.allocate(&[all()]), "r=p/a r=p/b", "slices are ordered by name");
    let newer = Fixture::new(vec![
        slice("s", device_named("old"), &pool(1, 1)),
        slice("t", device_named("new"), &pool(2, 1)),
    ]);
    assert_eq!(newer.allocate(&[all()]), "r=p/new");
    let on_other_node = json!({"allNodes": false, "nodeName": "m", "pool": {"generation": 2}});
    let replaced = Fixture::new(vec![
        slice("s", device_named("old"), &pool(1, 2)),
        slice("t", device_named("x"), &on_other_node),
    ]);
    assert_eq!(replaced.allocate(&[one_device()]), "none", "the pool is being replaced");
    let duplicate_names = Fixture::new(vec![
        slice("s", device_named("a"), &pool(1, 2)),
        slice("t", device_named("a"), &pool(1, 2)),
    ]);
    assert_eq!(duplicate_names.allocate(&[one_device()]), "invalid");
}

#[test]
fn partitions_of_a_device_share_its_counters() {
    let consumes =
        |memory: &str| json!([{"counterSet": "gpu", "counters": {"memory": {"value": memory}}}]);
    let two = json!({"pool": {"resourceSliceCount": 2}});
    let parts = json!([
        {"name": "half", "consumesCounters": consumes("4Gi")},
        {"name": "other-half", "consumesCounters": consumes("4Gi")},
        {"name": "whole", "consumesCounters": consumes("8Gi")},
    ]);
    let mut shared = two.clone();
    shared["sharedCounters"] = json!([{"name": "gpu", "counters": {"memory": {"value": "8Gi"}}}]);
    let fixture = Fixture::new(vec![slice("a", json!([]), &shared), slice("b", parts, &two)]);
    let devices = |count: i64| requests(&[exactly("r", &json!({"count": count}))]);
    assert_eq!(fixture.allocate(&[devices(2)]), "r=p/half r=p/other-half");
    assert_eq!(fixture.allocate(&[devices(3)]), "none");
    let fixture = fixture
        .with_allocated(json!([{"request": "r", "driver": DRIVER, "pool": "p", "device": "half"}]));
    assert_eq!(fixture.allocate(&[devices(1)]), "r=p/other-half");
    let fixture = fixture.with_allocated(
        json!([{"request": "r", "driver": DRIVER, "pool": "p", "device": "whole"}]),
    );
    assert_eq!(fixture.allocate(&[devices(1)]), "none");
    let odd = json!([{"name": "x", "consumesCounters": [{"counterSet": "none", "counters": {}}]}]);
    let fixture = Fixture::new(vec![slice("b", odd, &json!({}))]);
    assert_eq!(fixture.allocate(&[devices(1)]), "invalid");
}

#[test]
fn claims_share_a_device_within_its_capacity() {
    let devices = json!([{"name": "a", "allowMultipleAllocations": true, "capacity": {"memory": {"value": "10Gi",
        "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}}}}]);
    let fixture = Fixture::new(vec![slice("s", devices, &json!({}))]);
    let memory_request =
        |memory: &str| exactly("r", &json!({"capacity": {"requests": {"memory": memory}}}));
    assert_eq!(
        fixture.allocate(&[requests(&[memory_request("4Gi")]), requests(&[memory_request("6Gi")])]),
        "r=p/a r=p/a"
    );
    assert_eq!(
        fixture
            .allocate(&[requests(&[memory_request("4Gi")]), requests(&[memory_request("6500Mi")])]),
        "none"
    );
    let fixture = fixture
        .with_allocated(json!([{"request": "r", "driver": DRIVER, "pool": "p", "device": "a",
        "shareID": "s", "consumedCapacity": {"memory": "9Gi"}}]));
    assert_eq!(
        fixture.allocate(&[requests(&[exactly("r", &json!({}))])]),
        "r=p/a",
        "the default request fits"
    );
    assert_eq!(fixture.allocate(&[requests(&[memory_request("2Gi")])]), "none");
}

#[test]
fn devices_with_binding_conditions_are_allocated_last() {
    let late = json!([{"name": "a", "bindingConditions": ["Ready"]}]);
    let pool = |name: &str| json!({"pool": {"name": name}});
    let fixture = Fixture::new(vec![
        slice("s", late, &pool("a")),
        slice("t", json!([{"name": "b"}]), &pool("z")),
    ]);
    assert_eq!(fixture.allocate(&[requests(&[exactly("r", &json!({"count": 2}))])]), "r=z/b r=a/a");
}

#[test]
fn results_are_written_as_upstream_writes_them() {
    let devices = json!([{"name": "a", "attributes": {"odd": {"bool": true}}, "bindingConditions": ["Ready"]}]);
    let fixture =
        Fixture::new(vec![slice("s", devices, &json!({"allNodes": false, "nodeName": "n"}))]);
    let claim = claim(&json!({
        "requests": [exactly("r", &json!({"deviceClassName": "odd",
            "tolerations": [{"key": "k", "operator": "Exists"}]}))],
        "config": [{"requests": ["r"], "opaque": {"driver": DRIVER, "parameters": {"of": "claim"}}},
            {"requests": ["other"], "opaque": {"driver": DRIVER, "parameters": {}}}],
    }));
    let written =
        fixture.allocate_with(&node("n", &json!({})), &[claim], |claim_requests, found| {
            let allocation =
                result::allocation("n", &claim_requests[0], &found.unwrap()[0]).unwrap();
            assert_eq!(*allocation.result.devices.results[0].device, *"a");
            (*allocation.json).clone()
        });
    assert_eq!(
        written,
        json!({
            "devices": {
                "results": [{"request": "r", "driver": DRIVER, "pool": "p", "device": "a",
                    "tolerations": [{"key": "k", "operator": "Exists"}], "bindingConditions": ["Ready"]}],
                "config": [
                    {"source": "FromClass", "requests": ["r"], "opaque": {"driver": DRIVER, "parameters": {"of": "class"}}},
                    {"source": "FromClaim", "requests": ["r"], "opaque": {"driver": DRIVER, "parameters": {"of": "claim"}}},
                ],
            },
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": ["n"]}]}]},
        })
    );
}

#[test]
fn an_in_flight_allocation_counts_until_the_cache_shows_it() {
    let version = |version: &str, device: Option<&str>| {
        let status = device.map_or(json!({}), |device| {
            json!({"allocation": {"devices": {"results": [
                {"request": "r", "driver": DRIVER, "pool": "p", "device": device}]}}})
        });
        object::<ResourceClaim>(
            "c",
            &json!({"metadata": {"resourceVersion": version}, "status": status}),
        )
    };
    let id = |device: &str| format!("{DRIVER}/p/{device}");
    let mut tracker = Tracker::default();
    let (unallocated, allocated) = (version("1", None), version("2", Some("a")));
    tracker.observe(&unallocated);
    let allocation = Arc::new(allocated.status.allocation.as_deref().unwrap().clone());
    tracker.add_pending("c", Arc::clone(&allocation));
    assert!(tracker.is_pending("c") && tracker.in_use().is_exclusively_allocated(&id("a")));
    tracker.remove_unwritten("c");
    assert_eq!(*tracker.in_use(), InUse::default());
    tracker.add_pending("c", allocation);
    tracker.record_write(Arc::clone(&allocated));
    assert!(!tracker.is_pending("c"), "the allocation was written");
    assert!(Arc::ptr_eq(&tracker.latest(Arc::clone(&unallocated)), &allocated));
    tracker.observe(&allocated);
    assert!(tracker.in_use().is_exclusively_allocated(&id("a")));
    tracker.observe(&version("3", None));
    assert_eq!(*tracker.in_use(), InUse::default());
    tracker.observe(&version("4", Some("b")));
    tracker.remove(&version("4", Some("b")));
    assert_eq!(*tracker.in_use(), InUse::default());
    // The cache may show a write before the response arrives.
    let shared = json!({"status": {"allocation": {"devices": {"results": [{"request": "r", "driver": DRIVER,
        "pool": "p", "device": "s", "shareID": "one", "consumedCapacity": {"memory": "1Gi"}}]}}}});
    let shared = object::<ResourceClaim>("c", &shared);
    tracker.add_pending("c", Arc::new(shared.status.allocation.as_deref().unwrap().clone()));
    tracker.observe(&shared);
    tracker.record_write(Arc::clone(&shared));
    let amounts = tracker.in_use().consumed_capacity(&id("s")).unwrap().clone();
    assert_eq!(amounts.values().map(|amount| amount.value()).collect::<Vec<_>>(), [1 << 30]);
    assert!(!tracker.is_pending("c"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The search finds devices if and only if there are enough of each size, and allocates each device once.
    #[test]
    fn devices_are_found_if_and_only_if_there_are_enough(
        sizes in proptest::collection::vec(0_i64..4, 0..6),
        requested in proptest::collection::vec(0_i64..4, 1..5),
    ) {
        let fixture = Fixture::new(vec![slice("s", devices_of_sizes(&sizes), &json!({}))]);
        let at_least = |(n, size): (usize, &i64)| {
            let expression = format!("device.attributes['{DRIVER}'].size >= {size}");
            exactly(&format!("r{n}"), &with_selector(&expression))
        };
        let all_requests: Vec<Value> = requested.iter().enumerate().map(at_least).collect();
        let result = fixture.allocate(&[requests(&all_requests)]);
        let (mut available, mut needed) = (sizes.clone(), requested.clone());
        available.sort_unstable_by(|a, b| b.cmp(a));
        needed.sort_unstable_by(|a, b| b.cmp(a));
        let enough = available.len() >= needed.len()
            && needed.iter().zip(&available).all(|(needed, available)| available >= needed);
        prop_assert_eq!(result != "none", enough, "{} of {:?} for {:?}", result, sizes, requested);
        if enough {
            let mut devices: Vec<&str> =
                result.split(' ').filter_map(|entry| entry.split_once('=')).map(|(_, device)| device).collect();
            devices.sort_unstable();
            devices.dedup();
            prop_assert_eq!(devices.len(), requested.len());
        }
    }
}
