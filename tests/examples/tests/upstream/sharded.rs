//! Two replicas of the operator of external secrets, of which one stops.

use crate::{Running, TIMEOUT, define, until};
use evenkeel_runtime::{clock::Clock, prelude::*};
use evenkeel_test::eventually_all;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, CustomResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{json, to_value};
use sharded_operator::{Entries, ExternalSecret, ExternalSecretSpec, Vault, VaultError, operator};
use std::sync::atomic::{AtomicUsize, Ordering};

const OBJECTS: usize = 40;

/// Vault of one replica whose secrets have their key as password. It counts reads.
#[derive(Clone, Default)]
struct KeyVault(Arc<AtomicUsize>);

impl Vault for KeyVault {
    async fn read(&self, key: &str) -> Result<Option<Entries>, VaultError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Some([("password".to_owned(), key.to_owned())].into()))
    }
}

/// Waits until each object has a Secret with the password of its key in this folder of the vault.
async fn synced(kube: &Client, folder: &str) {
    let secrets: Api<Secret> = Api::default_namespaced(kube.clone());
    let labels = ListParams::default().labels("app.kubernetes.io/managed-by=external-secrets");
    let is_synced = |secrets: &[Secret]| {
        let has_password = |secret: &Secret| {
            let key = format!("{folder}/{}", secret.metadata.name.as_deref().unwrap_or_default());
            secret.data.as_ref().is_some_and(|data| data["password"].0 == key.as_bytes())
        };
        secrets.len() == OBJECTS && secrets.iter().all(has_password)
    };
    eventually_all(&secrets, labels, is_synced).within(TIMEOUT).await.unwrap();
}

pub(crate) async fn replicas_split_objects_and_take_over(kube: &Client, of_operator: &Client) {
    define(kube, to_value(ExternalSecret::crd()).unwrap()).await;
    let vaults = [KeyVault::default(), KeyVault::default()];
    let [first, second] = ["a", "b"].map(|name| {
        let setup = Setup::simulated(Clock::system(), &format!("external-secrets-{name}"));
        let vault = &vaults[usize::from(name == "b")];
        Running::start(operator(of_operator.clone(), setup, vault.clone()).unwrap())
    });
    let objects: Api<ExternalSecret> = Api::default_namespaced(kube.clone());
    for number in 0..OBJECTS {
        let name = format!("secret-{number}");
        let spec = ExternalSecretSpec { key: format!("first/{name}"), refresh_minutes: 60 };
        objects.create(&PostParams::default(), &ExternalSecret::new(&name, spec)).await.unwrap();
    }
    synced(kube, "first").await;
    let move_to = async |folder: &str| {
        for number in 0..OBJECTS {
            let name = format!("secret-{number}");
            let key = Patch::Merge(json!({"spec": {"key": format!("{folder}/{name}")}}));
            objects.patch(&name, &PatchParams::default(), &key).await.unwrap();
        }
        synced(kube, folder).await;
    };
    let reads = || vaults.each_ref().map(|vault| vault.0.load(Ordering::SeqCst));
    // At first, one replica may have all shards.
    until("both replicas work", async || {
        let before = reads();
        move_to(&format!("after-{}", before[0] + before[1])).await;
        reads().iter().zip(before).all(|(reads, before)| *reads > before)
    })
    .await;
    first.stop().await;
    let [before, _] = reads();
    move_to("last").await;
    assert_eq!(reads()[0], before, "a replica that has stopped reads nothing");
    second.stop().await;
}
