//! Which controllers run, with which options, and their start.

use crate::options::{self, Options};
use anyhow::{Context, Result};
use evenkeel_controllers::descriptor::{ControllerContext, Descriptor, StartError, descriptors};
use kube::config::Kubeconfig;
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// The controllers that `--controllers` asks for and that are here. The others are told in one line.
pub fn chosen(options: &Options) -> Vec<Descriptor> {
    let (known, here) = (options::known(), descriptors());
    let asked = options.choice.enabled(known.iter().map(|known| (known.name, known.on_by_default)));
    let chosen: Vec<Descriptor> =
        here.into_iter().filter(|descriptor| asked.contains(&descriptor.name)).collect();
    let absent: Vec<&str> =
        asked.into_iter().filter(|name| !chosen.iter().any(|d| d.name == *name)).collect();
    if !absent.is_empty() {
        tracing::warn!(controllers = absent.join(","), "These controllers are not here yet");
    }
    chosen
}

/// How many times `--kube-api-qps` and `--kube-api-burst` a controller may use; upstream's factors.
pub fn share(client: &str) -> (f32, u32) {
    match client {
        "namespace-controller" => (20.0, 100),
        "generic-garbage-collector" => (2.0, 2),
        _ => (1.0, 1),
    }
}

/// Options of the controllers, from the program's.
pub fn options(options: &Options) -> Result<evenkeel_controllers::options::Options> {
    let mut controllers = options.controllers.clone();
    controllers.root_ca.ca = root_ca(options)?.map(Arc::from);
    Ok(controllers)
}

/// The CA to publish: the file that is named, else what the kubeconfig trusts, else what the pod was given.
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

/// Starts the controllers, up to twice `interval` apart; one that lacks something is skipped.
pub async fn start(
    chosen: &[Descriptor],
    context: &ControllerContext,
    interval: Duration,
    stop: &CancellationToken,
) -> Result<(), StartError> {
    for descriptor in chosen {
        match context.start(descriptor)? {
            None => tracing::info!(controller = descriptor.name, "Started controller"),
            Some(unmet) => {
                tracing::info!(controller = descriptor.name, %unmet, "Skipping controller");
                continue;
            }
        }
        if !interval.is_zero() {
            let pause = interval.mul_f64(1.0 + context.env.clock.draw(&descriptor.name));
            tokio::select! {
                () = stop.cancelled() => break,
                () = context.env.clock.sleep(pause) => {}
            }
        }
    }
    Ok(())
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
