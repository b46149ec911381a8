//! Three replicas with 10,000 objects, in virtual time. One replica stops gracefully, and one is killed.

#![expect(clippy::unwrap_used, reason = "the whole binary is tests")]

mod fixture;

use evenkeel_runtime::prelude::*;
use evenkeel_test::{TestServer, TestServerBuilder, eventually};
use fixture::{Fixture, TestVault, external};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, PostParams};
use sharded_operator::{ExternalSecret, Vault as _, operator};
use std::collections::BTreeMap;

const OBJECTS: usize = 10_000;
/// Number of secrets that change in the vault at the same time.
const CHANGES: usize = 1_000;
/// Time after which all objects have been refreshed again.
const REFRESH: Duration = Duration::from_secs(3 * 60);

/// Asserts that each object is ready, and that its Secret has the vault's values.
async fn check(server: &TestServer, vault: &TestVault) {
    let objects = server.api::<ExternalSecret>();
    let objects = objects.list(&ListParams::default()).await.unwrap().items;
    let ready = |object: &&ExternalSecret| {
        let status = object.status.as_ref();
        status.is_some_and(|status| conditions::is_true(&status.conditions, "Ready"))
    };
    assert_eq!(objects.iter().filter(ready).count(), OBJECTS);
    let secrets = server.api::<Secret>();
    let secrets = secrets.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(secrets.len(), OBJECTS);
    for secret in secrets {
        let (name, data) = (secret.metadata.name.unwrap(), secret.data.unwrap());
        let password = vault.password(&format!("shop/{name}"));
        assert_eq!(data["password"].0, password.as_bytes(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_split_ten_thousand_objects_and_take_over() {
    let server = TestServerBuilder::default().crd::<ExternalSecret>().start().await.unwrap();
    let fixture = Fixture::new(&server).await;
    let vault = fixture.vault();
    let mut replicas: Vec<_> = (0..3).map(|number| fixture.start(number, &server)).collect();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let objects = server.api::<ExternalSecret>();
    for n in 0..OBJECTS {
        objects.create(&PostParams::default(), &external(n)).await.unwrap();
    }
    fixture.until_reads(OBJECTS).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    check(&server, &vault).await;
    let by_object = fixture.take_writers();
    let mut by_replica: BTreeMap<usize, usize> = BTreeMap::new();
    for (object, writers) in &by_object {
        assert_eq!(writers.len(), 1, "{object} is written by {writers:?}");
        *by_replica.entry(writers[0]).or_default() += 1;
    }
    assert_eq!(by_object.len(), OBJECTS);
    let fair = |n: &usize| (OBJECTS / 4..OBJECTS / 2).contains(n);
    assert!(by_replica.len() == 3 && by_replica.values().all(fair), "{by_replica:?}");

    // One replica stops gracefully, in the middle of a refresh.
    vault.change(0..CHANGES);
    fixture.until_reads(OBJECTS / 5).await;
    replicas.remove(0).stop().await;
    tokio::time::sleep(REFRESH).await;
    check(&server, &vault).await;

    // One replica is killed in the middle of a refresh: its requests get no more responses.
    vault.change(CHANGES..2 * CHANGES);
    fixture.until_reads(OBJECTS / 5).await;
    replicas.remove(0).kill();
    tokio::time::sleep(REFRESH).await;
    check(&server, &vault).await;
    // A replica applies the Secret of each object that it takes over.
    let by_object = fixture.take_writers();
    assert!(by_object.len() > OBJECTS / 2);
    for (object, writers) in &by_object {
        assert_eq!(writers.last(), Some(&2), "{object} is written by {writers:?}");
    }
    fixture.assert_never_two_at_once();
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_the_vault_lacks_follows_later() {
    let server = TestServerBuilder::default().crd::<ExternalSecret>().start().await.unwrap();
    let vault = TestVault::default();
    let read = vault.clone();
    let running = server.run(move |kube, setup| operator(kube, setup, read.clone()));
    let objects = server.api::<ExternalSecret>();
    let mut object = external(1);
    object.spec.key = "absent".to_owned();
    objects.create(&PostParams::default(), &object).await.unwrap();
    let reason = |object: &ExternalSecret| {
        let status = object.status.as_ref()?;
        Some(conditions::find(&status.conditions, "Ready")?.reason.clone())
    };
    let name = object.metadata.name.unwrap();
    eventually(&objects, &name, |o| reason(o).as_deref() == Some("NotFound")).await.unwrap();
    assert_eq!(vault.read("absent").await.unwrap(), None);
    vault.put("absent", "found");
    let synced = eventually(&objects, &name, |o| reason(o).as_deref() == Some("Synced"));
    synced.within(REFRESH).await.unwrap();

    object.spec.key = "../etc/passwd".to_owned();
    object.metadata.name = Some("outside".to_owned());
    let refused = objects.create(&PostParams::default(), &object).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.is_invalid()));
    running.stop().await.unwrap();
}
