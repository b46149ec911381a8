//! Clusters of the cluster inventory: ClusterProfiles, with kubeconfigs in Secrets beside them.

use super::{connect::Connector, engage::Clusters, provider::ClusterProvider};
use crate::{
    cache::Full,
    controller::{Error, Outcome, Request},
    manager::Manager,
    operator::{Context, Result},
    plan::Key,
};
use evenkeel_api::{Kind, View as _};
use k8s_openapi::api::core::v1::Secret;
use kube::{ResourceExt as _, api::DynamicObject, config::Kubeconfig};

/// Kind of the profiles.
const PROFILE: Kind =
    Kind::new("multicluster.x-k8s.io", "v1alpha1", "ClusterProfile", "clusterprofiles", true);

/// Label of a Secret with the name of the program that uses it.
///
/// In multicluster-runtime: `SecretLabelKeyClusterInventoryConsumer`.
const CONSUMER: &str = "x-k8s.io/cluster-inventory-consumer";

/// Label of a Secret with the name of its profile.
///
/// In multicluster-runtime: `SecretLabelKeyClusterProfile`.
const PROFILE_OF_SECRET: &str = "x-k8s.io/cluster-profile";

/// Key of the kubeconfig in a Secret's data.
///
/// In multicluster-runtime: `SecretDataKeyKubeConfig`.
const KEY: &str = "Config";

/// Clusters of the ClusterProfiles of the host (`multicluster.x-k8s.io/v1alpha1`, the cluster inventory API). A cluster has the
/// name `NAMESPACE/NAME` of its profile.
///
/// The kubeconfig is in the key `Config` of a Secret in the namespace of the profile. The Secret has the labels
/// `x-k8s.io/cluster-inventory-consumer` with the name of the consumer, and `x-k8s.io/cluster-profile` with the name of the
/// profile. The kubeconfig may name neither a file nor a command, as with [`SecretClusters`](super::SecretClusters).
///
/// A cluster is engaged once its condition `ControlPlaneHealthy` is true. After that, it is left only when its profile is
/// deleted.
///
/// ```
/// use evenkeel_runtime::{clusters::ProfileClusters, prelude::*};
///
/// # fn add(manager: &Manager) {
/// manager.clusters(ProfileClusters::of_consumer("webapp"), |cluster| {
///     // The controllers of a cluster.
/// });
/// # }
/// ```
///
/// In multicluster-runtime: `clusterinventoryapi.Provider` with its strategy `Secret`.
#[doc(alias("ClusterProfile", "clusterinventoryapi.Provider"))]
#[must_use = "a provider does nothing until a manager takes it"]
pub struct ProfileClusters {
    consumer: String,
    connector: Connector,
}

impl ProfileClusters {
    /// Returns the provider of the clusters that have a Secret for this consumer.
    pub fn of_consumer(consumer: &str) -> Self {
        Self { consumer: consumer.to_owned(), connector: Connector::default() }
    }

    /// Sets the function that connects to the cluster of a kubeconfig, for tests and tunnels.
    pub fn connect(
        self,
        connect: impl Fn(&Kubeconfig) -> Result<kube::Client> + Send + Sync + 'static,
    ) -> Self {
        Self { connector: Connector::of(connect), ..self }
    }
}

impl ClusterProvider for ProfileClusters {
    fn start(self, host: &Manager, clusters: Clusters) {
        let caches = &host.env().caches;
        let labels = format!("{CONSUMER}={},{PROFILE_OF_SECRET}", self.consumer);
        let secrets = caches.selected_in::<Full<Secret>>(None, &labels);
        let by_profile = secrets.index("cluster-profile", |secret, key| {
            if let Some(profile) = profile_of(secret) {
                let namespace = secret.namespace().unwrap_or_default();
                key(&Key::new(&namespace, profile).to_string());
            }
        });
        let profiles = caches.dynamic(PROFILE);
        let connector = self.connector;
        let controller = host.controller_of_dynamic(PROFILE).named("profile-clusters");
        let controller = controller.watches_cache(&secrets, |secret: &Full<Secret>| {
            let namespace = secret.namespace().unwrap_or_default();
            profile_of(secret).map(|profile| Key::new(&namespace, profile)).into_iter().collect()
        });
        controller.max_concurrent(4).reconcile_requests(move |request: Request, _: Context| {
            let (connector, clusters) = (connector.clone(), clusters.clone());
            let Key { namespace, name } = &request.key;
            let profile = profiles.get(namespace, name).filter(|it| !it.meta().deleting());
            let of_profile = by_profile.get(&request.key.to_string());
            let key = request.key.clone();
            async move {
                let cluster = key.to_string();
                let secrets: Vec<&Secret> = of_profile.iter().map(|secret| &***secret).collect();
                let profile = profile.as_deref().map(|profile| &**profile);
                let is_engaged = clusters.is_engaged(&cluster);
                match decide(profile, &secrets, &key.name, is_engaged).map_err(Error::terminal)? {
                    Decision::Leave => clusters.leave(&cluster),
                    Decision::Wait => {}
                    Decision::Engage(secret) => {
                        connector.engage(&clusters, &cluster, secret, KEY).await?;
                    }
                }
                Ok(Outcome::Settled)
            }
        });
    }
}

