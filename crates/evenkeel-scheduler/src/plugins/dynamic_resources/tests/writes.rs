//! Tests of the plugin's writes of claims against a scripted API server.

use evenkeel_api::views::{DeviceClass, ResourceClaim};
use evenkeel_runtime::{client::Client, clock::Clock};
use serde_json::{Value, json};
use std::sync::Arc;

use super::super::{
    AssumedClaims, AttemptState, Devices, DynamicResources, PreFilterRan,
    attempt::{Attempt, Extended, FilterContext, FilterResults},
    bind::act as writes,
    in_use::InUse,
    inventory::Inventory,
    result::Allocation,
    selectors::SelectorCache,
    tests::{DRIVER, devices_of_sizes, object, slice},
};
use crate::{
    fixtures::{at, handle, info, merge, node, series, table},
    framework::{
        Change, CycleState, Delta, Filter as _, NominatingInfo, ObjectChange, Plugin as _,
        PostBind as _, PostFilter as _, PostFilterResult, PreBind as _, PreBindError,
        PreBindPreFlight, PreFilter as _, PreFilterResult, Profile, QueueingHint, Reserve as _,
    },
    pod::PodInfo,
    schedule::{Cycle, FitError, Nominator, View},
    scripted::Script,
};

const CLAIM_PATH: &str = "/apis/resource.k8s.io/v1/namespaces/shop/resourceclaims/c";
const PATCH_STATUS: &str = "PATCH /apis/resource.k8s.io/v1/namespaces/shop/resourceclaims/c/status";
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

fn clock() -> Clock {
    Clock::starting_at(at(0))
}

/// Returns the claim `c`, which requests one device, at this resource version.
fn claim_json(version: &str, more: &Value) -> Value {
    let request = json!({"name": "r", "exactly": {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}});
    let mut claim = json!({
        "metadata": {"name": "c", "uid": "c", "namespace": "shop", "resourceVersion": version},
        "spec": {"devices": {"requests": [request]}},
    });
    merge(&mut claim, more);
    claim
}

fn claim(version: &str, more: &Value) -> Arc<ResourceClaim> {
    object("c", &claim_json(version, more))
}

/// Returns the allocation of the device `d0`, which this node can access.
fn allocation_on(node: &str) -> Value {
    let is_node = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    json!({
        "devices": {"results": [{"request": "r", "driver": DRIVER, "pool": "p", "device": "d0"}]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [is_node]}]},
    })
}

