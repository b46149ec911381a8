//! The enabled controllers, with the options, clients and context from which they are created.

use crate::options::{self, Options};
use anyhow::{Context, Result};
use evenkeel_component::{
    connection::{ClientSettings, Connection, RateFactors},
    leading::{Controllers, Ready, Started},
};
use evenkeel_controllers::{
    needs::{Gates, Resources, Unmet},
    wiring::descriptor::{ControllerContext, Descriptor, descriptors},
};
use evenkeel_runtime::{
    client::{Client, LeaderFence},
    controller::Env,
    health::Health,
    tasks::Tasks,
};
use kube::config::Kubeconfig;
use prometheus::Registry;
use std::{collections::BTreeSet, sync::Arc};

/// Returns the descriptors of the controllers that `--controllers` enables. Logs the enabled controllers that
/// are not implemented.
pub fn enabled_descriptors(options: &Options) -> Vec<Descriptor> {
    let (descriptors, missing) = split_enabled(options);
    if !missing.is_empty() {
        tracing::warn!(controllers = missing.join(","), "Enabled controllers are not implemented");
    }
    descriptors
}

/// Returns the controllers that `--controllers` enables: the descriptors of those that are implemented, and the names
/// of the others.
pub fn split_enabled(options: &Options) -> (Vec<Descriptor>, Vec<&'static str>) {
    let (known, implemented) = (options::known_controllers(), descriptors());
    let defaults = known.iter().map(|known| (known.name, known.on_by_default));
    let enabled = options.choice.enabled(defaults);
    let descriptors: Vec<Descriptor> =
        implemented.into_iter().filter(|descriptor| enabled.contains(&descriptor.name)).collect();
    let is_missing = |name: &&str| !descriptors.iter().any(|descriptor| descriptor.name == *name);
    let missing = enabled.into_iter().filter(is_missing).collect();
    (descriptors, missing)
}

/// Returns the feature gates. A gate that v1.37 does not know has become generally available, so it is on.
pub fn gates(options: &Options) -> Gates {
    let gates = options.gates.clone();
    let known: BTreeSet<&'static str> = gates.iter().map(|(name, ..)| name).collect();
    Gates::new(move |gate| !known.contains(gate) || gates.enabled(gate))
}

/// Returns the factors by which a controller's client multiplies `--kube-api-qps` and `--kube-api-burst`.
///
/// Upstream: `newNamespaceController` and `newGarbageCollectorController`, which change the client's QPS and Burst.
pub fn rate_factors(client: &str) -> RateFactors {
    match client {
        "namespace-controller" => RateFactors { qps: 20.0, burst: 100 },
        "generic-garbage-collector" => RateFactors { qps: 2.0, burst: 2 },
        _ => RateFactors::ONE,
    }
}

/// Returns the options of the controllers, including the content of the files that flags name. These are the root
/// CA and the pod templates of the PersistentVolume recycler.
///
/// # Errors
/// Fails if one of the files cannot be read or parsed.
pub fn options(options: &Options) -> Result<evenkeel_controllers::options::Options> {
    let mut controllers = options.controllers.clone();
    controllers.rootcacertpublisher.ca = read_root_ca(options)?.map(Arc::from);
    let binder = &mut controllers.binder;
    for recycler in [&mut binder.recycle_nfs, &mut binder.recycle_host_path] {
        if let Some(path) = &recycler.template_file {
            recycler.template = Some(recycler_pod_template(path)?.into());
        }
    }
    Ok(controllers)
}

/// Reads the pod template of the recycler (JSON or YAML), and returns it as JSON. The template needs a volume:
/// the recycler replaces the first one with the PersistentVolume.
fn recycler_pod_template(path: &str) -> Result<String> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("pv-recycler-pod-template-filepath: cannot read {path}"))?;
    let pod: serde_json::Value = serde_saphyr::from_str(&text)
        .with_context(|| format!("pv-recycler-pod-template-filepath: {path}"))?;
    let volumes = pod["spec"]["volumes"].as_array().map_or(0, Vec::len);
    anyhow::ensure!(volumes > 0, "pod specification ({path}): does not contain any volume(s)");
    Ok(pod.to_string())
}

