//! Operators under faults: a correct operator passes, and mistakes are found.

use evenkeel_runtime::{
    manager::{ManagerBuilder, RunnableGroup},
    plan::PatchType,
    prelude::{Arc, CacheOptions, Context, Key, Manager, Outcome, OwnerExt as _, Result, Setup},
};
use evenkeel_test::{BoxError, Exploration, Failure, User, simulation::FaultKind};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Finalizer of each ConfigMap.
const FINALIZER: &str = "example.com/outside";

/// Annotation of a ConfigMap with the number of Secrets in its namespace.
const SECRETS: &str = "example.com/secrets";

/// Mistake in the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    Nothing,
    /// The operator removes the finalizer only from objects that it remembers.
    LeakedFinalizer,
    /// The operator sets the owner of a child with a second write.
    LateOwner,
    /// The operator uses a new name in each attempt to create a child.
    GeneratedName,
    /// The operator counts Secrets, but does not watch them.
    OldRead,
}

#[derive(Debug, Clone, Default)]
struct Names(Arc<Mutex<BTreeSet<String>>>);

impl Names {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// State of an operator.
struct App {
    mistake: Mistake,
    /// Objects that this process observed before their deletion.
    remembered: Names,
    /// External resources of the objects.
    outside: Names,
}

/// Returns an exploration of an operator with this mistake.
fn exploration(mistake: Mistake) -> Exploration {
    of_managers(mistake, |builder| builder)
}

/// Like [`exploration`], with other options of the manager.
fn of_managers(mistake: Mistake, change: fn(ManagerBuilder) -> ManagerBuilder) -> Exploration {
    let outside = Names::default();
    let left = outside.clone();
    let operator = move |kube: kube::Client, setup: Setup| -> anyhow::Result<Manager> {
        let maps = CacheOptions::<ConfigMap>::in_namespace("default");
        let builder = Manager::builder(kube).component("apps").setup(setup).cache(maps);
        let manager = change(builder).build()?;
        let app = App { mistake, remembered: Names::default(), outside: outside.clone() };
        let controller = manager.controller::<ConfigMap>().owns::<Service>().state(app);
        if mistake == Mistake::OldRead {
            controller.reads::<Secret>().reconcile(reconcile);
        } else {
            let key =
                |secret: &Secret| vec![Key::new(&secret.namespace().unwrap_or_default(), "app")];
            controller.watches(key).reconcile(reconcile);
        }
        Ok(manager)
    };
    Exploration::new(operator)
        .after_teardown(move || assert!(left.lock().is_empty(), "left outside: {left:?}"))
}

async fn reconcile(map: Arc<ConfigMap>, cx: Context<App>) -> Result<Outcome> {
    let (app, name) = (cx.state(), map.name_any());
    let finalizers = |names: &[&str]| json!({"metadata": {"resourceVersion": map.resource_version(), "finalizers": names}});
    if map.metadata.deletion_timestamp.is_some() {
        let is_remembered = app.remembered.lock().remove(&name);
        if map.finalizers().is_empty() || app.mistake == Mistake::LeakedFinalizer && !is_remembered
        {
            return Ok(Outcome::Settled);
        }
        app.outside.lock().remove(&name);
        cx.patch(&*map, PatchType::Merge, &finalizers(&[])).await?;
        return Ok(Outcome::Settled);
    }
    if map.finalizers().is_empty() {
        cx.patch(&*map, PatchType::Merge, &finalizers(&[FINALIZER])).await?;
        app.remembered.lock().insert(name.clone());
    }
    app.outside.lock().insert(name.clone());
    make_service(&map, &cx).await?;
    let secrets = cx.cached::<Secret>()?.count("default").to_string();
    if map.annotations().get(SECRETS) != Some(&secrets) {
        let patch = json!({"metadata": {"annotations": {SECRETS: secrets}}});
        cx.patch(&*map, PatchType::Merge, &patch).await?;
    }
    Ok(Outcome::Settled)
}

async fn make_service(map: &ConfigMap, cx: &Context<App>) -> Result<()> {
    let port = map.data.as_ref().and_then(|data| data.get("port")?.parse::<i32>().ok());
    let mut service: Service = serde_json::from_value(json!({
        "metadata": {"name": map.name_any(), "namespace": "default"},
        "spec": {"ports": [{"port": port.unwrap_or(80)}]},
    }))?;
    let present = cx.get::<Service>("default", &map.name_any())?;
    match cx.state().mistake {
        Mistake::LateOwner if present.is_none() => {
            let created = cx.create(&service).await?;
            service.controlled_by(map)?;
            let owners =
                json!({"metadata": {"ownerReferences": service.metadata.owner_references}});
            cx.patch(&*created, PatchType::Merge, &owners).await?;
        }
        Mistake::GeneratedName => {
            let all = cx.cached::<Service>()?.namespace("default");
            if !all.iter().any(|one| one.object().name_any().starts_with("app-")) {
                service.metadata.name = None;
                service.metadata.generate_name = Some("app-".to_owned());
                service.controlled_by(map)?;
                cx.create(&service).await?;
            }
        }
        Mistake::LateOwner => {
            let port = json!({"spec": {"ports": service.spec.unwrap_or_default().ports}});
            cx.patch(&service_named(map)?, PatchType::Merge, &port).await?;
        }
        _ => {
            service.controlled_by(map)?;
            cx.apply(&service).await?;
        }
    }
    Ok(())
}

fn service_named(map: &ConfigMap) -> Result<Service> {
    Ok(serde_json::from_value(
        json!({"metadata": {"name": map.name_any(), "namespace": "default"}}),
    )?)
}

/// Creates an app, changes its port, and creates a Secret, as a user does.
async fn scenario(user: User) -> Result<(), BoxError> {
    let object = |name: &str, data: Value| json!({"metadata": {"name": name}, "data": data});
    let maps = user.api::<ConfigMap>();
    let app = serde_json::from_value(object("app", json!({"port": "80"})))?;
    maps.create(&PostParams::default(), &app).await?;
    user.settle().await;
    let port = Patch::Merge(json!({"data": {"port": "81"}}));
    maps.patch("app", &PatchParams::default(), &port).await?;
    user.settle().await;
    let secret = serde_json::from_value(object("key", json!({})))?;
    user.api::<Secret>().create(&PostParams::default(), &secret).await?;
    let label = Patch::Merge(json!({"metadata": {"labels": {"checked": "true"}}}));
    maps.patch("app", &PatchParams::default(), &label).await?;
    user.settle().await;
    assert!(maps.get("app").await?.annotations().contains_key(SECRETS), "it has a status");
    Ok(())
}

/// Explores an operator with a mistake, which a run must find. The run's repetition must find the same.
fn find(mistake: Mistake, seeds: u64) -> Failure {
    let exploration = |mistake| exploration(mistake).seeds(seeds);
    let failure = exploration(mistake).check(scenario).expect_err("the mistake is found");
    let again = exploration(mistake).repeat(&failure, scenario).expect_err("it is found again");
    assert_eq!(failure, again, "\n{failure}\n{again}");
    *failure
}

#[test]
fn a_correct_operator_survives_all_faults_with_ten_seeds() {
    let explored = exploration(Mistake::Nothing).seeds(10).max_runs(13).run(scenario);
    assert!(explored.kinds == 13 && explored.writes > 5, "{explored:?}");
}

#[test]
fn replicas_of_which_one_leads_survive_all_faults() {
    let elected = |mistake| {
        let explored = of_managers(mistake, |builder| builder.leader_election_id("apps"));
        explored.replicas(3).seeds(1)
    };
    let explored = elected(Mistake::Nothing).max_runs(15).run(scenario);
    assert!(explored.kinds == 15 && explored.writes > 5, "{explored:?}");
    let kinds = [FaultKind::LoseLease, FaultKind::Pause, FaultKind::Cut];
    let explored = elected(Mistake::Nothing).kinds(kinds).max_runs(6).run(scenario);
    assert!(explored.runs > 5 && explored.kinds == 3, "{explored:?}");
    let failure = elected(Mistake::LeakedFinalizer).check(scenario).expect_err("it is found");
    assert_eq!(failure.phase, "teardown", "another replica remembers nothing: {failure}");
}

/// Returns an exploration of an operator that writes a ConfigMap at each start: with the time, or with the number of starts.
fn of_starts(counts: bool) -> Exploration {
    let operator = move |kube: kube::Client, setup: Setup| -> anyhow::Result<Manager> {
        let maps = CacheOptions::<ConfigMap>::in_namespace("default");
        let manager = Manager::builder(kube).component("apps").setup(setup).cache(maps).build()?;
        let starts: Api<ConfigMap> = Api::default_namespaced(manager.env().client.kube());
        let clock = manager.env().clock.clone();
        manager.controller::<ConfigMap>().owns::<Secret>().reconcile(copy);
        manager.add(RunnableGroup::LeaderElection, "starts", move |context| async move {
            let present = starts.get_opt("starts").await?;
            let count = present.iter().flat_map(|map| map.labels().get("count"));
            let count = count.last().and_then(|count| count.parse::<u32>().ok()).unwrap_or(0);
            let count = if counts { count + 1 } else { 0 };
            let data = json!({"last": clock.now().to_string()});
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "starts", "labels": {"count": count.to_string()}},
                "data": data,
            });
            let apply = PatchParams::apply("apps").force();
            starts.patch("starts", &apply, &Patch::Apply(map)).await?;
            context.stopped().await;
            Ok(())
        });
        Ok(manager)
    };
    let crashes = [FaultKind::CrashBefore, FaultKind::CrashAfter];
    Exploration::new(operator).kinds(crashes).seeds(1)
}

