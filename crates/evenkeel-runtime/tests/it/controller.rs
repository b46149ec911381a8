//! Runs a planner that maintains `data.want` pods for a ConfigMap.

use crate::server::{Fault, Server};
use evenkeel_api::{Kind, View, time::Timestamp};
use evenkeel_runtime::{
    cache::{Cache, Caches, Full},
    clock::Clock,
    controller::{Builder, Env, Error, Outcome, Periodic},
    introspect::Subject,
    plan::{
        Create, Delete, DeleteCollection, EventRecord, Failure, Key, LiveRead, Local, OnError,
        Outcomes, PassHandler, Patch, PatchType, Plan, Planned, Planner, Rewrite, Steps, Target,
        Update,
    },
    tasks::Tasks,
};
use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use prometheus::Registry;
use serde_json::{Value, json};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

const PODS: &str = "v1/pods";
const MAPS: &str = "v1/configmaps";

fn pods() -> Kind {
    <Full<Pod> as View>::kind()
}

struct World {
    server: Server,
    env: Env,
    registry: Registry,
    tasks: Tasks,
    maps: Cache<Full<ConfigMap>>,
    pods: Cache<Full<Pod>>,
    plans: Arc<AtomicU32>,
}

impl World {
    fn new() -> Self {
        let (server, registry, tasks) = (Server::new(), Registry::new(), Tasks::new());
        let clock = Clock::starting_at(Timestamp::from_second(1_767_225_600).unwrap());
        let client = server.client(&clock);
        let caches = Caches::new(client.clone(), clock.clone(), &registry);
        caches.start(&tasks);
        let env = Env::new(client, caches, clock, &registry);
        let (maps, pods) = (env.caches.of(), env.caches.of());
        Self { server, env, registry, tasks, maps, pods, plans: Arc::default() }
    }

    fn planner(&self) -> Podder {
        Podder { maps: self.maps.clone(), pods: self.pods.clone(), plans: Arc::clone(&self.plans) }
    }

    fn builder(&self) -> Builder {
        Builder::new(&self.env, "podder", &self.maps)
            .owns(&self.pods)
            .workers(2)
            .stale_skips_metric("podder_stale_sync_skips_total")
    }

    fn run(&self) {
        self.run_with(self.builder());
    }

    fn run_with(&self, builder: Builder) {
        let (controller, stop) = (builder.planned(self.planner()), self.tasks.token());
        self.tasks.spawn("podder", controller.run(stop));
    }

    fn want(&self, name: &str, pods: u32) {
        self.server.put(MAPS, map(name, pods));
    }

    fn n_pods(&self) -> usize {
        self.server.all(PODS).len()
    }

    fn reasons(&self) -> Vec<String> {
        let events = self.server.all("v1/events");
        events.iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
    }

    fn count(&self, metric: &str) -> u64 {
        let families = self.registry.gather();
        let Some(family) = families.iter().find(|family| family.name() == metric) else {
            return 0;
        };
        family.get_metric().iter().map(|metric| metric.get_counter().get_value() as u64).sum()
    }
}

fn map(name: &str, pods: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "ns"},
        "data": {"want": pods.to_string()},
    })
}

/// Creates or deletes pods until the desired number exists. Records the number of successful creates in `data.made`.
struct Podder {
    maps: Cache<Full<ConfigMap>>,
    pods: Cache<Full<Pod>>,
    plans: Arc<AtomicU32>,
}

struct ObservedMap {
    map: Arc<Full<ConfigMap>>,
    pods: Vec<Arc<Full<Pod>>>,
}

impl ObservedMap {
    fn of(key: &Key, maps: &Cache<Full<ConfigMap>>, pods: &Cache<Full<Pod>>) -> Option<Self> {
        let map = maps.get(&key.namespace, &key.name)?;
        let mut pods = pods.namespace(&key.namespace);
        pods.retain(|pod| pod.meta().is_controlled_by(&map.meta().uid));
        pods.sort_by(|a, b| a.meta().name.cmp(&b.meta().name));
        Some(Self { map, pods })
    }

    /// Returns the update of the map with a value, unless the map already has it.
    fn recorded(&self, what: &str, value: &str) -> Option<Update> {
        let mut object = self.map.as_ref().clone().into_inner();
        let data = object.data.get_or_insert_default();
        if data.insert(what.into(), value.into()).is_some_and(|had| had == value) {
            return None;
        }
        let target = Target::of(<Full<ConfigMap> as View>::kind(), self.map.meta());
        Some(Update::new(target, serde_json::to_vec(&object).unwrap()))
    }
}

impl Planner for Podder {
    type Observed = ObservedMap;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<ObservedMap> {
        ObservedMap::of(key, &self.maps, &self.pods)
    }

