//! Which controllers run, with which options, and their start.

use crate::{
    leading,
    options::{self, Options},
};
use anyhow::{Context, Result};
use evenkeel_component::{connection::Shares, metrics::RunningControllers};
use evenkeel_controllers::{
    descriptor::{ControllerContext, Descriptor, StartError, descriptors},
    needs::Unmet,
};
use evenkeel_runtime::client::Client;
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

/// The client of the token controller, which is the first to start and writes with the program's own credentials.
pub(crate) const TOKENS_CLIENT: &str = "tokens-controller";

/// How controllers' clients differ. The token controller always has the program's credentials: the others' tokens may
/// depend on it.
pub(crate) const SHARES: Shares =
    Shares { of: share, with_programs: |client| client == TOKENS_CLIENT };

/// How often it is looked whether the server has what skipped controllers need.
const LOOK: Duration = Duration::from_secs(30);

/// Controllers that are to start.
pub(crate) struct Starting {
    pub(crate) chosen: Vec<Descriptor>,
    pub(crate) context: ControllerContext,
    /// Finds out what the server has.
    pub(crate) client: Client,
    /// Where those that run are shown.
    pub(crate) shown: RunningControllers,
    /// Each starts between one and two of these from now.
    pub(crate) interval: Duration,
}

impl Starting {
    /// Starts the controllers in an order of chance. One that lacks a feature gate is skipped; one that lacks a resource is
    /// skipped as well, but started when the server has it (upstream's would have to be restarted for it).
    ///
    /// # Errors
    /// When one cannot start with its options.
    pub(crate) async fn run(self, stop: &CancellationToken) -> Result<(), StartError> {
        let Self { chosen, context, client, shown, interval } = self;
        let clock = context.env.clock.clone();
        let delay = |descriptor: &Descriptor| {
            interval.mul_f64(1.0 + clock.draw(&("start", descriptor.name)))
        };
        let mut order: Vec<_> = chosen.iter().map(|one| (delay(one), *one)).collect();
        order.sort_by_key(|(delay, _)| *delay);
        let (mut passed, mut waiting) = (Duration::ZERO, Vec::new());
        for (delay, descriptor) in order {
            if delay > passed {
                let pause = clock.sleep(delay - passed);
                if stop.run_until_cancelled(pause).await.is_none() {
                    return Ok(());
                }
                passed = delay;
            }
            if let Some(unmet) = start(&context, &descriptor, &shown)? {
                tracing::info!(controller = descriptor.name, %unmet, "Skipping controller");
                waiting.extend(matches!(unmet, Unmet::Resource(_)).then_some(descriptor));
            }
        }
        if !waiting.is_empty() {
            let tasks = context.tasks.clone();
            let late = Late { waiting, context, client, shown };
            tasks.spawn_until_cancelled("controllers without resources", late.run());
        }
        Ok(())
    }
}

/// Starts one controller if it lacks nothing; what it lacks otherwise.
fn start(
    context: &ControllerContext,
    descriptor: &Descriptor,
    shown: &RunningControllers,
) -> Result<Option<Unmet>, StartError> {
    if let Some(unmet) = descriptor.unmet(&context.gates, &context.resources) {
        return Ok(Some(unmet));
    }
    // It may put a check of its own in this one's place.
    context.health.add(descriptor.name, || Ok(()));
    context.start(descriptor)?;
    shown.started(descriptor.name);
    tracing::info!(controller = descriptor.name, "Started controller");
    Ok(None)
}

/// Controllers whose resources the server does not have (yet).
struct Late {
    waiting: Vec<Descriptor>,
    context: ControllerContext,
    client: Client,
    shown: RunningControllers,
}

impl Late {
    async fn run(mut self) {
        while !self.waiting.is_empty() {
            self.context.env.clock.sleep(LOOK).await;
            self.context.resources = leading::discover(&self.client).await;
            let (context, shown) = (&self.context, &self.shown);
            self.waiting.retain(|descriptor| match start(context, descriptor, shown) {
                Ok(unmet) => unmet.is_some(),
                Err(error) => {
                    tracing::error!(%error, "A controller whose resource appeared cannot start");
                    false
                }
            });
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