/// Returns the CA bundle (PEM) for the ConfigMap `kube-root-ca.crt` of every namespace. It comes from `--root-ca-file`,
/// or else from the kubeconfig's cluster, or else from the pod's service account. Returns `None` if there is none.
fn read_root_ca(options: &Options) -> Result<Option<String>> {
    let read = |path: &str| {
        std::fs::read_to_string(path).with_context(|| format!("--root-ca-file: cannot read {path}"))
    };
    if let Some(path) = &options.root_ca {
        return read(path).map(Some);
    }
    let Some(path) = &options.client.kubeconfig else {
        return Ok(
            std::fs::read_to_string("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt").ok()
        );
    };
    let kubeconfig = Kubeconfig::read_from(path).with_context(|| format!("kubeconfig {path}"))?;
    let context = kubeconfig
        .contexts
        .iter()
        .find(|context| Some(&context.name) == kubeconfig.current_context.as_ref());
    let name = context.and_then(|context| context.context.as_ref()).map(|context| &context.cluster);
    let cluster = kubeconfig.clusters.iter().find(|cluster| Some(&cluster.name) == name);
    let Some(cluster) = cluster.and_then(|cluster| cluster.cluster.as_ref()) else {
        return Ok(None);
    };
    if let Some(data) = &cluster.certificate_authority_data {
        use base64::Engine;
        let pem = base64::engine::general_purpose::STANDARD
            .decode(data)
            .with_context(|| format!("kubeconfig {path}: certificate-authority-data"))?;
        return Ok(Some(
            String::from_utf8(pem)
                .with_context(|| format!("kubeconfig {path}: certificate-authority-data"))?,
        ));
    }
    cluster.certificate_authority.as_deref().map(read).transpose()
}

/// Name of the token controller's client.
pub(crate) const TOKENS_CLIENT: &str = "tokens-controller";

/// Differences between the controllers' clients. The token controller always uses the program's credentials, because it
/// creates the tokens that other controllers may authenticate with.
pub(crate) const CLIENT_SETTINGS: ClientSettings =
    ClientSettings { rate_factors, uses_program_credentials: |client| client == TOKENS_CLIENT };

/// Parts that the controllers are created from: connection, options, gates and registries.
pub(crate) struct KubeControllers {
    pub(crate) connection: Connection,
    pub(crate) env: Env,
    pub(crate) chosen: Vec<Descriptor>,
    pub(crate) options: evenkeel_controllers::options::Options,
    pub(crate) gates: Gates,
    pub(crate) registry: Registry,
    pub(crate) health: Health,
}

impl Controllers for KubeControllers {
    type Ready = ReadyControllers;

    async fn ready(&self, fence: &LeaderFence, tasks: &Tasks) -> ReadyControllers {
        let client = self.connection.client(RateFactors::ONE);
        let env = Env { client: self.env.client.fenced(fence), ..self.env.clone() };
        let clients = self.connection.clients(fence, tasks, CLIENT_SETTINGS);
        let (registry, options) = (self.registry.clone(), self.options.clone());
        let context = ControllerContext {
            gates: self.gates.clone(),
            resources: discover(&client).await,
            ..ControllerContext::new(env, clients, tasks.clone(), registry, options)
        };
        ReadyControllers {
            chosen: self.chosen.clone(),
            context,
            client,
            health: self.health.clone(),
        }
    }
}

/// Enabled controllers of one lease that are ready to start.
pub(crate) struct ReadyControllers {
    chosen: Vec<Descriptor>,
    context: ControllerContext,
    /// Client for discovery.
    client: Client,
    /// Health checks. A controller that started has one.
    health: Health,
}

impl Ready for ReadyControllers {
    fn start(&self, controller: &'static str) -> Result<Started> {
        let context = &self.context;
        let Some(descriptor) = self.chosen.iter().find(|descriptor| descriptor.name == controller)
        else {
            return Ok(Started::Never("not implemented".to_owned()));
        };
        match context.start(descriptor)? {
            Some(unmet @ (Unmet::Gate(_) | Unmet::Options(_))) => {
                Ok(Started::Never(unmet.to_string()))
            }
            Some(unmet @ Unmet::Resource(_)) => Ok(Started::NotYet(unmet.to_string())),
            None => {
                self.health.add(controller, || Ok(()));
                Ok(Started::Yes)
            }
        }
    }

    async fn rediscover(&mut self) {
        self.context.resources = discover(&self.client).await;
    }
}

/// Discovers the API server's resources. If that fails, all resources count as present: the controllers start, and
/// their watches wait for missing resources.
async fn discover(client: &Client) -> Resources {
    match client.api_resources().await {
        Ok(found) => Resources::discovered(&found),
        Err(error) => {
            tracing::warn!(%error, "Cannot discover the resources of the API server");
            Resources::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_match_the_known_controllers() {
        let known = options::known_controllers();
        assert_eq!(known.len(), 49);
        for descriptor in descriptors() {
            let Descriptor { name, aliases, on_by_default, gates, .. } = descriptor;
            let known = known.iter().find(|known| known.name == name).unwrap_or_else(|| {
                panic!("{name} is not a controller of upstream");
            });
            assert_eq!(known.aliases, aliases, "{name}");
            assert_eq!(known.on_by_default, on_by_default, "{name}");
            assert_eq!(known.gates, gates, "{name}");
        }
    }
}