    fn plan(&self, seen: &ObservedMap, (): &(), _now: Timestamp) -> (Plan, ()) {
        self.plans.fetch_add(1, Ordering::SeqCst);
        let data = seen.map.data.clone().unwrap_or_default();
        assert!(!data.contains_key("panic"), "deliberate");
        let want: usize = data["want"].parse().unwrap();
        let meta = seen.map.meta();
        let owner = Target::of(<Full<ConfigMap> as View>::kind(), meta);
        let mut plan = Plan::nothing();
        if data.contains_key("adopt") {
            let pod = Target::new(pods(), "ns", "orphan", "");
            plan.push(Patch {
                if_live: Some(owner.clone()),
                ..Patch::new(pod, PatchType::Merge, "{}")
            });
        }
        if seen.pods.len() < want {
            let body = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"generateName": format!("{}-", meta.name), "ownerReferences": [{
                    "apiVersion": "v1", "kind": "ConfigMap", "name": &*meta.name, "uid": &*meta.uid, "controller": true,
                }]},
            });
            plan.push(Create {
                count: u32::try_from(want - seen.pods.len()).unwrap(),
                done: Some(EventRecord::normal(
                    owner.clone(),
                    "SuccessfulCreate",
                    "Created pod: {name}",
                )),
                failed: Some(EventRecord::warning(
                    owner.clone(),
                    "FailedCreate",
                    "Error creating: {error}",
                )),
                ..Create::new(pods(), "ns", body.to_string())
            });
        }
        for pod in seen.pods.iter().skip(want) {
            plan.push(Delete::new(Target::of(pods(), pod.meta())));
        }
        (plan, ())
    }

    fn status(&self, seen: &ObservedMap, (): &(), outcomes: &Outcomes, _now: Timestamp) -> Plan {
        let made: u32 = outcomes.0.iter().map(|outcome| outcome.succeeded).sum();
        let mut plan = Plan::nothing();
        if made > 0 || outcomes.first_error().is_some() {
            plan.actions.extend(seen.recorded("made", &made.to_string()).map(Into::into));
        }
        plan
    }
}

/// Only records the number of pods, in `data.seen`.
struct StatusWriter {
    maps: Cache<Full<ConfigMap>>,
    pods: Cache<Full<Pod>>,
    passes: Arc<AtomicU32>,
}

impl Planner for StatusWriter {
    type Observed = ObservedMap;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<ObservedMap> {
        ObservedMap::of(key, &self.maps, &self.pods)
    }

    fn plan(&self, _seen: &ObservedMap, (): &(), _now: Timestamp) -> (Plan, ()) {
        self.passes.fetch_add(1, Ordering::SeqCst);
        (Plan::nothing(), ())
    }

    fn status(&self, seen: &ObservedMap, (): &(), _outcomes: &Outcomes, _now: Timestamp) -> Plan {
        let mut plan = Plan::nothing();
        plan.actions.extend(seen.recorded("seen", &seen.pods.len().to_string()).map(Into::into));
        plan
    }
}

/// Creates three pods and deletes one unless it has changed, in each of two parts of a plan. Records the outcome of each action
/// once, in `data.recorded`.
struct Parts {
    maps: Cache<Full<ConfigMap>>,
    pods: Cache<Full<Pod>>,
}

impl Planner for Parts {
    type Observed = ObservedMap;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<ObservedMap> {
        ObservedMap::of(key, &self.maps, &self.pods)
    }

    fn plan(&self, seen: &ObservedMap, (): &(), _now: Timestamp) -> (Plan, ()) {
        if seen.map.data.as_ref().is_some_and(|data| data.contains_key("recorded")) {
            return (Plan::nothing(), ());
        }
        let make = |name: String, part| Create {
            on_error: OnError::SkipPart(part),
            ..Create::new(
                pods(),
                "ns",
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}).to_string(),
            )
        };
        let mut plan = Plan::nothing();
        for part in 0..2 {
            for n in 0..3 {
                plan.push(make(format!("{part}-{n}"), part));
            }
            let old = Target::new(pods(), "ns", &format!("old-{part}"), "");
            let delete = Delete { tolerates: &[409], ..Delete::new(old) };
            plan.push(Delete { on_error: OnError::SkipPart(part), ..delete });
        }
        (plan, ())
    }

    fn status(&self, seen: &ObservedMap, (): &(), outcomes: &Outcomes, _now: Timestamp) -> Plan {
        let recorded: Vec<String> = outcomes
            .0
            .iter()
            .map(|outcome| match &outcome.error {
                Some(failure) => failure.code.to_string(),
                None => outcome.succeeded.to_string(),
            })
            .collect();
        let mut plan = Plan::nothing();
        if !recorded.is_empty() {
            plan.actions.extend(seen.recorded("recorded", &recorded.join(" ")).map(Into::into));
        }
        plan
    }
}

#[tokio::test(start_paused = true)]
async fn failed_part_does_not_block_the_next() {
    let world = World::new();
    world.server.fail(Fault {
        method: Method::POST,
        path: "pods",
        times: 1,
        code: 500,
        reason: "InternalError",
        cause: "",
    });
    world.server.fail(Fault {
        method: Method::DELETE,
        path: "pods",
        times: 1,
        code: 409,
        reason: "Conflict",
        cause: "",
    });
    world.want("web", 0);
    let parts = Parts { maps: world.maps.clone(), pods: world.pods.clone() };
    let builder = Builder::new(&world.env, "parts", &world.maps).workers(1).max_retries(0);
    let (controller, stop) = (builder.planned(parts), world.tasks.token());
    world.tasks.spawn("parts", controller.run(stop));
    settle().await;
    let recorded = world.server.get(MAPS, "ns/web").unwrap()["data"]["recorded"].clone();
    assert_eq!(recorded, "500 0 0 0 1 1 1 0", "the first part ends with its first create");
    let deleted = world.server.seen(&Method::DELETE, "pods");
    assert!(deleted.iter().all(|delete| delete.path.ends_with("old-1")), "{deleted:?}");
}

/// Reads a pod live that its cache may lack, and creates a copy. Records the outcome of each step in `data.recorded`.
struct Copier {
    maps: Cache<Full<ConfigMap>>,
    pods: Cache<Full<Pod>>,
}

