//! Operator of external secrets: it maintains a Secret for each `ExternalSecret`, with the value that a vault holds under the
//! object's key.
//!
//! Reads of the vault are slow, so all replicas work: each replica reads the vault for its shard of the objects.

mod resource;
mod vault;

use evenkeel_runtime::prelude::*;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::ResourceExt as _;
pub use resource::{ExternalSecret, ExternalSecretSpec, ExternalSecretStatus};
pub use vault::{Entries, Folder, Vault, VaultError};

/// Label of the operator's Secrets. The operator caches no other Secrets.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "external-secrets");

/// Number of shards: several times the number of replicas, so that all replicas have about the same load.
const SHARDS: u32 = 32;

/// Number of objects that one replica reconciles concurrently.
const CONCURRENCY: usize = 16;

/// Builds the operator.
///
/// # Errors
/// Fails if the manager cannot be built.
pub fn operator<V: Vault>(kube: kube::Client, setup: Setup, vault: V) -> anyhow::Result<Manager> {
    let own_secrets = format!("{}={}", MANAGED_BY.0, MANAGED_BY.1);
    let manager = Manager::builder(kube)
        .component("external-secrets")
        .setup(setup)
        // Most objects are in few namespaces, so whole names are hashed.
        .sharding(
            Sharding::new("external-secrets", SHARDS)
                .by(ShardBy::Object)
                .sharded_watch::<ExternalSecret>(),
        )
        .cache(CacheOptions::<Secret>::default().labels(&own_secrets))
        .probes(8081)
        .metrics(Metrics::secure(8443))
        .build()?;
    manager
        .controller::<ExternalSecret>()
        .when(generation_changed())
        .owns::<Secret>()
        .max_concurrent(CONCURRENCY)
        .timeout(Duration::from_secs(60))
        .state(vault)
        .reconcile(reconcile);
    Ok(manager)
}

async fn reconcile<V: Vault>(external: Arc<ExternalSecret>, cx: Context<V>) -> Result<Outcome> {
    let spec = &external.spec;
    let found = cx.state().read(&spec.key).await?;
    let condition = match &found {
        Some(entries) => {
            cx.apply(&secret(&external, entries)?).await?;
            let message = format!("the Secret has {} entries", entries.len());
            conditions::of(&*external, "Ready", true, "Synced", message)
        }
        // The Secret stays unchanged, because programs may still need it.
        None => {
            let message = format!("the vault has no secret {}", spec.key);
            conditions::of(&*external, "Ready", false, "NotFound", message)
        }
    };
    let entries = found.map_or(0, |entries| entries.len());
    let status = cx.status(&*external).set(|status| status.entries = entries).condition(condition);
    status.patch_if_changed().await?;
    Ok(Outcome::again(Duration::from_secs(60 * u64::from(spec.refresh_minutes))))
}

/// Returns the Secret of an external secret, which has its name.
fn secret(external: &ExternalSecret, entries: &Entries) -> Result<Secret> {
    let entries = entries.iter();
    let data = entries.map(|(name, value)| (name.clone(), ByteString(value.clone().into_bytes())));
    let mut secret = Secret { data: Some(data.collect()), ..Secret::default() };
    secret.metadata.name = Some(external.name_any());
    secret.metadata.labels = Some([(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned())].into());
    secret.controlled_by(external)?;
    Ok(secret)
}
