//! Objects and final checks that the scenarios share.

use evenkeel_sim::{Count, FaultKind, Faults, Options, Part, PodWatch, World, explore, part};
use serde_json::{Value, json};
use std::time::Duration;

/// Kinds of faults that may hit any write of any part, for runs with several faults.
pub(crate) use evenkeel_sim::explore::KINDS;

pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub(crate) const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
pub(crate) const CONTROLLERS: &str = "/api/v1/namespaces/default/replicationcontrollers";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// Long enough for every back-off that one fault causes.
pub(crate) const REST: Duration = Duration::from_secs(30);

/// Longer than the resync period of any controller. Much longer periods are tested in a world without faults.
pub(crate) const SILENCE: Duration = Duration::from_secs(360);

/// Parts that random faults hit: the controllers twice as often as the others.
const HIT: [Part; 4] = [part::CONTROLLERS, part::CONTROLLERS, part::SCHEDULER, part::NODES];

/// Runs the scenario with this fault at each write of the controllers. There must be `at_least` writes.
pub(crate) fn each(what: FaultKind, at_least: u64, scenario: &impl AsyncFn(&mut World, Faults)) {
    each_of(&Options::default(), part::CONTROLLERS, what, at_least, scenario);
}

/// Like [`each`], for the writes of another part.
pub(crate) fn each_of(
    options: &Options,
    part: Part,
    what: FaultKind,
    at_least: u64,
    scenario: &impl AsyncFn(&mut World, Faults),
) {
    let writes = explore::each_write(options, part, what, scenario);
    assert!(writes >= at_least, "the scenario has {writes} writes only");
}

/// Runs the scenario with a fault of every kind, at writes of the controllers.
pub(crate) fn every_kind(options: &Options, scenario: &impl AsyncFn(&mut World, Faults)) {
    explore::each_kind(options, part::CONTROLLERS, scenario);
}

/// Draws `n` faults of `kinds` at the first `span` writes of any part, with delayed watch events.
pub(crate) fn drawn_faults(seed: u64, (n, span): (u64, u64), kinds: &[FaultKind]) -> Faults {
    let mut faults = Faults::random(seed, &HIT, n, span, kinds, SECOND);
    for fault in faults.at_writes.iter_mut().filter(|fault| fault.part == part::NODES) {
        fault.kind = match fault.kind {
            // A real kubelet knows its containers. Simulated nodes have no state of their own, and read it from the server.
            FaultKind::StaleRestart => FaultKind::CrashAfter,
            // A cut of a minute would make all nodes and their pods not ready.
            FaultKind::Cut => FaultKind::LoseRequest,
            kind => kind,
        };
    }
    faults
}

/// Runs the scenario once for each of `seeds` seeds. Each run has `n` faults of `kinds` at the first `span` writes of any
/// part, and delayed watch events.
pub(crate) fn several(
    options: &Options,
    seeds: u64,
    (n, span): (u64, u64),
    kinds: &[FaultKind],
    scenario: &impl AsyncFn(&mut World, Faults),
) {
    for seed in 0..seeds {
        let faults = drawn_faults(seed, (n, span), kinds);
        explore::with_faults(&Options { seed, ..options.clone() }, faults, scenario);
    }
}

pub(crate) fn template(image: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "web", "image": image }] },
    })
}

pub(crate) fn deployment(replicas: u32, image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": "web" } },
            "template": template(image),
        },
    })
}

/// Returns a patch of the image in a pod template.
pub(crate) fn image(image: &str) -> Value {
    json!({ "spec": { "template": { "spec": { "containers": [{ "name": "web", "image": image }] } } } })
}

pub(crate) fn bare_pod(name: &str) -> Value {
    let mut pod = template("a");
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = name.into();
    pod
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.is_some_and(|conditions| {
        conditions
            .iter()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    })
}