impl Planner for Copier {
    type Observed = ObservedMap;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<ObservedMap> {
        ObservedMap::of(key, &self.maps, &self.pods)
    }

    fn plan(&self, seen: &ObservedMap, (): &(), _now: Timestamp) -> (Plan, ()) {
        if seen.map.data.as_ref().is_some_and(|data| data.contains_key("recorded")) {
            return (Plan::nothing(), ());
        }
        let read = |name| LiveRead::get::<Full<Pod>>(&pods(), "ns", name).into();
        (Plan::of(vec![read("there"), read("gone")]), ())
    }

    fn next(&self, _: &ObservedMap, (): &(), outcomes: &Outcomes, _now: Timestamp) -> Option<Plan> {
        let [there, gone] = &outcomes.0[..] else { return None };
        let pod: Full<Pod> = there.reply.as_ref()?.object().ok()?;
        let is_gone = gone.error.as_ref().is_some_and(Failure::is_not_found);
        let name = format!("{}-{is_gone}", pod.meta().name);
        let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}});
        Some(Plan::one(Create::new(pods(), "ns", body.to_string())))
    }

    fn status(&self, seen: &ObservedMap, (): &(), outcomes: &Outcomes, _now: Timestamp) -> Plan {
        let Some(created) = outcomes.0.last().and_then(|last| last.created.as_deref()) else {
            return Plan::nothing();
        };
        Plan::of(seen.recorded("recorded", created).map(Into::into).into_iter().collect())
    }
}

#[tokio::test(start_paused = true)]
async fn live_read_result_reaches_the_next_step() {
    let world = World::new();
    let metadata = json!({"name": "there", "namespace": "ns"});
    world.server.put(PODS, json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}));
    world.want("web", 0);
    let copier = Copier { maps: world.maps.clone(), pods: world.pods.clone() };
    let builder = Builder::new(&world.env, "copier", &world.maps).workers(1);
    let (controller, stop) = (builder.planned(copier), world.tasks.token());
    world.tasks.spawn("copier", controller.run(stop));
    settle().await;
    let recorded = world.server.get(MAPS, "ns/web").unwrap()["data"]["recorded"].clone();
    assert_eq!(recorded, "there-true");
    assert!(world.server.get(PODS, "ns/there-true").is_some());
}

/// Deletes all pods, then writes the result of two live reads, and requeues after an hour.
struct Sweeper {
    maps: Cache<Full<ConfigMap>>,
    pods: Cache<Full<Pod>>,
}

impl Sweeper {
    fn decide(seen: &ObservedMap, steps: &mut Steps<'_>) -> Result<Plan, Plan> {
        let again = Plan { requeue: Some(Duration::from_hours(1)), ..Plan::nothing() };
        let (kind, meta) = (<Full<ConfigMap> as View>::kind(), seen.map.meta());
        steps.one(DeleteCollection::new(pods(), "ns"))?;
        let read = steps.one(LiveRead::get::<Full<ConfigMap>>(&kind, "ns", &meta.name))?;
        let Some(reply) = &read.reply else { return Ok(again) };
        let mut map: Value = serde_json::from_slice(reply.body()).unwrap();
        for recorded in ["once", "twice"] {
            map["data"]["recorded"] = recorded.into();
            let written =
                steps.one(Update::new(Target::of(kind.clone(), meta), map.to_string()))?;
            let version = written.resource_version.as_deref().expect("it is written");
            map["metadata"]["resourceVersion"] = version.into();
        }
        Ok(again)
    }
}

impl Planner for Sweeper {
    type Observed = ObservedMap;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<ObservedMap> {
        ObservedMap::of(key, &self.maps, &self.pods)
    }

    fn plan(&self, seen: &ObservedMap, (): &(), now: Timestamp) -> (Plan, ()) {
        let first = self.next(seen, &(), &Outcomes::default(), now);
        (
            first
                .filter(|_| !seen.map.data.clone().unwrap_or_default().contains_key("recorded"))
                .unwrap_or_default(),
            (),
        )
    }

    fn next(
        &self,
        seen: &ObservedMap,
        (): &(),
        outcomes: &Outcomes,
        _now: Timestamp,
    ) -> Option<Plan> {
        Steps::next(outcomes, |steps| Self::decide(seen, steps))
    }
}

#[tokio::test(start_paused = true)]
async fn step_follows_from_the_result_of_a_write() {
    let world = World::new();
    world.want("web", 0);
    put_pod(&world, 1);
    put_pod(&world, 2);
    let sweeper = Sweeper { maps: world.maps.clone(), pods: world.pods.clone() };
    let builder = Builder::new(&world.env, "sweeper", &world.maps).workers(1);
    let (controller, stop) = (builder.planned(sweeper), world.tasks.token());
    world.tasks.spawn("sweeper", controller.run(stop));
    settle().await;
    assert_eq!((recorded_in(&world, "recorded"), world.n_pods()), (json!("twice"), 0));
    assert_eq!(
        world.server.seen(&Method::PUT, "configmaps").len(),
        2,
        "two writes without a conflict"
    );
}

/// Returns the same second step forever: an error, or nothing.
struct Stubborn {
    maps: Cache<Full<ConfigMap>>,
    step: Plan,
    plans: Arc<AtomicU32>,
}

impl Planner for Stubborn {
    type Observed = ();
    type Memory = ();

