//! The sharded operator under faults, one at each of its writes.

use evenkeel_runtime::prelude::*;
use evenkeel_test::{Exploration, TestServerBuilder};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use sharded_operator::{Entries, ExternalSecret, ExternalSecretSpec, Vault, VaultError, operator};

/// Vault in which each secret's password is its key.
struct KeyVault;

impl Vault for KeyVault {
    async fn read(&self, key: &str) -> Result<Option<Entries>, VaultError> {
        Ok(Some([("password".to_owned(), key.to_owned())].into()))
    }
}

#[test]
fn the_operator_survives_a_fault_at_any_write() {
    Exploration::new(|kube, setup| operator(kube, setup, KeyVault))
        .server(TestServerBuilder::crd::<ExternalSecret>)
        .replicas(2)
        .seeds(1)
        .silence(Duration::from_secs(60)) // Each replica reads all Leases every two seconds.
        .max_runs(24) // EVENKEEL_RUNS=1000 does more.
        .run(async |user| {
            let objects = user.api::<ExternalSecret>();
            for name in ["database", "queue", "mail"] {
                let spec = ExternalSecretSpec { key: name.to_owned(), refresh_minutes: 60 };
                let object = ExternalSecret::new(name, spec);
                objects.create(&PostParams::default(), &object).await?;
            }
            user.settle().await;
            let moved = Patch::Merge(json!({"spec": {"key": "shop/database"}}));
            objects.patch("database", &PatchParams::default(), &moved).await?;
            user.settle().await;
            let secret = user.api::<Secret>().get("database").await?;
            assert_eq!(secret.data.expect("data")["password"].0, b"shop/database");
            let status = objects.get("database").await?.status.expect("a status");
            assert!(conditions::is_true(&status.conditions, "Ready"));
            Ok(())
        });
}
