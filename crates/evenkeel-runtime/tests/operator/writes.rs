//! Writes of a reconcile that other tests do not cover, and views of its context.

use crate::{context, create, fixture, map, merge, reading};
use evenkeel_runtime::{
    plan::{PatchType, Propagation},
    prelude::*,
    serde_json::{Value, json},
};
use evenkeel_test::eventually_gone;
use k8s_openapi::api::{
    apps::v1::{Deployment, DeploymentCondition, DeploymentStatus},
    authentication::v1::TokenRequest,
    core::v1::{ConfigMap, Namespace, Pod, Secret, ServiceAccount},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde::de::DeserializeOwned;

fn object<K: DeserializeOwned>(json: Value) -> K {
    serde_json::from_value(json).unwrap()
}

fn deployment() -> Deployment {
    object(json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }))
}

fn is_conflict<T>(result: &Result<T>) -> bool {
    let error = result.as_ref().err().and_then(|error| error.downcast_ref::<ApiError>());
    error.is_some_and(ApiError::is_conflict)
}

#[tokio::test(start_paused = true)]
async fn an_eviction_respects_pod_disruption_budgets() {
    let fixture = fixture().await;
    let client = fixture.server.client();
    let (pods, budgets): (Api<Pod>, Api<PodDisruptionBudget>) =
        (Api::default_namespaced(client.clone()), Api::default_namespaced(client));
    let pod = |name: &str| {
        object(json!({
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }))
    };
    let free = pods.create(&PostParams::default(), &pod("free")).await.unwrap();
    let bound = pods.create(&PostParams::default(), &pod("bound")).await.unwrap();
    // The budget's status has not been computed yet, so the budget permits nothing.
    let budget = object(json!({
        "metadata": {"name": "all"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "bound"}}},
    }));
    budgets.create(&PostParams::default(), &budget).await.unwrap();
    let running = Patch::Merge(json!({"status": {"phase": "Running"}}));
    pods.patch_status("bound", &PatchParams::default(), &running).await.unwrap();
    let cx = context(fixture.manager().build().unwrap(), |builder| builder).await;
    assert!(cx.evict(&free).await.unwrap());
    eventually_gone(&pods, "free").await.unwrap();
    assert!(cx.evict(&free).await.unwrap(), "it is gone already");
    assert!(!cx.evict(&bound).await.unwrap());
    assert!(pods.get_opt("bound").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn sub_resources_are_read_and_written() {
    let fixture = fixture().await;
    let cx = reading::<Deployment>(fixture.manager().build().unwrap()).await;
    let web = cx.create(&deployment()).await.unwrap();
    assert_eq!(cx.get_scale(&*web).await.unwrap().spec.unwrap().replicas, Some(1));
    let scaled = cx.scale(&*web, 3).await.unwrap();
    assert_eq!(scaled.spec.unwrap().replicas, Some(3));
    let live = cx.get_live::<Deployment>("default", "web").await.unwrap().unwrap();
    assert_eq!(live.spec.replicas, Some(3));
    let patch = json!({"spec": {"replicas": 2}});
    let patched = cx.subresource(&*web, "scale").patch(PatchType::Merge, &patch).await.unwrap();
    assert_eq!(patched.data["spec"]["replicas"], 2);
    let read = cx.subresource(&*web, "scale").get().await.unwrap();
    assert_eq!(read.types.unwrap().kind, "Scale");
    let error = cx.subresource(&*web, "resize").get().await.unwrap_err();
    assert!(error.downcast_ref::<ApiError>().unwrap().is_not_found(), "{error}");

    let account: ServiceAccount =
        object(json!({"metadata": {"name": "robot", "namespace": "default"}}));
    let account = cx.create(&account).await.unwrap();
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": ["https://example.com"], "expirationSeconds": 600},
    });
    let answer = cx.subresource(&*account, "token").create(&request).await.unwrap();
    let token: TokenRequest = answer.try_parse().unwrap();
    assert_eq!(token.status.unwrap().token.unwrap().split('.').count(), 3, "a JWT");
}