    fn observe(&self, _: &Key, (): &()) -> Option<()> {
        (!self.maps.list().is_empty()).then_some(())
    }

    fn plan(&self, (): &(), (): &(), _now: Timestamp) -> (Plan, ()) {
        (Plan::one(LiveRead::json("/apis/none")), ())
    }

    fn next(&self, (): &(), (): &(), _: &Outcomes, _now: Timestamp) -> Option<Plan> {
        self.plans.fetch_add(1, Ordering::SeqCst);
        Some(self.step.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn error_or_empty_step_ends_the_steps() {
    for step in [Plan::failure("no"), Plan::nothing()] {
        let world = World::new();
        world.want("web", 0);
        let (maps, plans) = (world.maps.clone(), Arc::clone(&world.plans));
        let stubborn = Stubborn { maps, step, plans };
        let builder = Builder::new(&world.env, "stubborn", &world.maps).max_retries(0);
        let (controller, stop) = (builder.planned(stubborn), world.tasks.token());
        world.tasks.spawn("stubborn", controller.run(stop));
        settle().await;
        assert_eq!(world.plans.load(Ordering::SeqCst), 1);
    }
}

/// Plans to come back after three seconds, and fails.
struct Punctual {
    maps: Cache<Full<ConfigMap>>,
    plans: Arc<AtomicU32>,
}

impl Planner for Punctual {
    type Observed = ();
    type Memory = ();

    fn observe(&self, _: &Key, (): &()) -> Option<()> {
        (!self.maps.list().is_empty()).then_some(())
    }

    fn plan(&self, (): &(), (): &(), _now: Timestamp) -> (Plan, ()) {
        self.plans.fetch_add(1, Ordering::SeqCst);
        let mut plan = Plan::failure("no");
        plan.requeue_after(Duration::from_secs(3));
        (plan, ())
    }
}

/// A Job's deadline is not put off by a write that fails again and again.
#[tokio::test(start_paused = true)]
async fn a_failed_pass_comes_back_at_the_time_it_wanted() {
    let world = World::new();
    world.want("web", 0);
    let (maps, plans) = (world.maps.clone(), Arc::clone(&world.plans));
    let builder = Builder::new(&world.env, "punctual", &world.maps);
    let (controller, stop) = (builder.planned(Punctual { maps, plans }), world.tasks.token());
    world.tasks.spawn("punctual", controller.run(stop));
    // The backoff alone has passed 10 times in 2.6 s. It is longer than three seconds from then on.
    tokio::time::sleep(Duration::from_secs(65)).await;
    assert_eq!(world.plans.load(Ordering::SeqCst), 30);
}

/// Deletes all pods in one pass. The server refuses the deletion of one kind. Counts passes and successful passes.
struct Cleaner {
    pods: Cache<Full<Pod>>,
}

impl Planner for Cleaner {
    type Observed = Vec<Arc<Full<Pod>>>;
    type Memory = ();

    fn observe(&self, _: &Key, (): &()) -> Option<Self::Observed> {
        Some(self.pods.list())
    }

    fn plan(&self, observed: &Self::Observed, (): &(), _now: Timestamp) -> (Plan, ()) {
        let delete = |pod: &Arc<Full<Pod>>| Delete::new(Target::of(pods(), pod.meta())).into();
        (Plan::of(observed.iter().map(delete).collect()), ())
    }
}

#[derive(Clone, Default)]
struct Passes(Arc<Mutex<Vec<bool>>>);

impl PassHandler<Cleaner> for Passes {
    fn on_passed(&self, _: &Vec<Arc<Full<Pod>>>, pass: &evenkeel_runtime::plan::Pass<'_>) {
        self.0.lock().unwrap().push(pass.succeeded);
    }
}

#[tokio::test(start_paused = true)]
async fn failed_periodic_pass_is_repeated_by_the_next() {
    let world = World::new();
    for name in ["a", "b"] {
        let metadata = json!({"name": name, "namespace": "ns"});
        world.server.put(PODS, json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}));
    }
    world.server.fail(Fault {
        method: Method::DELETE,
        path: "pods",
        times: 1,
        code: 500,
        reason: "InternalError",
        cause: "",
    });
    let (passes, hour) = (Passes::default(), Duration::from_secs(3600));
    let cleaner = Cleaner { pods: world.pods.clone() };
    let periodic = Periodic::new(&world.env, "cleaner").reads(&world.pods);
    periodic.planned(&world.tasks, hour, cleaner, passes.clone());
    settle().await;
    assert_eq!((world.n_pods(), passes.0.lock().unwrap().clone()), (1, vec![false]));
    tokio::time::sleep(hour).await;
    assert_eq!((world.n_pods(), passes.0.lock().unwrap().clone()), (0, vec![false, true]));
}

/// Creates two folders as local work, one of which fails, then records the outcomes.
struct Folders {
    maps: Cache<Full<ConfigMap>>,
    pods: Cache<Full<Pod>>,
}

impl Planner for Folders {
    type Observed = ObservedMap;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<ObservedMap> {
        ObservedMap::of(key, &self.maps, &self.pods)
    }

    fn plan(&self, seen: &ObservedMap, (): &(), _now: Timestamp) -> (Plan, ()) {
        if seen.map.data.as_ref().is_some_and(|data| data.contains_key("recorded")) {
            return (Plan::nothing(), ());
        }
        let folder = |subject: &str| {
            let subject = subject.to_owned();
            Local { work: "make the folder", subject, on_error: OnError::Ignore }.into()
        };
        (Plan::of(vec![folder("/tmp/a"), folder("/etc/b")]), ())
    }