/// Maintains a Secret for each ConfigMap with data for a Secret.
async fn copy(map: Arc<ConfigMap>, cx: Context) -> Result<Outcome> {
    if map.data.as_ref().is_some_and(|data| data.contains_key("copy")) {
        let mut secret = Secret { string_data: map.data.clone(), ..Secret::default() };
        secret.metadata.name = map.metadata.name.clone();
        secret.controlled_by(&*map)?;
        cx.apply(&secret).await?;
    }
    Ok(Outcome::Settled)
}

async fn copied(user: User) -> Result<(), BoxError> {
    let map = json!({"metadata": {"name": "app"}, "data": {"copy": "1"}});
    let map = serde_json::from_value(map)?;
    user.api::<ConfigMap>().create(&PostParams::default(), &map).await?;
    user.settle().await;
    user.api::<Secret>().get("app").await?;
    Ok(())
}

#[test]
fn an_object_of_before_may_be_written_again_but_not_changed() {
    let explored = of_starts(false).run(copied);
    assert!(explored.runs >= 2, "{explored:?}");
    let failure = of_starts(true).check(copied).expect_err("another number is another state");
    assert!(failure.reason.contains("ConfigMap default/starts"), "{failure}");
}

#[test]
fn the_same_exploration_has_the_same_requests() {
    let explore = || exploration(Mistake::Nothing).max_runs(3).run(scenario);
    assert_eq!(explore(), explore());
}