#[tokio::test(start_paused = true)]
async fn statuses_of_built_in_kinds_are_patched_by_their_differences() {
    let fixture = fixture().await;
    let cx = reading::<Deployment>(fixture.manager().build().unwrap()).await;
    let web = cx.create(&deployment()).await.unwrap();
    let set = |status: &mut DeploymentStatus| status.ready_replicas = Some(1);
    let written = cx.status_of(&*web).set(|status: &mut DeploymentStatus| {
        (status.replicas, status.updated_replicas) = (Some(1), Some(1));
    });
    let written = written.set(set).patch_if_changed().await.unwrap().unwrap();
    let status = written.status.as_ref().unwrap();
    assert_eq!((status.replicas, status.ready_replicas), (Some(1), Some(1)));
    let _ = fixture.written();
    assert!(cx.status_of(&*written).set(set).patch_if_changed().await.unwrap().is_none());
    assert_eq!(fixture.written(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_apply_without_force_leaves_fields_to_their_owners() {
    let fixture = fixture().await;
    let mut other = map("web");
    other.data = Some([("k".to_owned(), "theirs".to_owned())].into());
    create(&fixture.maps(), other).await;
    let cx = context(fixture.manager().build().unwrap(), |builder| builder).await;
    let mut ours = map("web");
    ours.data = Some([("k".to_owned(), "ours".to_owned())].into());
    assert!(is_conflict(&cx.apply_without_force(&ours).await));
    let applied = cx.apply(&ours).await.unwrap();
    assert_eq!(applied.data, ours.data);
    assert_eq!(cx.apply_without_force(&ours).await.unwrap().data, ours.data);
}

#[tokio::test(start_paused = true)]
async fn an_apply_adopts_what_nobody_else_controls() {
    let fixture = fixture().await;
    let first = create(&fixture.maps(), map("first")).await;
    let second = create(&fixture.maps(), map("second")).await;
    let theirs = json!({"metadata": {"name": "taken"}, "stringData": {"k": "theirs"}});
    let theirs: Secret = object(theirs);
    fixture.secrets().create(&PostParams::default(), &theirs).await.unwrap();
    let cx = reading::<Secret>(fixture.manager().build().unwrap()).await;
    let owned_by = |owner: &ConfigMap, name: &str| {
        let mut secret: Secret =
            object(json!({"metadata": {"name": name, "namespace": "default"}}));
        secret.controlled_by(owner).unwrap();
        secret
    };
    let adopted = cx.apply(&owned_by(&first, "taken")).await.unwrap();
    assert!(adopted.is_controlled_by(&first));
    assert_eq!(adopted.data.as_ref().unwrap()["k"].0, b"theirs");
    // With the same field manager, the latest intent replaces the previous one.
    let moved = cx.apply(&owned_by(&second, "taken")).await.unwrap();
    assert!(moved.is_controlled_by(&second) && !moved.is_controlled_by(&first));

    let of_another = owned_by(&first, "controlled");
    fixture.secrets().create(&PostParams::default(), &of_another).await.unwrap();
    let error = cx.apply(&owned_by(&second, "controlled")).await.unwrap_err();
    assert!(error.downcast_ref::<ApiError>().unwrap().is_invalid());
    let reason = "Only one reference can have Controller set to true";
    assert!(error.to_string().contains(reason), "{error}");
}

#[tokio::test(start_paused = true)]
async fn live_reads_and_deletions_with_options() {
    let fixture = fixture().await;
    for (name, app) in [("a", "web"), ("b", "web"), ("c", "db")] {
        let mut map = map(name);
        map.metadata.labels = Some([("app".to_owned(), app.to_owned())].into());
        create(&fixture.maps(), map).await;
    }
    let cx = context(fixture.manager().build().unwrap(), |builder| builder).await;
    let options = ListOptions { labels: "app=web".into(), ..ListOptions::default() };
    let listed = cx.list_live::<ConfigMap>("default", &options).await.unwrap();
    let mut names: Vec<_> = listed.iter().map(|map| map.name_any()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "b"]);
    assert!(cx.get_live::<ConfigMap>("default", "x").await.unwrap().is_none());
    let a = cx.get_live::<ConfigMap>("default", "a").await.unwrap().unwrap();
    merge(&fixture.maps(), "a", &json!({"data": {"k": "v"}})).await;
    let version = a.resource_version().unwrap();
    let of_version = DeleteOptions { resource_version: version, ..DeleteOptions::default() };
    assert!(is_conflict(&cx.delete_with(&*a, of_version).await), "it has changed since");
    let foreground =
        DeleteOptions { propagation: Some(Propagation::Foreground), ..DeleteOptions::default() };
    assert!(cx.delete_with(&*a, foreground).await.unwrap());
    let deleting = fixture.maps().get("a").await.unwrap();
    assert_eq!(deleting.finalizers(), ["foregroundDeletion"], "its dependents are deleted first");
}

#[tokio::test(start_paused = true)]
async fn patches_from_differences_have_locks() {
    let fixture = fixture().await;
    let created = create(&fixture.maps(), map("web")).await;
    let cx = context(fixture.manager().build().unwrap(), |builder| builder).await;
    let with = |from: &ConfigMap, finalizer: &str| {
        let mut map = from.clone();
        map.metadata.finalizers.get_or_insert_default().push(finalizer.to_owned());
        map
    };
    let first = with(&created, "a.io/a");
    let first = cx.json_patch(&created, &first).await.unwrap().unwrap();
    assert!(cx.json_patch(&*first, &first).await.unwrap().is_none());
    let second = with(&first, "a.io/b");
    let second = cx.json_patch(&*first, &second).await.unwrap().unwrap();
    assert_eq!(second.finalizers(), ["a.io/a", "a.io/b"]);
    let stale = with(&first, "a.io/c");
    assert!(is_conflict(&cx.json_patch(&*first, &stale).await), "it counts entries");
    let mut data = ConfigMap::clone(&first);
    data.data = Some([("k".to_owned(), "v".to_owned())].into());
    assert!(is_conflict(&cx.merge_patch_with_lock(&*first, &data).await));
    let third = cx.merge_patch(&*first, &data).await.unwrap().unwrap();
    assert_eq!((third.finalizers().len(), third.data.is_some()), (2, true));
}

#[tokio::test(start_paused = true)]
async fn a_view_of_a_namespace_writes_only_there() {
    let fixture = fixture().await;
    let namespaces: Api<Namespace> = Api::all(fixture.server.client());
    let shop = object(json!({"metadata": {"name": "shop"}}));
    namespaces.create(&PostParams::default(), &shop).await.unwrap();
    let cx = context(fixture.manager().build().unwrap(), |builder| builder).await;
    let view = cx.in_namespace("shop");
    let nameless: ConfigMap = object(json!({"metadata": {"name": "web"}}));
    let applied = view.apply(&nameless).await.unwrap();
    assert_eq!(applied.namespace().as_deref(), Some("shop"));
    assert!(view.get_live::<ConfigMap>("", "web").await.unwrap().is_some());
    assert_eq!(view.list_live::<ConfigMap>("", &ListOptions::default()).await.unwrap().len(), 1);
    let error = view.create(&map("other")).await.unwrap_err().to_string();
    assert_eq!(error, "ConfigMap in namespace default is outside of this view of namespace shop");
    assert!(view.get_live::<Namespace>("", "default").await.unwrap().is_some());
    assert!(cx.get_live::<ConfigMap>("default", "web").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_stores_nothing() {
    let fixture = fixture().await;
    let present = create(&fixture.maps(), map("present")).await;
    let cx = context(fixture.manager().build().unwrap(), |builder| {
        builder.reads::<ConfigMap>().reads::<Secret>()
    })
    .await;
    let dry = cx.dry_run();
    let created = dry.create(&map("new")).await.unwrap();
    assert!(created.uid().is_some(), "it is as the server would store it");
    dry.apply(&map("applied")).await.unwrap();
    let mut changed = present.clone();
    changed.data = Some([("k".to_owned(), "v".to_owned())].into());
    assert!(dry.merge_patch(&present, &changed).await.unwrap().unwrap().data.is_some());
    assert!(dry.delete(&present).await.unwrap());
    dry.event(&present, "Seen", "the map was seen");
    let invalid: ConfigMap = object(json!({"metadata": {"name": "No", "namespace": "default"}}));
    assert!(dry.create(&invalid).await.is_err(), "the server checks it");
    let kube: Api<ConfigMap> = Api::default_namespaced(dry.kube().clone());
    kube.create(&PostParams::default(), &map("kube")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let maps = fixture.maps().list(&Default::default()).await.unwrap();
    let names: Vec<_> = maps.items.iter().map(kube::ResourceExt::name_any).collect();
    assert_eq!(names, ["present"]);
    assert_eq!(maps.items[0].data, None);
    assert!(fixture.events().await.is_empty());
    // The dry-run apply is not remembered as a real one.
    assert!(cx.apply(&map("applied")).await.unwrap().uid().is_some());
    assert!(fixture.maps().get_opt("applied").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_another_has_created_meanwhile_is_not_replaced() {
    let fixture = fixture().await;
    let created = create(&fixture.maps(), map("web")).await;
    let cx = reading::<Deployment>(fixture.manager().build().unwrap()).await;
    let with = |finalizer: &str| {
        let mut map = created.clone();
        map.metadata.finalizers = Some(vec![finalizer.to_owned()]);
        map
    };
    assert!(cx.merge_patch(&created, &with("a.io/a")).await.unwrap().is_some());
    assert!(is_conflict(&cx.merge_patch(&created, &with("a.io/b")).await));
    assert!(is_conflict(&cx.json_patch(&created, &with("a.io/b")).await));

    let web = cx.create(&deployment()).await.unwrap();
    let set = |name: &str| {
        let condition: DeploymentCondition = object(json!({"type": name, "status": "True"}));
        move |status: &mut DeploymentStatus| status.conditions = Some(vec![condition])
    };
    let first = cx.status_of(&*web).set(set("A")).patch_if_changed().await.unwrap().unwrap();
    assert!(is_conflict(&cx.status_of(&*web).set(set("B")).patch_if_changed().await));
    assert_eq!(
        first.status.as_ref().unwrap().conditions.as_ref().unwrap()[0].type_.as_deref(),
        Some("A")
    );
}
