//! Tests of kinds that are known only at run time, and of metadata-only caches.

use crate::{Fixture, Lines, context, create, fixture, map, merge, reading, start};
use evenkeel_runtime::{client::Metadata, operator::Identified, plan::PatchType, prelude::*};
use evenkeel_test::{eventually, eventually_gone};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::{
    Api, ResourceExt as _,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
    },
};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) fn gadgets() -> Kind {
    Kind::new("example.com", "v1", "Gadget", "gadgets", true)
}

fn maps() -> Kind {
    Kind::new("", "v1", "ConfigMap", "configmaps", true)
}

fn secrets() -> Kind {
    Kind::new("", "v1", "Secret", "secrets", true)
}

/// Installs the CustomResourceDefinition of gadgets, which have the subresources `status` and `scale`. Returns the API of
/// gadgets.
pub(crate) async fn install_gadgets(fixture: &Fixture) -> Api<DynamicObject> {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
                },
            }],
        },
    });
    fixture.server.crd_value(&definition).await.unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Gadget"));
    Api::default_namespaced_with(fixture.server.client(), &resource)
}

pub(crate) fn gadget(name: &str, size: u32) -> DynamicObject {
    let gadget = json!({
        "apiVersion": "example.com/v1", "kind": "Gadget",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"size": size},
    });
    serde_json::from_value(gadget).unwrap()
}

/// Maintains a ConfigMap with the size of each gadget, and writes the gadget's status.
async fn reconcile(gadget: Arc<DynamicObject>, cx: Context<Lines>) -> Result<Outcome> {
    let (gadgets, maps) = (cx.dynamic(gadgets()), cx.dynamic(maps()));
    let size = gadget.data["spec"]["size"].clone();
    let mut child = maps.new_object("", &gadget.name_any());
    child.data = json!({"data": {"size": size.to_string()}});
    child.controlled_by(&*gadget)?;
    maps.apply(&child).await?;
    let ready = conditions::of(&*gadget, "Ready", true, "Applied", "the map exists");
    let status = gadgets.status(&gadget).set(|status| status["size"] = size);
    status.condition(ready).patch_if_changed().await?;
    gadgets.event(&*gadget, "Applied", "the map was applied");
    cx.state().lock().unwrap().push(gadget.finalizers().join(","));
    Ok(Outcome::Settled)
}

#[tokio::test(start_paused = true)]
async fn a_dynamic_root_has_finalizers_children_a_status_and_events() {
    let fixture = fixture().await;
    let api = install_gadgets(&fixture).await;
    let manager = fixture.manager().build().unwrap();
    let (log, cleanups) = (Lines::default(), Arc::new(AtomicU32::new(0)));
    let count = Arc::clone(&cleanups);
    manager
        .controller_of_dynamic(gadgets())
        .owns_dynamic(maps())
        .state(Arc::clone(&log))
        .finalizer("example.com/outside", move |gadget: Arc<DynamicObject>, _: Context<Lines>| {
            assert_eq!(gadget.name_any(), "web");
            count.fetch_add(1, Ordering::SeqCst);
            async { Ok(()) }
        })
        .reconcile_dynamic(reconcile);
    start(manager);
    api.create(&PostParams::default(), &gadget("web", 3)).await.unwrap();
    let has_status = |gadget: &DynamicObject| {
        let status = &gadget.data["status"];
        status["size"] == 3 && status["conditions"][0]["type"] == "Ready"
    };
    let stored = eventually(&api, "web", has_status).await.unwrap();
    assert_eq!(stored.finalizers(), ["example.com/outside"]);
    let map = fixture.maps().get("web").await.unwrap();
    assert_eq!(map.data.as_ref().unwrap()["size"], "3");
    let owner = &map.owner_references()[0];
    assert_eq!(
        (&*owner.api_version, &*owner.kind, owner.controller),
        ("example.com/v1", "Gadget", Some(true))
    );

    fixture.maps().delete("web", &DeleteParams::default()).await.unwrap();
    eventually(&fixture.maps(), "web", |_| true).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let events = fixture.events().await;
    let about = &events.first().unwrap().involved_object;
    assert_eq!((about.kind.as_deref(), &about.uid), (Some("Gadget"), &stored.metadata.uid));

    api.delete("web", &DeleteParams::default()).await.unwrap();
    eventually_gone(&api, "web").await.unwrap();
    assert_eq!(cleanups.load(Ordering::SeqCst), 1);
    let log = log.lock().unwrap();
    assert!(log.len() > 1 && log.iter().all(|it| it == "example.com/outside"), "{log:?}");
}

