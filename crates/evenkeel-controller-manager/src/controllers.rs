//! Selection of the enabled controllers, with their options and clients.

use crate::options::{self, Options};
use anyhow::{Context, Result};
use evenkeel_component::{
    connection::{Connection, Shares},
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
use std::sync::Arc;

/// Returns the descriptors of the controllers that `--controllers` enables, and logs the enabled ones that this
/// program lacks.
pub fn enabled_descriptors(options: &Options) -> Vec<Descriptor> {
    let (known, implemented) = (options::known(), descriptors());
    let enabled =
        options.choice.enabled(known.iter().map(|known| (known.name, known.on_by_default)));
    let chosen: Vec<Descriptor> =
        implemented.into_iter().filter(|descriptor| enabled.contains(&descriptor.name)).collect();
    let absent: Vec<&str> =
        enabled.into_iter().filter(|name| !chosen.iter().any(|d| d.name == *name)).collect();
    if !absent.is_empty() {
        tracing::warn!(controllers = absent.join(","), "Enabled controllers are not implemented");
    }
    chosen
}

/// Factor by which a controller exceeds `--kube-api-qps` and `--kube-api-burst`, as upstream's.
pub fn rate_factor(client: &str) -> (f32, u32) {
    match client {
        "namespace-controller" => (20.0, 100),
        "generic-garbage-collector" => (2.0, 2),
        _ => (1.0, 1),
    }
}

/// Returns the options of all controllers from those of the program.
pub fn options(options: &Options) -> Result<evenkeel_controllers::options::Options> {
    let mut controllers = options.controllers.clone();
    controllers.rootcacertpublisher.ca = root_ca(options)?.map(Arc::from);
    let binder = &mut controllers.binder;
    for recycling in [&mut binder.recycle_nfs, &mut binder.recycle_host_path] {
        if let Some(path) = &recycling.template_file {
            recycling.template = Some(pod_template(path)?.into());
        }
    }
    Ok(controllers)
}

/// Reads a recycler pod template, JSON or YAML, as JSON. Its first volume is the one that is replaced.
fn pod_template(path: &str) -> Result<String> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("pv-recycler-pod-template-filepath: cannot read {path}"))?;
    let pod: serde_json::Value = serde_saphyr::from_str(&text)
        .with_context(|| format!("pv-recycler-pod-template-filepath: {path}"))?;
    let volumes = pod["spec"]["volumes"].as_array().map_or(0, Vec::len);
    anyhow::ensure!(volumes > 0, "pod specification ({path}): does not contain any volume(s)");
    Ok(pod.to_string())
}

/// Returns the CA to publish: that of the flag's file, else of the kubeconfig, else of the pod's service account.
fn root_ca(options: &Options) -> Result<Option<String>> {
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

/// Returns the client of the token controller, which starts first and writes with the program's own credentials.
pub(crate) const TOKENS_CLIENT: &str = "tokens-controller";

/// How controllers get their clients. The token controller always has the program's credentials: the tokens of the
/// others may
/// depend on it.
pub(crate) const SHARES: Shares =
    Shares { of: rate_factor, with_programs: |client| client == TOKENS_CLIENT };

/// Everything that this program's controllers are created from.
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
        let client = self.connection.client((1.0, 1));
        let env = Env { client: self.env.client.fenced(fence), ..self.env.clone() };
        let clients = self.connection.clients(fence, tasks, SHARES);
        let (registry, options) = (self.registry.clone(), self.options.clone());
        let context = ControllerContext {
            gates: self.gates.clone(),
            resources: discover(&client).await,
            health: self.health.clone(),
            ..ControllerContext::new(env, clients, tasks.clone(), registry, options)
        };
        ReadyControllers { chosen: self.chosen.clone(), context, client }
    }
}

/// Prepared controllers with their context.
pub(crate) struct ReadyControllers {
    chosen: Vec<Descriptor>,
    context: ControllerContext,
    /// Discovers the server's resources.
    client: Client,
}

impl Ready for ReadyControllers {
    fn start(&self, controller: &'static str) -> Result<Started> {
        let context = &self.context;
        let Some(descriptor) = self.chosen.iter().find(|one| one.name == controller) else {
            return Ok(Started::Never("it is not here".to_owned()));
        };
        match descriptor.unmet(&context.gates, &context.resources) {
            Some(unmet @ Unmet::Gate(_)) => return Ok(Started::Never(unmet.to_string())),
            Some(unmet @ Unmet::Resource(_)) => return Ok(Started::NotYet(unmet.to_string())),
            None => {}
        }
        // A controller may replace this health check by its own.
        context.health.add(controller, || Ok(()));
        context.start(descriptor)?;
        Ok(Started::Yes)
    }

    async fn rediscover(&mut self) {
        self.context.resources = discover(&self.client).await;
    }
}

/// Discovers the server's resources. If that fails, all count as present: controllers wait for missing ones.
async fn discover(client: &Client) -> Resources {
    match client.api_resources().await {
        Ok(found) => Resources::discovered(&found),
        Err(error) => {
            tracing::warn!(%error, "What the API server has cannot be found out");
            Resources::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_agree_with_what_is_known() {
        let known = options::known();
        assert_eq!(known.len(), 49);
        for descriptor in descriptors() {
            let Descriptor { name, aliases, on_by_default, gates, .. } = descriptor;
            let known = known.iter().find(|known| known.name == name).unwrap_or_else(|| {
                panic!("{name} is none of upstream's");
            });
            assert_eq!(known.aliases, aliases, "{name}");
            assert_eq!(known.on_by_default, on_by_default, "{name}");
            assert_eq!(known.gates, gates, "{name}");
        }
    }
}