    fn status(&self, seen: &ObservedMap, (): &(), outcomes: &Outcomes, _now: Timestamp) -> Plan {
        let recorded = |outcome: &evenkeel_runtime::plan::Outcome| match &outcome.error {
            Some(error) => error.message.clone(),
            None => "made".to_owned(),
        };
        let recorded: Vec<String> = outcomes.0.iter().map(recorded).collect();
        if recorded.is_empty() {
            return Plan::nothing();
        }
        Plan::of(
            seen.recorded("recorded", &recorded.join(", ")).map(Into::into).into_iter().collect(),
        )
    }
}

#[tokio::test(start_paused = true)]
async fn local_work_is_done_by_the_wiring() {
    let world = World::new();
    world.want("web", 0);
    let folders = Folders { maps: world.maps.clone(), pods: world.pods.clone() };
    let builder = Builder::new(&world.env, "folders", &world.maps).local_work(|local| {
        assert_eq!(local.work, "make the folder");
        let is_below = local.subject.starts_with("/tmp/");
        Box::pin(async move { is_below.then_some(()).ok_or_else(|| "no such place".to_owned()) })
    });
    let (controller, stop) = (builder.planned(folders), world.tasks.token());
    world.tasks.spawn("folders", controller.run(stop));
    settle().await;
    let recorded = world.server.get(MAPS, "ns/web").unwrap()["data"]["recorded"].clone();
    assert_eq!(recorded, "made, no such place");
}

/// Gives each map a unique number: the next one after those of earlier plans.
struct Numberer {
    maps: Cache<Full<ConfigMap>>,
    pods: Cache<Full<Pod>>,
    given: Arc<AtomicU32>,
}

/// Records the number that a plan assigns, before the next plan is made.
struct NumberHandler(Arc<AtomicU32>);

impl PassHandler<Numberer> for NumberHandler {
    fn on_planned(&self, (_, number): &(ObservedMap, u32), planned: Planned<'_, ()>) {
        if !planned.plan.actions.is_empty() {
            self.0.store(number + 1, Ordering::SeqCst);
        }
    }
}

impl Planner for Numberer {
    type Observed = (ObservedMap, u32);
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<(ObservedMap, u32)> {
        let seen = ObservedMap::of(key, &self.maps, &self.pods)?;
        // Time in which another worker could plan, if that were permitted.
        let given = self.given.load(Ordering::SeqCst);
        std::thread::yield_now();
        Some((seen, given))
    }

    fn plan(&self, (seen, number): &(ObservedMap, u32), (): &(), _now: Timestamp) -> (Plan, ()) {
        let is_recorded = seen.map.data.as_ref().is_some_and(|data| data.contains_key("number"));
        let update = seen.recorded("number", &number.to_string()).filter(|_| !is_recorded);
        (Plan::of(update.map(Into::into).into_iter().collect()), ())
    }
}

#[tokio::test(start_paused = true)]
async fn serial_plans_see_earlier_allocations() {
    let world = World::new();
    world.server.latency(Duration::from_millis(50));
    let names: Vec<String> = (0..8).map(|n| format!("m{n}")).collect();
    names.iter().for_each(|name| world.want(name, 0));
    let given = Arc::<AtomicU32>::default();
    let (maps, pods) = (world.maps.clone(), world.pods.clone());
    let numberer = Numberer { maps, pods, given: given.clone() };
    let builder = Builder::new(&world.env, "numberer", &world.maps).workers(8).plans_in_turn();
    let (controller, stop) =
        (builder.planned_with(numberer, NumberHandler(given)), world.tasks.token());
    world.tasks.spawn("numberer", controller.run(stop));
    settle().await;
    let number = |name: &String| {
        let map = world.server.get(MAPS, &format!("ns/{name}")).unwrap();
        map["data"]["number"].as_str().unwrap().to_owned()
    };
    let mut numbers: Vec<String> = names.iter().map(number).collect();
    numbers.sort();
    let want: Vec<String> = (0..8).map(|n: u32| n.to_string()).collect();
    assert_eq!(numbers, want);
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(500)).await;
}

#[tokio::test(start_paused = true)]
async fn stale_cache_creates_and_deletes_no_extra_pods() {
    let world = World::new();
    world.run();
    settle().await;
    world.server.hold_watches(PODS);
    world.want("web", 10);
    settle().await;
    assert_eq!((world.n_pods(), world.plans.load(Ordering::SeqCst)), (10, 1));
    // Changes of the map have no effect until the cache shows the pods.
    world.want("web", 10);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((world.n_pods(), world.plans.load(Ordering::SeqCst)), (10, 1));
    world.server.release_watches();
    settle().await;
    assert_eq!(world.n_pods(), 10);
    assert!(world.count("podder_stale_sync_skips_total") > 0);

    world.want("web", 4);
    settle().await;
    assert_eq!(world.n_pods(), 4);
    let deletes = world.server.seen(&Method::DELETE, "pods").len();
    assert_eq!(deletes, 6);
}

/// Returns a world with a `StatusWriter` for `ns/web`, which has no pods yet.
async fn with_status_throttle() -> World {
    with_throttled_teller(Builder::owns).await.0
}