/// Labels each ConfigMap, and maintains a Secret of the same name.
async fn label(map: Arc<Metadata>, cx: Context) -> Result<Outcome> {
    let of_kind = cx.dynamic(maps());
    if map.meta.labels.get("seen").is_none() {
        let patch = json!({"metadata": {"labels": {"seen": "true"}}});
        of_kind.patch(&*map, PatchType::Merge, &patch).await?;
        of_kind.warning(&*map, "Labelled", "the map had no label");
    }
    let mut secret = Secret::default();
    secret.metadata.name = Some(map.meta.name.to_string());
    secret.controlled_by_metadata(&maps(), &map)?;
    cx.apply(&secret).await?;
    Ok(Outcome::Settled)
}

#[tokio::test(start_paused = true)]
async fn a_metadata_root_needs_no_whole_objects() {
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    let observer = manager.clone();
    manager
        .controller_of_metadata(maps())
        .owns_metadata(secrets())
        .finalizer("example.com/outside", async |_: Arc<Metadata>, _: Context| Ok(()))
        .reconcile_metadata(label);
    start(manager);
    let map = create(&fixture.maps(), map("web")).await;
    eventually(&fixture.secrets(), "web", |_| true).await.unwrap();
    let labelled =
        eventually(&fixture.maps(), "web", |map| map.labels().contains_key("seen")).await.unwrap();
    assert_eq!(labelled.finalizers(), ["example.com/outside"]);
    eventually(&fixture.secrets(), "web", |secret| {
        secret.owner_references().iter().any(|owner| Some(&owner.uid) == map.metadata.uid.as_ref())
    })
    .await
    .unwrap();
    fixture.secrets().delete("web", &DeleteParams::default()).await.unwrap();
    eventually(&fixture.secrets(), "web", |_| true).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let events = fixture.events().await;
    let reasons: Vec<_> = events.into_iter().filter_map(|it| it.reason).collect();
    assert_eq!(reasons, ["Labelled"]);
    let caches = observer.env().caches.states();
    assert!(caches.len() == 2 && caches.iter().all(|cache| cache.metadata_only), "{caches:?}");

    fixture.maps().delete("web", &DeleteParams::default()).await.unwrap();
    eventually_gone(&fixture.maps(), "web").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn caches_are_read_only_if_they_are_declared() {
    let fixture = fixture().await;
    create(&fixture.maps(), map("web")).await;
    let manager = fixture.manager().build().unwrap();
    let by_name = manager.cached::<ConfigMap>().index("name", |map, key| key(&map.name_any()));
    let of_pods = manager.cached::<Pod>().index("all", |_, key| key(""));
    let cx = context(manager, |builder| {
        builder.reads_dynamic(maps()).reads_metadata(secrets()).reads::<ConfigMap>()
    })
    .await;
    let found = cx.get_dynamic(&maps(), "default", "web").unwrap().unwrap();
    let types = found.types.as_ref().unwrap();
    assert_eq!((&*types.api_version, &*types.kind), ("v1", "ConfigMap"), "lists have no types");
    assert!(cx.get_metadata(&secrets(), "default", "web").unwrap().is_none());
    assert!(cx.dynamic(maps()).get("default", "other").unwrap().is_none());
    assert_eq!(cx.index(&by_name).unwrap().count("web"), 1);
    let errors = [
        cx.get_dynamic(&secrets(), "default", "web").unwrap_err(),
        cx.get_metadata(&maps(), "default", "web").unwrap_err(),
        cx.index(&of_pods).unwrap_err(),
        cx.has_synced::<Secret>().unwrap_err(),
    ];
    let text = errors.map(|error| error.to_string());
    assert_eq!(
        text,
        [
            "controller test reads the dynamic cache of Secret, but does not declare it: add `.reads_dynamic(kind)`, `.owns_dynamic(kind)` or `.watches_dynamic(kind, …)` to its builder",
            "controller test reads the metadata cache of ConfigMap, but does not declare it: add `.reads_metadata(kind)`, `.owns_metadata(kind)` or `.watches_metadata(kind, …)` to its builder",
            "controller test reads the cache of Pod, but does not declare it: add `.reads::<Pod>()`, `.owns::<Pod>()` or `.watches::<Pod>(…)` to its builder",
            "controller test reads the cache of Secret, but does not declare it: add `.reads::<Secret>()`, `.owns::<Secret>()` or `.watches::<Secret>(…)` to its builder",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn predicates_read_the_content_of_dynamic_objects() {
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    let log = Lines::default();
    manager
        .controller_of_requests("keys")
        .watches_dynamic(maps(), |map| vec![Key::of_object(map)])
        .when(on_dynamic_change(|old, new| old.data["data"]["k"] != new.data["data"]["k"]))
        .state(Arc::clone(&log))
        .reconcile_requests(crate::log_key);
    start(manager);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let api = fixture.maps();
    create(&api, map("web")).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    log.lock().unwrap().clear();
    merge(&api, "web", &json!({"data": {"other": "1"}})).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(log.lock().unwrap().is_empty());
    merge(&api, "web", &json!({"data": {"k": "1"}})).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(*log.lock().unwrap(), ["default/web"]);
}

#[tokio::test(start_paused = true)]
async fn caches_of_dynamic_and_metadata_kinds_have_options() {
    let fixture = fixture().await;
    let by_label = CacheOptions::<DynamicObject>::in_namespace("default")
        .labels("app=web")
        .transform_dynamic(|map| drop(map.data["data"].take()));
    let by_name = CacheOptions::<Metadata>::default()
        .fields("metadata.name=web")
        .transform_metadata(|meta| meta.annotations = Default::default());
    let manager = fixture
        .manager()
        .cache_dynamic(maps(), by_label)
        .cache_metadata(secrets(), by_name)
        .build()
        .unwrap();
    let (of_maps, of_secrets) =
        (manager.cached_dynamic(maps()), manager.cached_metadata(secrets()));
    let metadata =
        |name: &str| json!({"name": name, "labels": {"app": name}, "annotations": {"a": "1"}});
    for name in ["web", "other"] {
        let content = json!({"metadata": metadata(name), "data": {"k": "dg=="}});
        let api = fixture.secrets();
        let secret = serde_json::from_value(content.clone()).unwrap();
        api.create(&PostParams::default(), &secret).await.unwrap();
        create(&fixture.maps(), serde_json::from_value(content).unwrap()).await;
    }
    let cx =
        context(manager, |builder| builder.reads_dynamic(maps()).reads_metadata(secrets())).await;
    let cached = of_maps.list();
    assert_eq!(cached.iter().map(|map| map.name_any()).collect::<Vec<_>>(), ["web"]);
    assert_eq!((&cached[0].data["data"], cached[0].annotations().len()), (&Value::Null, 1));
    let cached = of_secrets.list();
    assert_eq!(cached.iter().map(|it| it.meta.name.to_string()).collect::<Vec<_>>(), ["web"]);
    assert!(cached[0].meta.annotations.get("a").is_none());

    // The cache has dropped the data, so an update from the cached object would remove them.
    let web = cx.dynamic(maps()).new_object("default", "web");
    let changed = cx
        .dynamic(maps())
        .create_or_update(web, |map| {
            map.labels_mut().insert("changed".to_owned(), "1".to_owned());
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!((&changed.data["data"]["k"], &*changed.labels()["changed"]), (&json!("dg=="), "1"));
}

#[tokio::test(start_paused = true)]
async fn a_cache_with_a_transform_does_not_drop_data_of_objects() {
    let fixture = fixture().await;
    let options = CacheOptions::<Secret>::default().transform(|secret| secret.data = None);
    let manager = fixture.manager().cache(options).build().unwrap();
    let secret =
        json!({"metadata": {"name": "web", "namespace": "default"}, "data": {"k": "dg=="}});
    let secret: Secret = serde_json::from_value(secret).unwrap();
    fixture.secrets().create(&PostParams::default(), &secret).await.unwrap();
    let cx = reading::<Secret>(manager).await;
    assert_eq!(cx.get::<Secret>("default", "web").unwrap().unwrap().data, None);
    let mut named = Secret::default();
    (named.metadata.name, named.metadata.namespace) = (Some("web".into()), Some("default".into()));
    let changed = cx
        .create_or_update(named, |secret| {
            secret.labels_mut().insert("l".to_owned(), "1".to_owned());
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!((&changed.data, changed.labels().len()), (&secret.data, 1));
}

#[tokio::test(start_paused = true)]
async fn dynamic_objects_have_all_writes() {
    let fixture = fixture().await;
    let api = install_gadgets(&fixture).await;
    let manager = fixture.manager().build().unwrap();
    let cx = context(manager, |builder| builder.reads_dynamic(gadgets())).await;
    let objects = cx.dynamic(gadgets());
    let first = objects.create(&gadget("a", 1)).await.unwrap();
    let mut second = DynamicObject::clone(&first);
    second.data["spec"]["list"] = json!(["x"]);
    let second = objects.merge_patch(&first, &second).await.unwrap().unwrap();
    assert!(objects.merge_patch(&second, &second).await.unwrap().is_none());
    let mut third = DynamicObject::clone(&second);
    third.data["spec"]["list"] = json!(["x", "y"]);
    let third = objects.json_patch(&second, &third).await.unwrap().unwrap();
    assert_eq!(third.data["spec"], json!({"size": 1, "list": ["x", "y"]}));
    let mut stale = DynamicObject::clone(&second);
    stale.data["spec"]["size"] = json!(9);
    let conflict = objects.merge_patch_with_lock(&second, &stale).await.unwrap_err();
    assert!(conflict.downcast_ref::<ApiError>().unwrap().is_conflict(), "{conflict}");

    let status = objects.status(&third).set(|status| status["size"] = json!(2));
    let written = status.patch_if_changed().await.unwrap().unwrap();
    let unchanged = objects.status(&written).set(|status| status["size"] = json!(2));
    assert!(unchanged.patch_if_changed().await.unwrap().is_none());
    let scale = objects.scale(&*written, 4).await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(4));
    let scale = objects.get_scale(&*third).await.unwrap();
    assert_eq!((scale.spec.unwrap().replicas, scale.status.unwrap().replicas), (Some(4), 2));
    let patch = json!({"status": {"size": 3}});
    let patched = objects.subresource(&*third, "status").patch(PatchType::Merge, &patch).await;
    assert_eq!(patched.unwrap().data["status"]["size"], 3);

    // Outside a reconcile, no read waits for the cache.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let labelled = objects
        .create_or_update(gadget("a", 0), |gadget| {
            gadget.labels_mut().insert("l".to_owned(), "1".to_owned());
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!((&labelled.data["spec"]["size"], labelled.labels().len()), (&json!(4), 1));
    objects.create_or_update(gadget("b", 7), |_| Ok(())).await.unwrap();
    let with_label = ListOptions { labels: "l=1".into(), ..ListOptions::default() };
    let listed = objects.list_live("default", &with_label).await.unwrap();
    assert_eq!(listed.iter().map(|it| it.name_any()).collect::<Vec<_>>(), ["a"]);
    assert_eq!(objects.get_live("default", "b").await.unwrap().unwrap().data["spec"]["size"], 7);
    create(&fixture.maps(), map("m")).await;
    let built_in = cx.dynamic(maps()).list_live("", &ListOptions::default()).await.unwrap();
    assert!(!built_in.is_empty());
    assert!(built_in.iter().all(|map| map.types.as_ref().unwrap().kind == "ConfigMap"));

    let other_version =
        DeleteOptions { resource_version: "1".to_owned(), ..DeleteOptions::default() };
    assert!(objects.delete_with(&*labelled, other_version).await.is_err());
    assert!(objects.delete(&*labelled).await.unwrap());
    assert!(!objects.delete(&*labelled).await.unwrap());
    assert!(api.get_opt("a").await.unwrap().is_none());
    let target = labelled.target(&gadgets());
    assert_eq!((&*target.namespace, &*target.name), ("default", "a"));
}

#[tokio::test(start_paused = true)]
async fn events_of_owned_and_watched_metadata_enqueue_keys() {
    let fixture = fixture().await;
    let owner = create(&fixture.maps(), map("owner")).await;
    let manager = fixture.manager().build().unwrap();
    let (owned, any, watched) = (Lines::default(), Lines::default(), Lines::default());
    manager
        .controller::<ConfigMap>()
        .owns_metadata(secrets())
        .named("owned")
        .state(Arc::clone(&owned))
        .reconcile_requests(crate::log_key);
    manager
        .controller::<ConfigMap>()
        .owns_by_any_reference::<Secret>()
        .named("any")
        .state(Arc::clone(&any))
        .reconcile_requests(crate::log_key);
    manager
        .controller_of_requests("watched")
        .watches_metadata(secrets(), |meta| vec![Key::new("", &meta.name)])
        .resync_every(Duration::from_secs(600))
        .state(Arc::clone(&watched))
        .reconcile_requests(crate::log_key);
    start(manager);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let take = |lines: &Lines| std::mem::take(&mut *lines.lock().unwrap());
    let _ = [&owned, &any, &watched].map(take);
    let secret = |name: &str, controls: bool| {
        let mut secret = Secret::default();
        secret.metadata.name = Some(name.to_owned());
        let set = if controls { secret.controlled_by(&owner) } else { secret.owned_by(&owner) };
        set.unwrap();
        secret
    };
    for (name, controls) in [("a", true), ("b", false)] {
        fixture.secrets().create(&PostParams::default(), &secret(name, controls)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(take(&owned), ["default/owner"], "b is not controlled");
    assert_eq!(take(&any), ["default/owner"; 2]);
    assert_eq!(take(&watched), ["a", "b"]);
    let patch = Patch::Merge(json!({"metadata": {"labels": {"l": "1"}}}));
    fixture.secrets().patch("b", &PatchParams::default(), &patch).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((take(&owned).len(), take(&any).len(), take(&watched).len()), (0, 1, 1));
    tokio::time::sleep(Duration::from_secs(600)).await;
    let mut resynced = take(&watched);
    resynced.sort_unstable();
    assert_eq!(resynced, ["a", "b"]);
    assert!(take(&any).is_empty(), "only one cache is resynced");
}