/// Returns the response to a write whose resource version is outdated.
fn conflict() -> (u16, Value) {
    (
        409,
        json!({"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409, "message": "changed"}),
    )
}

/// Returns the entry of `status.reservedFor` for this pod.
fn user(name: &str) -> Value {
    json!({"resource": "pods", "name": name, "uid": name})
}

fn pod() -> PodInfo {
    info("web", &json!({"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}}))
}

/// Returns the state of an attempt for a pod with this claim, after Filter ran for `nodes`. Only the node `n` has a device.
fn attempt(claim: Arc<ResourceClaim>, nodes: &[&str]) -> AttemptState {
    let devices = slice("s", devices_of_sizes(&[1]), &json!({"allNodes": false, "nodeName": "n"}));
    let devices = Devices::new(Inventory::new(vec![devices], Vec::new(), None), None);
    let class = |name: &str| Some(object::<DeviceClass>(name, &json!({})));
    let (inventory, in_use) = (Arc::clone(&devices.inventory), Arc::new(InUse::default()));
    let compile = |text: &str| SelectorCache::default().get_or_compile(text);
    let attempt = Attempt::new(vec![claim], &class, &compile, inventory, in_use, Extended::None);
    let mut results = FilterResults::default();
    for name in nodes {
        let node = node(name, &json!({}));
        let context = FilterContext {
            binding_timeout: std::time::Duration::from_secs(600),
            now: at(0),
            is_timed_out: &|| false,
            compile: &compile,
            evaluate: &|offer, selector, device| {
                selector.selects(offer.driver(), &offer.devices()[device])
            },
        };
        drop(attempt.filter(&node, &mut results, &context));
    }
    AttemptState { attempt, devices, results: std::sync::Mutex::new(results) }
}

/// Returns the allocation of the claim `c` that Filter computes for the node `n`.
fn computed_allocation() -> Allocation {
    let state = attempt(claim("1", &json!({})), &["n"]);
    let assumed = state.attempt.assumed_claims("n", &super::super::lock(&state.results)).unwrap();
    assumed.claims[0].1.clone().unwrap()
}

async fn reserve(
    client: &Client,
    claim: Arc<ResourceClaim>,
    allocation: Option<&Allocation>,
) -> Result<Arc<ResourceClaim>, String> {
    let outcome = writes::reserve(client, &pod().pod, claim, allocation, at(0)).await;
    outcome.map_err(|error: PreBindError| error.to_string())
}

/// Returns the first status that is written to a claim: its allocation and the reservation for the pod.
fn first_status(version: &str) -> Value {
    let mut allocation = allocation_on("n");
    allocation["allocationTimestamp"] = json!("2027-01-15T08:00:00Z");
    json!({
        "metadata": {"uid": "c", "resourceVersion": version},
        "status": {"allocation": allocation, "reservedFor": [user("web")]},
    })
}

#[tokio::test]
async fn the_allocation_is_written_after_the_finalizer() {
    let script = Script::new([
        (200, claim_json("2", &json!({"metadata": {"finalizers": ["other", FINALIZER]}}))),
        (200, claim_json("3", &json!({"status": {"allocation": allocation_on("n")}}))),
    ]);
    let client = script.client(&clock());
    let before = claim("1", &json!({"metadata": {"finalizers": ["other"]}}));
    let after = reserve(&client, before, Some(&computed_allocation())).await.unwrap();
    assert_eq!(&*after.meta.resource_version, "3");
    let finalizers = json!({"metadata": {"uid": "c", "resourceVersion": "1", "finalizers": ["other", FINALIZER]}});
    assert_eq!(
        script.take_requests(),
        [(format!("PATCH {CLAIM_PATH}"), finalizers), (PATCH_STATUS.to_owned(), first_status("2"))]
    );
}

#[tokio::test]
async fn reservations_for_other_pods_are_kept() {
    let shared =
        json!({"status": {"allocation": allocation_on("n"), "reservedFor": [user("first")]}});
    let protected = json!({"metadata": {"finalizers": [FINALIZER]}});
    let both_users = json!([user("first"), user("web")]);
    // In the second case, another client writes concurrently.
    for is_stale in [false, true] {
        let mut answers = vec![(200, claim_json("6", &shared))];
        if is_stale {
            answers.splice(0..0, [conflict(), (200, claim_json("5", &shared))]);
        }
        let script = Script::new(answers);
        let mut cached = shared.clone();
        merge(&mut cached, &protected);
        if is_stale {
            cached["status"]["reservedFor"] = json!([]);
        }
        reserve(&script.client(&clock()), claim("4", &cached), None).await.unwrap();
        let (request, body) = script.take_requests().pop().unwrap();
        assert_eq!((&*request, &body["status"]["reservedFor"]), (PATCH_STATUS, &both_users));
        let version = if is_stale { "5" } else { "4" };
        assert_eq!(body["metadata"]["resourceVersion"], version);
        let since = json!({"allocationTimestamp": "2027-01-15T08:00:00Z"});
        assert_eq!(body["status"]["allocation"], since, "only the new field is written");
    }
}

#[tokio::test]
async fn concurrent_changes_of_a_claim_are_reported() {
    let allocated = json!({"status": {"allocation": allocation_on("n")}});
    let deleted = json!({"metadata": {"deletionTimestamp": "2027-01-15T08:00:00Z"}});
    for (current, allocates, expected) in [
        (&deleted, true, "claim shop/c got deleted in the meantime"),
        (&allocated, true, "claim shop/c got allocated elsewhere in the meantime"),
        (&json!({}), false, "claim shop/c got deallocated elsewhere in the meantime"),
    ] {
        let script = Script::default();
        let allocation = computed_allocation();
        let outcome = reserve(
            &script.client(&clock()),
            claim("1", current),
            allocates.then_some(&allocation),
        )
        .await;
        assert_eq!(outcome.unwrap_err(), expected);
        assert!(script.take_requests().is_empty());
    }
    // After a conflict, the claim that is read again shows the concurrent change.
    let script = Script::new([conflict(), (200, claim_json("5", &allocated))]);
    let outcome =
        reserve(&script.client(&clock()), claim("1", &json!({})), Some(&computed_allocation()))
            .await;
    assert_eq!(outcome.unwrap_err(), "claim shop/c got allocated elsewhere in the meantime");
    // The number of retries is limited.
    let mut answers = Vec::new();
    for n in 2..6 {
        answers.extend([conflict(), (200, claim_json(&n.to_string(), &json!({})))]);
    }
    answers.push(conflict());
    let script = Script::new(answers);
    let outcome =
        reserve(&script.client(&clock()), claim("1", &json!({})), Some(&computed_allocation()))
            .await;
    assert!(outcome.unwrap_err().contains("changed"));
    assert_eq!(script.take_requests().len(), 9);
}

#[tokio::test]
async fn a_claim_is_released_regardless_of_its_resource_version() {
    let used = json!({"status": {"allocation": allocation_on("n"), "reservedFor": [user("web")]}});
    let script = Script::new([(200, claim_json("3", &json!({})))]);
    let client = script.client(&clock());
    writes::release(&client, &claim("1", &used), &pod().pod).await.unwrap();
    let body = json!({
        "metadata": {"uid": "c"},
        "status": {"reservedFor": [{"$patch": "delete", "uid": "web"}]},
    });
    assert_eq!(script.take_requests(), [(PATCH_STATUS.to_owned(), body)]);
    let others =
        json!({"status": {"allocation": allocation_on("n"), "reservedFor": [user("first")]}});
    writes::release(&client, &claim("1", &others), &pod().pod).await.unwrap();
    assert!(script.take_requests().is_empty());
}

/// Runs PostFilter for a pod with this claim after Filter rejected the node `n`.
async fn post_filter(script: &Script, claim: Arc<ResourceClaim>) -> PostFilterResult {
    let plugin = DynamicResources::default();
    plugin.connect(&handle(script.client(&clock()), &clock()));
    let (pod, nodes) = (pod(), table(&[node("n", &json!({})), node("m", &json!({}))]));
    let mut state = CycleState::default();
    state.put(PreFilterRan);
    state.put(attempt(claim, &[]));
    let rejection = plugin.filter(&state, &pod, nodes.get("n").unwrap()).unwrap_err();
    assert_eq!(rejection.reasons.join(", "), "resourceclaim not available on the node");
    run_post_filter(&plugin, &state, &pod).await
}

/// Returns the plugin's PostFilter result for a pod that no node can run.
async fn run_post_filter(
    plugin: &DynamicResources,
    state: &CycleState,
    pod: &PodInfo,
) -> PostFilterResult {
    let (profile, nominator) = (Profile::with_defaults("default-scheduler"), Nominator::default());
    let mut nodes = table(&[]);
    let view =
        View { profile: &profile, nodes: &mut nodes, nominator: &nominator, start_node_index: 0 };
    let mut cycle = Cycle::new(view, pod, 7, &[]);
    let (rejected, pre_filter_plugins, pre_filter_plugin_names) =
        (Vec::new(), Vec::new(), Vec::new());
    let fit_error = FitError {
        n_nodes: 2,
        overall: None,
        rejected,
        pre_filter_plugins,
        pre_filter_plugin_names,
    };
    plugin.post_filter(&mut cycle, state, &fit_error).await
}

#[tokio::test]
async fn a_claim_with_inaccessible_devices_is_deallocated() {
    let allocated_on_m =
        |users: Value| json!({"status": {"allocation": allocation_on("m"), "reservedFor": users}});
    let body = json!({
        "metadata": {"uid": "c", "resourceVersion": "1"},
        "status": {"allocation": null, "reservedFor": null, "devices": null},
    });
    for users in [json!([]), json!([user("web")])] {
        let script = Script::new([(200, claim_json("2", &json!({})))]);
        let result = post_filter(&script, claim("1", &allocated_on_m(users))).await;
        let message = "deallocation of ResourceClaim completed".to_owned();
        assert_eq!(result, PostFilterResult { message, ..PostFilterResult::default() });
        assert_eq!(script.take_requests(), [(PATCH_STATUS.to_owned(), body.clone())]);
    }
    for users in [json!([user("other")]), json!([user("web"), user("other")])] {
        let script = Script::default();
        let result = post_filter(&script, claim("1", &allocated_on_m(users))).await;
        assert_eq!(result, PostFilterResult::default(), "another pod uses the claim");
        assert!(script.take_requests().is_empty());
    }
    let script = Script::new([conflict()]);
    let result = post_filter(&script, claim("1", &allocated_on_m(json!([])))).await;
    assert!(
        result.message.contains("changed") && result.nominating_info == NominatingInfo::Keep,
        "{result:?}"
    );
}

/// Returns the plugin after Reserve of the pod on the node `n`.
fn reserve_on_n(script: &Script) -> (DynamicResources, Client) {
    let (plugin, client) = (DynamicResources::default(), script.client(&clock()));
    plugin.connect(&handle(client.clone(), &clock()));
    let mut state = CycleState::default();
    state.put(attempt(claim("1", &json!({})), &["n"]));
    plugin.reserve(&mut state, &pod(), "n").unwrap();
    assert!(state.get::<AttemptState>().is_none());
    assert!(super::super::lock(&plugin.cluster.get().unwrap().allocation_tracker).is_pending("c"));
    (plugin, client)
}

/// Returns whether the tracker has the device `d0` in use.
fn is_device_in_use(plugin: &DynamicResources) -> bool {
    super::super::lock(&plugin.cluster.get().unwrap().allocation_tracker)
        .in_use()
        .is_exclusively_allocated(&format!("{DRIVER}/p/d0"))
}

#[tokio::test]
async fn devices_of_a_reserved_pod_are_in_use_until_unreserve() {
    let bound = json!({"status": {"allocation": allocation_on("n"), "reservedFor": [user("web")]}});
    let script = Script::new([(200, claim_json("2", &json!({}))), (200, claim_json("3", &bound))]);
    let (plugin, client) = reserve_on_n(&script);
    assert!(is_device_in_use(&plugin));
    assert_eq!(plugin.pre_bind_pre_flight(&pod(), "n"), PreBindPreFlight::Act { parallel: true });
    plugin.pre_bind(&client, &pod(), "n").await.unwrap();
    assert_eq!(script.take_requests().len(), 2);
    assert!(
        !super::super::lock(&plugin.cluster.get().unwrap().allocation_tracker).is_pending("c")
            && is_device_in_use(&plugin)
    );
    plugin.post_bind(&pod(), "n");
    assert_eq!(plugin.pre_bind_pre_flight(&pod(), "n"), PreBindPreFlight::Skip);

    let forbidden =
        (403, json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}));
    let script = Script::new([forbidden]);
    let (plugin, client) = reserve_on_n(&script);
    assert!(plugin.pre_bind(&client, &pod(), "n").await.is_err());
    plugin.unreserve(&mut CycleState::default(), &pod(), "n");
    assert!(
        !is_device_in_use(&plugin)
            && !super::super::lock(&plugin.cluster.get().unwrap().allocation_tracker)
                .is_pending("c")
    );
    assert!(super::super::lock(&plugin.assumed).get("web").is_none());
    assert_eq!(script.take_requests().len(), 1, "there is nothing to release");
}

#[tokio::test]
async fn unreserve_releases_the_claims_of_the_pod() {
    let script = Script::new([(200, claim_json("3", &json!({})))]);
    let (plugin, client) = (DynamicResources::default(), script.client(&clock()));
    let handle = handle(client, &clock());
    plugin.connect(&handle);
    let used = json!({"status": {"allocation": allocation_on("n"), "reservedFor": [user("web")]}});
    let assumed = AssumedClaims { claims: vec![(claim("1", &used), None)], extended_claim: None };
    super::super::lock(&plugin.assumed).insert("web".into(), assumed);
    plugin.unreserve(&mut CycleState::default(), &pod(), "n");
    handle.tasks.join().await;
    let (request, body) = script.take_requests().pop().unwrap();
    assert_eq!(
        (&*request, &body["status"]["reservedFor"][0]["$patch"]),
        (PATCH_STATUS, &json!("delete"))
    );
}

/// Returns a plugin with a DeviceClass for `example.com/gpu`, and the state of an attempt. The node `n` has one such
/// device.
fn plugin_with_class(script: &Script, pod: &PodInfo) -> (DynamicResources, Client, CycleState) {
    let (plugin, client) = (DynamicResources::default(), script.client(&clock()));
    plugin.connect(&handle(client.clone(), &clock()));
    let class = json!({"spec": {"extendedResourceName": "example.com/gpu"}});
    plugin.resource_classes.set(object("gpus", &class));
    let devices = slice("s", devices_of_sizes(&[1]), &json!({"allNodes": false, "nodeName": "n"}));
    *super::super::lock(&plugin.devices) =
        Some(Devices::new(Inventory::new(vec![devices], Vec::new(), None), None));
    plugin
        .cluster
        .get()
        .unwrap()
        .inventory_is_stale
        .store(false, std::sync::atomic::Ordering::Release);
    let mut state = CycleState::default();
    let pre_filter_result = plugin.pre_filter(&mut state, pod, &table(&[])).unwrap();
    assert_eq!(pre_filter_result, PreFilterResult::All);
    (plugin, client, state)
}

/// Returns a pod that requests one `example.com/gpu`.
fn gpu_pod() -> PodInfo {
    let resources = json!({"requests": {"example.com/gpu": "1"}});
    info("web", &json!({"spec": {"containers": [{"name": "c", "resources": resources}]}}))
}

/// Returns Filter's messages for the nodes `n` and `m`, and for a node that advertises the resource itself.
fn filter_messages(plugin: &DynamicResources, state: &CycleState, pod: &PodInfo) -> [String; 3] {
    let advertising = json!({"status": {"allocatable": {"example.com/gpu": "1"}}});
    let nodes = table(&[node("n", &json!({})), node("m", &json!({})), node("own", &advertising)]);
    ["n", "m", "own"].map(|name| match plugin.filter(state, pod, nodes.get(name).unwrap()) {
        Ok(()) => String::new(),
        Err(rejection) => rejection.reasons.join(", "),
    })
}

const EXTENDED_CLAIM_PATH: &str = "/apis/resource.k8s.io/v1/namespaces/shop/resourceclaims/web-1";

/// Returns the claim that was created for the pod, at this resource version.
fn extended_claim_json(version: &str, more: &Value) -> Value {
    let owner =
        json!({"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "web", "controller": true});
    let mut claim = json!({"metadata": {
        "name": "web-1", "uid": "u1", "namespace": "shop", "resourceVersion": version, "ownerReferences": [owner],
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
    }});
    merge(&mut claim, more);
    claim
}

#[tokio::test]
async fn pre_bind_creates_a_claim_for_extended_resources() {
    let pod = gpu_pod();
    let protected = json!({"metadata": {"finalizers": [FINALIZER]}});
    let mut bound = protected.clone();
    bound["status"] = json!({"allocation": allocation_on("n"), "reservedFor": [user("web")]});
    let script = Script::new([
        (201, extended_claim_json("1", &json!({}))),
        (200, extended_claim_json("2", &protected)),
        (200, extended_claim_json("3", &bound)),
        (200, json!({"metadata": {"name": "web"}})),
    ]);
    let (plugin, client, mut state) = plugin_with_class(&script, &pod);
    assert_eq!(filter_messages(&plugin, &state, &pod), ["", "cannot allocate all claims", ""]);
    plugin.reserve(&mut state, &pod, "n").unwrap();
    assert!(is_device_in_use(&plugin));
    plugin.pre_bind(&client, &pod, "n").await.unwrap();
    assert!(is_device_in_use(&plugin));
    let requests = script.take_requests();
    let calls: Vec<&str> = requests.iter().map(|(call, _)| &**call).collect();
    assert_eq!(
        calls,
        [
            "POST /apis/resource.k8s.io/v1/namespaces/shop/resourceclaims",
            &format!("PATCH {EXTENDED_CLAIM_PATH}"),
            &format!("PATCH {EXTENDED_CLAIM_PATH}/status"),
            "PATCH /api/v1/namespaces/shop/pods/web/status",
        ]
    );
    assert_eq!(requests[2].1["status"]["reservedFor"], json!([user("web")]));
    let mapping = json!({"containerName": "c", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"});
    let status = json!({"resourceClaimName": "web-1", "requestMappings": [mapping]});
    assert_eq!(
        requests[3].1,
        json!({"metadata": {"uid": "web"}, "status": {"extendedResourceClaimStatus": status}})
    );
    plugin.post_bind(&pod, "n");
    assert!(super::super::lock(&plugin.assumed).is_empty());
    assert_eq!(creations(&plugin), [("false  Pod success".to_owned(), 1)]);
}

/// Returns the counted creations of claims by result.
fn creations(plugin: &DynamicResources) -> Vec<(String, u64)> {
    let registry = &plugin.cluster.get().unwrap().handle.registry;
    series(registry, "dynamic_resource_allocation_resourceclaim_creates_total")
}

#[tokio::test]
async fn a_failed_creation_of_a_claim_is_counted() {
    let (pod, script) = (gpu_pod(), Script::new([crate::scripted::Answer::status(403)]));
    let (plugin, client, mut state) = plugin_with_class(&script, &pod);
    filter_messages(&plugin, &state, &pod);
    plugin.reserve(&mut state, &pod, "n").unwrap();
    assert!(plugin.pre_bind(&client, &pod, "n").await.is_err());
    assert_eq!(creations(&plugin), [("false  Pod failure".to_owned(), 1)]);
}

#[tokio::test]
async fn a_node_that_advertises_the_resource_needs_no_claim() {
    let (pod, script) = (gpu_pod(), Script::default());
    let (plugin, _, mut state) = plugin_with_class(&script, &pod);
    filter_messages(&plugin, &state, &pod);
    plugin.reserve(&mut state, &pod, "own").unwrap();
    assert_eq!(plugin.pre_bind_pre_flight(&pod, "own"), PreBindPreFlight::Skip);
    assert!(!is_device_in_use(&plugin));
    let plain_pod = info("p", &json!({}));
    let skipped = plugin.pre_filter(&mut CycleState::default(), &plain_pod, &table(&[]));
    assert_eq!(skipped, Ok(PreFilterResult::Skip));
}

#[tokio::test]
async fn unreserve_deletes_the_claim_for_extended_resources() {
    let pod = gpu_pod();
    let protected = json!({"metadata": {"finalizers": [FINALIZER]}});
    let forbidden =
        (403, json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}));
    let script = Script::new([
        (201, extended_claim_json("1", &json!({}))),
        (200, extended_claim_json("2", &protected)),
        forbidden,
        (200, extended_claim_json("2", &json!({}))),
    ]);
    let (plugin, client, mut state) = plugin_with_class(&script, &pod);
    filter_messages(&plugin, &state, &pod);
    plugin.reserve(&mut state, &pod, "n").unwrap();
    assert!(plugin.pre_bind(&client, &pod, "n").await.is_err());
    script.take_requests();
    plugin.unreserve(&mut state, &pod, "n");
    assert!(!is_device_in_use(&plugin));
    let cluster = plugin.cluster.get().unwrap();
    // The plugin ignores the claim until the cache shows its deletion.
    let cached: Arc<ResourceClaim> = object("web-1", &extended_claim_json("2", &protected));
    super::super::lock(&cluster.extended_claims).observe(&cached);
    assert!(super::super::lock(&cluster.extended_claims).claim_of(&pod.pod).is_none());
    cluster.handle.tasks.join().await;
    let calls = script.take_calls();
    assert_eq!(calls, [format!("DELETE {EXTENDED_CLAIM_PATH}")]);
}

#[tokio::test]
async fn a_claim_of_an_earlier_attempt_is_deleted_first() {
    let pod = gpu_pod();
    let old = json!({"metadata": {"finalizers": [FINALIZER, "other"]}, "status": {"allocation": allocation_on("n")}});
    let script = Script::new([
        conflict(),
        (200, extended_claim_json("3", &old)),
        (200, extended_claim_json("4", &json!({}))),
        (404, json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "gone"})),
    ]);
    let (plugin, _, _) = plugin_with_class(&script, &pod);
    let stale: Arc<ResourceClaim> = object("web-1", &extended_claim_json("2", &old));
    super::super::lock(&plugin.cluster.get().unwrap().extended_claims).observe(&stale);
    let mut state = CycleState::default();
    plugin.pre_filter(&mut state, &pod, &table(&[])).unwrap();
    let message = "cannot schedule extended resource claim".to_owned();
    assert_eq!(filter_messages(&plugin, &state, &pod), [message.clone(), message.clone(), message]);
    let result = run_post_filter(&plugin, &state, &pod).await;
    assert_eq!(result.message, "deletion of ResourceClaim completed");
    let requests = script.take_requests();
    assert_eq!(requests.len(), 4);
    assert_eq!(requests[2].1["metadata"]["finalizers"], json!(["other"]));
    // The deletion requeues the pod. It requeues other pods only if it frees devices.
    let unallocated: Arc<ResourceClaim> = object("web-1", &extended_claim_json("2", &json!({})));
    let claim_deleted = |claim: &Arc<ResourceClaim>| {
        Change::Object(ObjectChange::ResourceClaim(Delta::Deleted(Arc::clone(claim))))
    };
    for (pod, claim, expected) in [
        (&pod, &unallocated, QueueingHint::Queue),
        (&info("other", &json!({})), &unallocated, QueueingHint::Skip),
        (&info("other", &json!({})), &stale, QueueingHint::Queue),
    ] {
        assert_eq!(plugin.queueing_hint(pod, &claim_deleted(claim)), expected);
    }
    super::super::lock(&plugin.cluster.get().unwrap().extended_claims).remove(&stale);
    assert!(matches!(
        plugin.extended_resources(plugin.cluster.get().unwrap(), &pod),
        Extended::Requested(_)
    ));
}

#[tokio::test]
async fn profiles_share_in_flight_allocations() {
    let script = Script::default();
    let handle = handle(script.client(&clock()), &clock());
    let (plugin, other_plugin) = (DynamicResources::default(), DynamicResources::default());
    plugin.connect(&handle);
    other_plugin.connect(&handle);
    let mut state = CycleState::default();
    state.put(attempt(claim("1", &json!({})), &["n"]));
    plugin.reserve(&mut state, &pod(), "n").unwrap();
    assert!(is_device_in_use(&plugin) && is_device_in_use(&other_plugin));
    plugin.unreserve(&mut state, &pod(), "n");
    assert!(!is_device_in_use(&other_plugin));
}