/// Like [`with_status_throttle`], with the status writer's events and the number of its passes.
async fn with_throttled_teller(
    events: impl FnOnce(Builder, &Cache<Full<Pod>>) -> Builder,
) -> (World, Arc<AtomicU32>) {
    let (world, passes) = (World::new(), Arc::<AtomicU32>::default());
    let teller = StatusWriter {
        maps: world.maps.clone(),
        pods: world.pods.clone(),
        passes: Arc::clone(&passes),
    };
    let builder = events(Builder::new(&world.env, "teller", &world.maps), &world.pods);
    let controller = builder.min_status_interval(Duration::from_millis(100)).planned(teller);
    let stop = world.tasks.token();
    world.tasks.spawn("teller", controller.run(stop));
    world.want("web", 0);
    settle().await;
    assert_eq!(
        (recorded(&world), world.server.seen(&Method::PUT, "configmaps").len()),
        (json!("0"), 1)
    );
    (world, passes)
}

fn recorded(world: &World) -> Value {
    recorded_in(world, "seen")
}

fn recorded_in(world: &World, field: &str) -> Value {
    world.server.get(MAPS, "ns/web").unwrap()["data"][field].clone()
}

fn put_pod(world: &World, n: u32) {
    let uid = world.server.get(MAPS, "ns/web").unwrap()["metadata"]["uid"].clone();
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "web", "uid": uid, "controller": true});
    let metadata =
        json!({"name": format!("pod-{n}"), "namespace": "ns", "ownerReferences": [owner]});
    world.server.put(PODS, json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}));
}

/// Creates 20 pods, one every 10 ms, and expects that the status is written once every 100 ms.
async fn expect_throttled_writes(world: &World) {
    for n in 0..20 {
        put_pod(world, n);
        tokio::time::sleep(Duration::from_millis(10)).await;
        if n == 0 {
            assert_eq!(recorded(world), "1", "the first change after a pause is written at once");
        }
    }
    settle().await;
    assert_eq!(recorded(world), "20", "the last change is written");
    let written = world.server.seen(&Method::PUT, "configmaps").len() - 1;
    assert_eq!(written, 3, "immediately, after 100 ms and after 200 ms");
}

#[tokio::test(start_paused = true)]
async fn throttled_status_is_written_eventually() {
    let world = with_status_throttle().await;
    expect_throttled_writes(&world).await;
}

#[tokio::test(start_paused = true)]
async fn events_that_change_only_the_status_wait_for_its_next_write() {
    let (world, passes) = with_throttled_teller(|builder, pods| {
        builder.watches(pods, |_, enqueue| enqueue.add_for_status(Key::new("ns", "web")))
    })
    .await;
    let passes_before = passes.load(Ordering::SeqCst);
    expect_throttled_writes(&world).await;
    // The status writer's own writes of its map also start a pass each.
    let passes = passes.load(Ordering::SeqCst) - passes_before;
    assert!(passes <= 6, "{passes} passes for 20 events");
}

#[tokio::test(start_paused = true)]
async fn failed_status_backs_off() {
    let world = with_status_throttle().await;
    world.server.fail(Fault {
        method: Method::PUT,
        path: "configmaps",
        times: usize::MAX,
        code: 422,
        reason: "Invalid",
        cause: "",
    });
    put_pod(&world, 0);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let tried = world.server.seen(&Method::PUT, "configmaps").len() - 1;
    assert_eq!(tried, 14, "5 ms, doubled each time, are 41 s after 13 pauses");
}

#[tokio::test(start_paused = true)]
async fn deletes_run_in_parallel_and_are_awaited() {
    let world = World::new();
    world.want("web", 8);
    world.run();
    settle().await;
    world.server.latency(Duration::from_millis(10));
    world.want("web", 0);
    settle().await;
    let deletes = world.server.seen(&Method::DELETE, "pods");
    assert_eq!(deletes.len(), 8, "each pod once");
    assert!(deletes.iter().all(|delete| delete.at == deletes[0].at));
}

#[tokio::test(start_paused = true)]
async fn slow_start_stops_at_the_first_failed_batch() {
    let world = World::new();
    world.server.latency(Duration::from_millis(1));
    world.server.fail(Fault {
        method: Method::POST,
        path: "pods",
        times: 1,
        code: 500,
        reason: "InternalError",
        cause: "",
    });
    world.want("web", 20);
    world.run();
    settle().await;
    let posts = world.server.seen(&Method::POST, "pods");
    let batches: Vec<usize> = posts.chunk_by(|a, b| a.at == b.at).map(<[_]>::len).collect();
    assert_eq!(batches, [1, 1, 2, 4, 8, 5], "the failed create alone, then all 20");
    assert_eq!(world.n_pods(), 20);
    let reasons = world.reasons();
    assert_eq!(reasons.iter().filter(|reason| *reason == "FailedCreate").count(), 1);
    let combined = world
        .server
        .all("v1/events")
        .iter()
        .any(|event| event["message"].as_str().unwrap().starts_with("(c"));
    assert!(combined, "20 events are combined");
    let made = world.server.get(MAPS, "ns/web").unwrap()["data"]["made"].clone();
    assert_eq!(made, "20", "status was computed in the same pass");
}