#[test]
fn a_finalizer_that_a_crash_leaks_is_found() {
    let failure = find(Mistake::LeakedFinalizer, 1);
    assert!(failure.fault.is_some() && failure.phase == "teardown", "{failure}");
    assert!(
        failure.reason.contains("ConfigMap default/app is left: deleted, but held by"),
        "{failure}"
    );
}

#[test]
fn a_child_without_owner_is_found() {
    let failure = find(Mistake::LateOwner, 1);
    assert!(failure.fault.is_some(), "{failure}");
    let text = failure.to_string();
    assert!(text.contains("Service default/app: metadata.ownerReferences: nothing"), "{text}");
    assert!(text.contains("EVENKEEL_FAULT="), "{text}");
}

#[test]
fn a_child_of_each_attempt_is_found() {
    let failure = find(Mistake::GeneratedName, 1);
    assert!(failure.reason.contains("Service default/app-*: 2 objects"), "{failure}");
    let repeats = [FaultKind::LoseAnswer, FaultKind::Repeat];
    let failure = exploration(Mistake::GeneratedName).kinds(repeats).check(scenario);
    assert!(failure.is_err(), "{failure:?}");
}

#[test]
fn a_status_of_old_reads_is_found() {
    let failure = find(Mistake::OldRead, 4);
    let found = "ConfigMap default/app: metadata.annotations.example.com/secrets: \"0\"";
    assert!(failure.reason.contains(found), "{failure}");
}