/// Returns the uid of the controller of an object; empty without a controller.
pub(crate) fn controller(object: &Value) -> &str {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let owner = owners.and_then(|owners| owners.iter().find(|owner| owner["controller"] == true));
    owner.and_then(|owner| owner["uid"].as_str()).unwrap_or_default()
}

pub(crate) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().expect("every object has a uid")
}

/// Returns how many pods may temporarily exist beyond the desired number. The server generates the names of pods, so a
/// repeated request creates another pod. So does a controller that does not observe its last pod after a restart.
pub(crate) fn repeated(faults: &Faults) -> usize {
    let repeats = [FaultKind::Repeat, FaultKind::StaleRestart];
    faults.at_writes.iter().filter(|fault| repeats.contains(&fault.kind)).count()
}

/// Waits until `n` pods are active and ready.
pub(crate) async fn ready(world: &mut World, pods: &PodWatch, n: usize) {
    let what = format!("{n} pods are ready");
    world.until(&what, 10 * MINUTE, async |_| pods.now() == Count { active: n, ready: n }).await;
}

/// Creates a Deployment, and waits until its `n` pods run and the world has settled.
pub(crate) async fn running(world: &mut World, deployment: &Value, n: usize) -> PodWatch {
    let pods = web_pods(world).await;
    world.settle(REST).await;
    world.create(DEPLOYMENTS, deployment).await;
    ready(world, &pods, n).await;
    world.settle(REST).await;
    pods
}

/// Returns the pods that the scenarios are about.
pub(crate) async fn web_pods(world: &World) -> PodWatch {
    world.watch_pods("default", ("app", "web")).await
}

/// Checks that there are exactly `n` pods, all ready, with this owner and image, and none terminating.
#[track_caller]
pub(crate) fn check_pods(pods: &[Value], n: usize, owner: &str, image: &str) {
    let names: Vec<&Value> = pods.iter().map(|pod| &pod["metadata"]["name"]).collect();
    assert_eq!(pods.len(), n, "{names:?}");
    for pod in pods {
        assert_eq!(controller(pod), owner, "{pod}");
        assert_eq!(pod["spec"]["containers"][0]["image"], image, "{pod}");
        assert!(is_ready(pod) && pod["metadata"]["deletionTimestamp"].is_null(), "{pod}");
    }
}

/// Checks that the Deployment `web` has settled: one ReplicaSet has `n` ready pods of `image`, and all others have 0.
pub(crate) async fn check_deployment(world: &World, n: usize, image: &str, revisions: usize) {
    let deployment = world.get(&format!("{DEPLOYMENTS}/web")).await.expect("it is there");
    let sets = world.list(SETS).await;
    assert_eq!(sets.len(), revisions, "{sets:#?}");
    let (new, old): (Vec<&Value>, Vec<&Value>) = sets
        .iter()
        .partition(|set| set["spec"]["template"]["spec"]["containers"][0]["image"] == image);
    let [new] = new[..] else { panic!("not one ReplicaSet of {image}: {new:#?}") };
    for set in &sets {
        assert_eq!(controller(set), uid(&deployment), "{set:#}");
        assert_eq!(set["status"]["observedGeneration"], set["metadata"]["generation"], "{set:#}");
    }
    for set in old {
        assert_eq!(
            (&set["spec"]["replicas"], &set["status"]["replicas"]),
            (&json!(0), &json!(0)),
            "{set:#}"
        );
    }
    assert_eq!(new["spec"]["replicas"], n, "{new:#}");
    assert_eq!(new["status"]["availableReplicas"], n, "{new:#}");
    let status = &deployment["status"];
    for field in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
        assert_eq!(status[field], n, "{field}: {status:#}");
    }
    assert!(status["unavailableReplicas"].as_u64().unwrap_or(0) == 0, "{status:#}");
    assert_eq!(status["observedGeneration"], deployment["metadata"]["generation"], "{status:#}");
    check_pods(&world.list(PODS).await, n, uid(new), image);
}
