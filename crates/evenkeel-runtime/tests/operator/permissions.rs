//! Permissions that a manager derives from its controllers, under RBAC.

#[path = "../../../../examples/permissions.rs"]
mod manifest;

use crate::{copy, create, map};
use evenkeel_runtime::{
    manager::BuildError,
    permissions::{self, Permissions},
    prelude::*,
};
use evenkeel_test::{TestServer, eventually_gone};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kube::Api;

/// Copies ConfigMaps into Secrets, with a finalizer.
fn operator(kube: kube::Client, setup: Setup) -> Result<Manager, BuildError> {
    let manager = Manager::builder(kube)
        .component("copier")
        .setup(setup)
        .leader_election_id("copier")
        .cache(CacheOptions::<ConfigMap>::in_namespace("default"))
        .build()?;
    manager
        .controller::<ConfigMap>()
        .owns::<Secret>()
        .writes_only::<Secret>(&["create", "patch"])
        .finalizer("example.com/copier", async |_, _: Context| Ok(()))
        .reconcile(copy);
    Ok(manager)
}

/// Runs the operator with only these permissions. Returns whether the copy was written, and its event.
async fn run(permissions: &Permissions) -> [bool; 2] {
    let server = TestServer::start().await.unwrap();
    let groups =
        manifest::grant(&server.client(), &permissions.manifest("copier"), "default").await;
    let kube = server.client_as("system:serviceaccount:default:copier", groups);
    let running = server.run(move |_, setup| operator(kube.clone(), setup));
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    create(&maps, map("web")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let secrets: Api<Secret> = Api::default_namespaced(server.client());
    let is_copied = secrets.get_opt("web").await.unwrap().is_some();
    if is_copied {
        maps.delete("web", &Default::default()).await.unwrap();
        eventually_gone(&maps, "web").await.unwrap();
    }
    let events: Api<Event> = Api::default_namespaced(server.client());
    let events = events.list(&Default::default()).await.unwrap().items;
    let has_event = events.iter().any(|event| event.reason.as_deref() == Some("Copied0"));
    drop(running);
    [is_copied, has_event]
}

#[tokio::test(start_paused = true)]
async fn an_operator_works_with_exactly_the_permissions_of_its_declarations() {
    let permissions = permissions::of(operator).unwrap();
    assert_eq!(run(&permissions).await, [true, true]);
    let missing = [
        // If watches are refused, the cache lists repeatedly; a list may also be a streaming watch.
        ("", "configmaps", &["list", "watch"][..], [false, false]),
        ("", "configmaps", &["patch"], [false, false]),
        ("", "configmaps/finalizers", &["update"], [true, true]),
        ("", "secrets", &["list", "watch"], [false, false]),
        ("", "secrets", &["patch"], [false, false]),
        ("", "secrets", &["create"], [false, false]),
        ("", "events", &["create"], [true, false]),
        ("coordination.k8s.io", "leases", &["create"], [false, false]),
        ("coordination.k8s.io", "leases", &["get"], [false, false]),
    ];
    for (group, resource, verbs, expected) in missing {
        let mut fewer = permissions.clone();
        for verb in verbs {
            let before = fewer.clone();
            fewer = fewer.without(group, resource, verb);
            assert_ne!(fewer, before, "{verb} {resource} is among the permissions");
        }
        assert_eq!(run(&fewer).await, expected, "without {verbs:?} of {resource}");
    }
}

#[tokio::test(start_paused = true)]
async fn permissions_follow_what_is_declared() {
    let server = TestServer::start().await.unwrap();
    let setup = Setup::simulated(server.clock().clone(), "me");
    let manager =
        Manager::builder(server.client()).setup(setup).metrics(Metrics::secure(0)).build().unwrap();
    let has = |permissions: &Permissions, resource: &str, verb: &str| {
        let verb = verb.to_owned();
        permissions
            .rules()
            .iter()
            .any(|rule| rule.resource == resource && rule.verbs.contains(&verb))
    };
    let before = manager.permissions();
    assert!(
        has(&before, "tokenreviews", "create") && has(&before, "subjectaccessreviews", "create")
    );
    assert!(!has(&before, "configmaps", "get") && !has(&before, "leases", "get"));
    let gadgets = Kind::new("example.com", "v1", "Gadget", "gadgets", true);
    manager
        .controller::<ConfigMap>()
        .reads::<Secret>()
        .owns_metadata(gadgets)
        .series_events()
        .reconcile(async |_, _: Context| Ok(Outcome::Settled));
    let after = manager.permissions();
    let table = [
        ("configmaps", "watch", true),
        ("configmaps", "patch", false),
        ("configmaps/status", "patch", true),
        ("configmaps/finalizers", "update", true),
        ("secrets", "list", true),
        ("secrets", "create", false),
        ("gadgets", "delete", true),
        ("events", "patch", true),
    ];
    for (resource, verb, expected) in table {
        assert_eq!(has(&after, resource, verb), expected, "{verb} {resource}");
    }
    let events = after.rules().into_iter().find(|rule| rule.resource == "events").unwrap();
    assert_eq!(events.group, "events.k8s.io");
}