/// A write while the cache lags behind the object's version.
#[tokio::test(start_paused = true)]
async fn conflict_event_except_for_retried_writes() {
    let world = World::new();
    world.want("a", 0);
    let conflicts: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&conflicts);
    let controller = world.builder().reconcile(move |request, context| {
        let log = Arc::clone(&log);
        async move {
            for (reason, retries_on_conflict) in [("Retried", true), ("NotRetried", false)] {
                let target = Target::new(<Full<ConfigMap> as View>::kind(), "ns", "a", "");
                let change = Rewrite {
                    failed: Some(EventRecord::warning(target.clone(), reason, "{error}")),
                    retries_on_conflict,
                    ..Rewrite::new(target, "stale", PatchType::Merge, "{}")
                };
                let plan = Plan::one(change);
                let lost = context.act(&request.key, &plan).await.unwrap_err();
                assert!(lost.is_conflict());
                log.lock().unwrap().push(lost.message);
            }
            Ok(Outcome::Settled)
        }
    });
    world.tasks.spawn("saver", controller.run(world.tasks.token()));
    settle().await;
    let message = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; \
         please apply your changes to the latest version and try again";
    assert_eq!(*conflicts.lock().unwrap(), [message, message]);
    assert_eq!(world.reasons(), ["NotRetried"]);
    assert_eq!(world.server.all("v1/events")[0]["message"], message);
}