/// Action on the cluster of a profile.
#[derive(Debug, PartialEq)]
enum Decision<'s> {
    Leave,
    /// Until the next change.
    Wait,
    /// The cluster is engaged with the kubeconfig of this Secret.
    Engage(&'s Secret),
}

/// Number of Secrets that is not one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found} Secrets have the label {PROFILE_OF_SECRET}={profile}: one has the kubeconfig")]
struct SecretCount {
    profile: String,
    found: usize,
}

/// Decides about the cluster of a profile, which may not exist. `secrets` are the consumer's Secrets in the profile's
/// namespace.
fn decide<'s>(
    profile: Option<&DynamicObject>,
    secrets: &[&'s Secret],
    name: &str,
    is_engaged: bool,
) -> Result<Decision<'s>, SecretCount> {
    let Some(profile) = profile else { return Ok(Decision::Leave) };
    if !is_engaged && !is_healthy(profile) {
        return Ok(Decision::Wait);
    }
    let of_profile: Vec<&'s Secret> =
        secrets.iter().copied().filter(|secret| profile_of(secret) == Some(name)).collect();
    match of_profile[..] {
        [secret] => Ok(Decision::Engage(secret)),
        _ => Err(SecretCount { profile: name.to_owned(), found: of_profile.len() }),
    }
}

fn profile_of(secret: &Secret) -> Option<&str> {
    secret.metadata.labels.as_ref()?.get(PROFILE_OF_SECRET).map(String::as_str)
}

/// Returns whether the control plane of a cluster is healthy.
///
/// In multicluster-runtime: the default of `IsReady`.
fn is_healthy(profile: &DynamicObject) -> bool {
    let conditions = profile.data.pointer("/status/conditions").and_then(|all| all.as_array());
    conditions.into_iter().flatten().any(|condition| {
        condition["type"] == "ControlPlaneHealthy" && condition["status"] == "True"
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn profile(status: &str) -> DynamicObject {
        serde_json::from_value(json!({
            "metadata": {"name": "east", "namespace": "fleet"},
            "status": {"conditions": [
                {"type": "Joined", "status": "True"},
                {"type": "ControlPlaneHealthy", "status": status},
            ]},
        }))
        .unwrap()
    }

    fn secret(profile: &str) -> Secret {
        let labels = json!({(PROFILE_OF_SECRET): profile});
        serde_json::from_value(json!({"metadata": {"labels": labels}})).unwrap()
    }

    #[test]
    fn a_healthy_cluster_is_engaged_and_left_with_its_profile() {
        let (healthy, ill) = (profile("True"), profile("False"));
        let (east, west) = (secret("east"), secret("west"));
        let both = [&west, &east];
        let count = |found| Err(SecretCount { profile: "east".to_owned(), found });
        let table = [
            (None, &both[..], false, Ok(Decision::Leave)),
            (None, &both, true, Ok(Decision::Leave)),
            (Some(&ill), &both, false, Ok(Decision::Wait)),
            (Some(&ill), &both, true, Ok(Decision::Engage(&east))),
            (Some(&healthy), &both, false, Ok(Decision::Engage(&east))),
            (Some(&healthy), &[&west], false, count(0)),
            (Some(&healthy), &[&east, &east], false, count(2)),
            (Some(&ill), &[], false, Ok(Decision::Wait)),
        ];
        for (profile, secrets, is_engaged, wanted) in table {
            let decided = decide(profile, secrets, "east", is_engaged);
            assert_eq!(decided, wanted, "{profile:?} {}", secrets.len());
        }
    }
}
