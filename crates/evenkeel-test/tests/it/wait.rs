//! Waits: the events that end them, and their errors on a timeout.

use crate::object;
use evenkeel_test::{TIMEOUT, TestServer, WaitError, eventually, eventually_all, eventually_gone};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::json;
use std::time::Duration;

fn value(map: &ConfigMap) -> Option<&str> {
    map.data.as_ref()?.get("value").map(String::as_str)
}

async fn maps() -> Api<ConfigMap> {
    let server = TestServer::start().await.expect("a server");
    Api::default_namespaced(server.client())
}

async fn create(maps: &Api<ConfigMap>, name: &str) {
    let map = object(json!({
        "metadata": {"name": name, "labels": {"app": "a"}}, "data": {"value": "1"},
    }));
    maps.create(&PostParams::default(), &map).await.expect("created");
}

async fn set(maps: &Api<ConfigMap>, name: &str, value: &str) {
    let patch = Patch::Merge(json!({"data": {"value": value}}));
    maps.patch(name, &PatchParams::default(), &patch).await.expect("patched");
}

#[tokio::test(start_paused = true)]
async fn creations_changes_and_deletions_end_a_wait() {
    let maps = maps().await;
    let changes = async {
        create(&maps, "other").await;
        create(&maps, "a").await;
        set(&maps, "a", "2").await;
    };
    let changed = eventually(&maps, "a", |map| value(map) == Some("2"));
    let (changed, ()) = tokio::join!(changed.into_future(), changes);
    assert_eq!(value(&changed.expect("changed")), Some("2"));
    // A condition that already holds needs no event.
    eventually(&maps, "a", |map| value(map) == Some("2")).await.expect("it is so");

    let deletion = async {
        maps.delete("a", &DeleteParams::default()).await.expect("deleted");
    };
    let (gone, ()) = tokio::join!(eventually_gone(&maps, "a").into_future(), deletion);
    gone.expect("gone");
    eventually_gone(&maps, "a").await.expect("it is gone");
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_several_sees_all_that_are_selected() {
    let maps = maps().await;
    let changes = async {
        for name in ["c", "b", "a"] {
            create(&maps, name).await;
        }
        set(&maps, "b", "2").await;
        maps.delete("c", &DeleteParams::default()).await.expect("deleted");
    };
    let values =
        |maps: &[ConfigMap]| maps.iter().filter_map(value).collect::<Vec<_>>() == ["1", "2"];
    let both = eventually_all(&maps, ListParams::default().labels("app=a"), values);
    let (both, ()) = tokio::join!(both.into_future(), changes);
    let names: Vec<_> =
        both.expect("both").into_iter().filter_map(|map| map.metadata.name).collect();
    assert_eq!(names, ["a", "b"]);
    let none = eventually_all(&maps, ListParams::default().labels("app=none"), <[_]>::is_empty);
    assert!(none.await.expect("none").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_wait_outlives_the_watches_that_the_server_ends() {
    let maps = maps().await;
    create(&maps, "a").await;
    let hour = Duration::from_secs(3600);
    let change = async {
        tokio::time::sleep(hour).await;
        set(&maps, "a", "2").await;
    };
    let changed = eventually(&maps, "a", |map| value(map) == Some("2")).within(2 * hour);
    let (changed, ()) = tokio::join!(changed.into_future(), change);
    changed.expect("changed");
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_vain_shows_what_it_saw_last() {
    let maps = maps().await;
    create(&maps, "a").await;
    for (timeout, wait) in [
        (TIMEOUT, eventually(&maps, "a", |map| value(map) == Some("2"))),
        (2 * TIMEOUT, eventually(&maps, "a", |_| false).within(2 * TIMEOUT)),
    ] {
        let error = wait.await.expect_err("in vain");
        let WaitError::Timeout { url, timeout: waited, seen } = &error else { panic!("{error}") };
        assert_eq!((url.as_str(), *waited), ("/api/v1/namespaces/default/configmaps", timeout));
        assert!(seen.contains(r#""value": "1""#), "{seen}");
    }
    assert!(eventually_gone(&maps, "a").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_an_unknown_resource_fails_at_once() {
    let server = TestServer::start().await.expect("a server");
    let kind = GroupVersionKind::gvk("example.com", "v1", "Widget");
    let resource = ApiResource::from_gvk(&kind);
    let widgets: Api<DynamicObject> = Api::all_with(server.client(), &resource);
    let before = server.clock().now();
    let error = eventually(&widgets, "a", |_| true).await.expect_err("refused");
    assert!(matches!(error, WaitError::Watch { .. }), "{error}");
    assert_eq!(server.clock().now(), before);
}