#[tokio::test(start_paused = true)]
async fn patch_of_a_missing_object_fails_if_required() {
    let world = World::new();
    world.want("a", 0);
    let codes: Arc<Mutex<Vec<Option<u16>>>> = Arc::default();
    let log = codes.clone();
    let controller = world.builder().reconcile(move |request, context| {
        let log = log.clone();
        async move {
            for fails_if_missing in [false, true] {
                let target = Target::new(<Full<ConfigMap> as View>::kind(), "ns", "gone", "");
                let patch = Patch {
                    fails_if_missing,
                    ..Patch::new(target, PatchType::Merge, r#"{"data":{"x":"y"}}"#)
                };
                let answer = context.act(&request.key, &Plan::one(patch)).await;
                log.lock().unwrap().push(answer.err().map(|error| error.code));
            }
            Ok(Outcome::Settled)
        }
    });
    world.tasks.spawn("patcher", controller.run(world.tasks.token()));
    settle().await;
    assert_eq!(*codes.lock().unwrap(), [None, Some(404)]);
}

#[tokio::test(start_paused = true)]
async fn no_event_is_recorded_in_a_terminating_namespace() {
    let world = World::new();
    world.server.fail(Fault {
        method: Method::POST,
        path: "pods",
        times: usize::MAX,
        code: 403,
        reason: "Forbidden",
        cause: "NamespaceTerminating",
    });
    world.server.latency(Duration::from_millis(1));
    world.want("web", 20);
    world.run();
    settle().await;
    assert!(world.reasons().is_empty());
    assert_eq!(world.count("controller_runtime_reconcile_errors_total"), 0);
    let posts = world.server.seen(&Method::POST, "pods");
    let batches: Vec<usize> = posts.chunk_by(|a, b| a.at == b.at).map(<[_]>::len).collect();
    assert_eq!(batches[..5], [1, 2, 4, 8, 5], "the slow start goes on");
    let made = world.server.get(MAPS, "ns/web").unwrap()["data"]["made"].clone();
    assert_eq!(made, "0", "the status counts no created pods");
}

#[tokio::test(start_paused = true)]
async fn delete_by_uid_ignores_a_replaced_pod() {
    let world = World::new();
    world.want("web", 1);
    world.run();
    settle().await;
    world.server.hold_watches(PODS);
    let mut pod = world.server.all(PODS).remove(0);
    let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
    world.server.remove(PODS, &format!("ns/{name}"));
    pod["metadata"]["uid"] = "another".into();
    pod["metadata"]["ownerReferences"] = json!([]);
    world.server.put(PODS, pod);
    world.want("web", 0);
    settle().await;
    assert_eq!(world.server.seen(&Method::DELETE, "pods").len(), 1);
    assert_eq!(world.count("controller_runtime_reconcile_errors_total"), 0);
    world.server.release_watches();
    settle().await;
    assert_eq!(world.n_pods(), 1, "the new pod stays");
}

#[tokio::test(start_paused = true)]
async fn replaced_owner_adopts_nothing() {
    let world = World::new();
    let mut adopter = map("web", 3);
    adopter["data"]["adopt"] = "yes".into();
    world.server.put(MAPS, adopter);
    world.maps.synced().await;
    world.server.hold_watches(MAPS);
    let mut other = map("web", 3);
    other["metadata"]["uid"] = "another".into();
    world.server.put(MAPS, other);
    world.run_with(world.builder().max_retries(2));
    settle().await;
    assert_eq!(
        world.server.seen(&Method::GET, "configmaps/web").len(),
        3,
        "once in each of three passes"
    );
    assert_eq!(world.server.seen(&Method::PATCH, "pods").len(), 0);
    assert_eq!(
        (world.n_pods(), world.server.seen(&Method::PUT, "configmaps").len()),
        (0, 0),
        "the pass ended there"
    );
}

#[tokio::test(start_paused = true)]
async fn panic_affects_one_key_and_is_retried() {
    let world = World::new();
    let mut bad = map("bad", 1);
    bad["data"]["panic"] = "yes".into();
    world.server.put(MAPS, bad);
    world.want("good", 2);
    world.run();
    settle().await;
    assert_eq!(world.n_pods(), 2);
    let panics = world.count("controller_runtime_reconcile_panics_total");
    assert!(panics > 2, "{panics}");
    // Mended, it works.
    world.server.put(MAPS, map("bad", 1));
    settle().await;
    assert_eq!(world.n_pods(), 3);
}

#[tokio::test(start_paused = true)]
async fn function_is_retried_with_backoff_and_requeued() {
    let world = World::new();
    let calls: Arc<std::sync::Mutex<Vec<(String, u32, Duration)>>> = Arc::default();
    let (log, start) = (Arc::clone(&calls), Clock::system().instant());
    let controller = Builder::new(&world.env, "function", &world.maps).max_retries(3).reconcile(
        move |request, _context| {
            let name = request.key.name.to_string();
            log.lock().unwrap().push((name.clone(), request.attempt, start.elapsed()));
            async move {
                match &*name {
                    "fails" => Err(Error::message("deliberate")),
                    "hopeless" => Err(Error::terminal("deliberate")),
                    _ => Ok(Outcome::again(Duration::from_secs(60))),
                }
            }
        },
    );
    for name in ["fails", "hopeless", "waits"] {
        world.want(name, 0);
    }
    let stop = world.tasks.token();
    world.tasks.spawn("function", controller.run(stop));
    tokio::time::sleep(Duration::from_secs(150)).await;
    let calls = calls.lock().unwrap().clone();
    let of = |name: &str| {
        calls.iter().filter(|(n, ..)| n == name).map(|(_, attempt, _)| *attempt).collect::<Vec<_>>()
    };
    assert_eq!(
        (of("fails"), of("hopeless"), of("waits")),
        (vec![0, 1, 2, 3], vec![0], vec![0, 0, 0])
    );
    let late: Vec<u64> =
        calls.iter().filter(|(n, ..)| n == "waits").map(|(.., at)| at.as_secs()).collect();
    assert_eq!(late, [0, 60, 120]);
    assert!(world.tasks.shut_down(Duration::from_secs(5)).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn report_has_plan_last_pass_and_waits() {
    let world = World::new();
    let web = Subject::new("", "ConfigMap", "ns", "web");
    let explain = || world.env.introspection.object_reports(&web).remove(0);
    world.run();
    settle().await;
    assert!(!explain().exists);
    world.server.fail(Fault {
        method: Method::POST,
        path: "pods",
        times: 8,
        code: 500,
        reason: "InternalError",
        cause: "",
    });
    world.want("web", 3);
    settle().await;
    let report = explain();
    assert_eq!(report.would[0], "create 3 Pods ns/web-xxxxx");
    let failures = report.queue.as_ref().unwrap().failures;
    assert!(failures >= 3, "{report:?}");
    assert!(report.waits[0].contains("back-off"), "{:?}", report.waits);
    let last = report.last.unwrap();
    assert_eq!((&*last.ended, &*last.did[0]), ("failed", "create 3 Pod in ns: failed"));
    let listing = world.env.introspection.listing();
    let podder = &listing.controllers[0];
    assert_eq!((&*podder.name, podder.queue.backing_off), ("podder", 1));
    assert!(podder.last_error.is_some());

    // The cache lags behind: nothing is done, and the report names the awaited write.
    world.server.hold_watches(PODS);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let report = explain();
    assert!(report.waits[0].contains("cache of Pod to reach version"), "{:?}", report.waits);
    world.server.release_watches();
    settle().await;
    let report = explain();
    assert_eq!((report.would, report.waits), (vec![], vec![]));
    assert_eq!(report.last.unwrap().ended, "settled");

    let answer = world.env.introspection.answer("podder", "object=ns/web");
    let answer: Value = serde_json::from_slice(answer.body()).unwrap();
    assert_eq!(answer["reports"][0]["controller"], "podder");
    assert_eq!(world.env.introspection.answer("other", "").status(), 404);
    assert!(world.tasks.shut_down(Duration::from_secs(5)).await.is_empty());
    assert!(world.env.introspection.all().is_empty(), "a stopped controller is not listed");
}

/// Counts its passes over each key in its memory.
struct Counter(Cache<Full<ConfigMap>>);

impl Planner for Counter {
    type Observed = Arc<Full<ConfigMap>>;
    type Memory = u32;

    fn observe(&self, key: &Key, _: &u32) -> Option<Self::Observed> {
        self.0.get(&key.namespace, &key.name)
    }

    fn plan(&self, _: &Self::Observed, passes: &u32, _: Timestamp) -> (Plan, u32) {
        (Plan::nothing(), passes + 1)
    }
}

/// Arguments of a handler's calls: the memory of each plan, and 0 when the key's object no longer existed.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<u32>>>);

impl PassHandler<Counter> for Calls {
    fn on_planned(&self, _: &Arc<Full<ConfigMap>>, planned: Planned<'_, u32>) {
        self.0.lock().unwrap().push(*planned.memory);
    }

    fn on_gone(&self, _: &Key) {
        self.0.lock().unwrap().push(0);
    }
}

#[tokio::test(start_paused = true)]
async fn memory_is_per_key_and_dropped_with_the_object() {
    let (world, calls) = (World::new(), Calls::default());
    let builder = Builder::new(&world.env, "counter", &world.maps);
    let controller = builder.planned_with(Counter(world.maps.clone()), calls.clone());
    let stop = world.tasks.token();
    world.tasks.spawn("counter", controller.run(stop));
    let subject = Subject::new("", "ConfigMap", "ns", "web");
    for pods in 1..3 {
        world.want("web", pods);
        settle().await;
        assert_eq!(world.env.introspection.object_reports(&subject).len(), 1);
    }
    world.server.remove(MAPS, "ns/web");
    settle().await;
    world.want("web", 3);
    settle().await;
    assert_eq!(*calls.0.lock().unwrap(), [1, 2, 0, 1]);
}
