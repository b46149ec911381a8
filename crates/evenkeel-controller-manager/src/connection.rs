//! How the program reaches the API server, and the clients that its parts write with.

use crate::{controllers, credentials::Credentials};
use anyhow::Result;
use evenkeel_component::options::ClientOptions;
use evenkeel_controllers::descriptor::Clients;
use evenkeel_runtime::{
    client::{self, Client, ConnectOptions, Gate, Reload, RestMetrics},
    clock::Clock,
    tasks::Tasks,
};
use kube::config::AuthInfo;
use prometheus::Registry;
use std::sync::Arc;

/// What all clients of the program share.
#[derive(Clone)]
pub(crate) struct Connection {
    /// The transport, for what makes clients of its own.
    pub(crate) kube: kube::Client,
    /// The same without credentials, where each controller has its own.
    anonymous: Option<kube::Client>,
    options: ClientOptions,
    agent: Arc<str>,
    host: Arc<str>,
    clock: Clock,
    metrics: RestMetrics,
}

impl Connection {
    /// A connection as the options say, and what follows its files; see [`Reload::run`]. `program` begins its user agents.
    pub(crate) async fn open(
        program: &str,
        options: &ClientOptions,
        clock: &Clock,
        registry: &Registry,
    ) -> Result<(Self, Reload)> {
        let connect = ConnectOptions {
            kubeconfig: options.kubeconfig.clone().map(Into::into),
            server: options.master.clone(),
            ..ConnectOptions::default()
        };
        let config = client::config(&connect).await?;
        let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
        let mut reload = Reload::new(connect, clock.clone());
        let kube = reload.transport(|_| {}).await?;
        let anonymous = if options.own_credentials {
            Some(reload.transport(|config| config.auth_info = AuthInfo::default()).await?)
        } else {
            None
        };
        let metrics = RestMetrics::new(registry);
        if config.auth_info.exec.is_none() {
            metrics.without_exec_plugin(registry);
        }
        // The transports made here; each client shares one of them.
        [Some(&kube), anonymous.as_ref()].iter().flatten().for_each(|_| metrics.connected(false));
        let connection = Self {
            kube,
            anonymous,
            options: options.clone(),
            agent: agent(program).into(),
            host: host.into(),
            clock: clock.clone(),
            metrics,
        };
        Ok((connection, reload))
    }

    /// A client with this many times `--kube-api-qps` and `--kube-api-burst`; each has a limit of its own.
    pub(crate) fn client(&self, share: (f32, u32)) -> Client {
        self.client_over(self.kube.clone(), share)
    }

    /// Makes the clients of controllers, which write while `gate` is open: with one credential for all, or each with its own,
    /// which are asked for in `tasks`. The token controller always has the program's: the others' tokens may depend on it.
    pub(crate) fn clients(&self, gate: &Gate, tasks: &Tasks) -> Clients {
        let root = self.client((1.0, 1)).with_user_agent("token-requests").gated(gate);
        let own = self
            .anonymous
            .clone()
            .map(|anonymous| Credentials::new(root, anonymous, self.clock.clone(), tasks.clone()));
        let (this, gate) = (self.clone(), gate.clone());
        Arc::new(move |name: &str| {
            let own = own.as_ref().filter(|_| name != controllers::TOKENS_CLIENT);
            let kube = own.map_or_else(|| this.kube.clone(), |own| own.connect(name));
            this.client_over(kube, controllers::share(name)).gated(&gate)
        })
    }

    fn client_over(&self, kube: kube::Client, (qps, burst): (f32, u32)) -> Client {
        self.metrics.connected(true);
        Client::builder(kube, self.clock.clone())
            .qps(self.options.qps * qps)
            .burst(self.options.burst.saturating_mul(burst))
            .user_agent(&self.agent)
            .host(&self.host)
            .metrics(self.metrics.clone())
            .build()
    }
}

/// A user agent of upstream's form, `<program>/<version> (<system>/<machine>) kubernetes/<build>`, to which each client
/// appends its name. The API server takes what is before the first slash for the field manager.
fn agent(program: &str) -> String {
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!(
        "{program}/{KUBERNETES} ({}/{machine}) kubernetes/evenkeel-{}",
        std::env::consts::OS,
        env!("CARGO_PKG_VERSION")
    )
}

/// The version of Kubernetes that the program behaves as.
const KUBERNETES: &str = "v1.37.1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_agents_have_upstreams_form() {
        let agent = agent("kube-controller-manager");
        let (first, rest) = agent.split_once(' ').expect("two parts");
        assert_eq!(first, "kube-controller-manager/v1.37.1");
        assert!(rest.starts_with("(linux/") && rest.contains(") kubernetes/"), "{agent}");
    }
}
