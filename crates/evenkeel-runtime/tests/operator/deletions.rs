//! Deletions of an object with a finalizer, and deletions by a reconcile.

use crate::{Lines, create, fixture, map, start};
use evenkeel_runtime::{controller, prelude::*};
use evenkeel_test::{eventually, eventually_gone};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn a_predicate_does_not_hide_a_deletion_from_a_finalizer() {
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    manager
        .controller::<ConfigMap>()
        .when(generation_changed().or(labels_changed()))
        .finalizer("example.com/outside", async |_: Arc<ConfigMap>, _: Context| Ok(()))
        .reconcile(async |_: Arc<ConfigMap>, _: Context| Ok(Outcome::Settled));
    start(manager);
    let maps = fixture.maps();
    create(&maps, map("web")).await;
    eventually(&maps, "web", |map| !map.finalizers().is_empty()).await.unwrap();
    maps.delete("web", &DeleteParams::default()).await.unwrap();
    eventually_gone(&maps, "web").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_created_again_after_its_deletion_holds_no_key_up() {
    let fixture = fixture().await;
    let manager = fixture.manager().build().unwrap();
    let (passes, others) = (Lines::default(), fixture.secrets());
    let desired: Secret =
        serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "default"}}))
            .unwrap();
    others.create(&PostParams::default(), &desired).await.unwrap();
    let (log, without_uid) = (Arc::clone(&passes), desired.clone());
    let controller = manager.controller_of_requests("deleter").reads::<Secret>();
    let controller =
        controller.reconcile_requests(move |request: controller::Request, cx: Context| {
            let (log, others, secret) = (Arc::clone(&log), others.clone(), without_uid.clone());
            async move {
                log.lock().unwrap().push(request.key.name.to_string());
                if &*request.key.name == "first" {
                    assert!(cx.delete(&secret).await?);
                    others.create(&PostParams::default(), &secret).await?;
                }
                Ok(Outcome::Settled)
            }
        });
    start(manager);
    let pause = || tokio::time::sleep(Duration::from_secs(1));
    pause().await;
    for _ in 0..2 {
        controller.enqueue(Key::new("", "first"));
        pause().await;
    }
    assert_eq!(*passes.lock().unwrap(), ["first", "first"], "the old object is gone");
}
