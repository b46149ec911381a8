//! Connection to the API server, and the clients of individual controllers.

mod credentials;

use crate::options::ClientOptions;
use anyhow::{Context as _, Result};
use credentials::Credentials;
use evenkeel_runtime::{
    client::{self, Client, ConfigReloader, ConnectOptions, LeaderFence, RestMetrics, Transport},
    clock::Clock,
    tasks::Tasks,
};
use futures::future::BoxFuture;
use kube::{Config, config::AuthInfo};
use prometheus::Registry;
use std::{sync::Arc, time::Duration};

/// Time to wait for a healthy API server before the program exits.
const SERVER_HEALTH_TIMEOUT: Duration = Duration::from_secs(10);

/// Function from a service account's name to the controller's client, with the controller's credentials. The
/// controller appends its name to the user agent.
#[doc(alias = "ControllerClientBuilder")]
pub type Clients = Arc<dyn Fn(&str) -> Client + Send + Sync>;

/// Factors of `--kube-api-qps` and `--kube-api-burst` for a client.
#[derive(Debug, Clone, Copy)]
pub struct RateFactors {
    /// Factor of `--kube-api-qps`.
    pub qps: f32,
    /// Factor of `--kube-api-burst`.
    pub burst: u32,
}

impl RateFactors {
    /// Factors of a client that uses the flags' values.
    pub const ONE: Self = Self { qps: 1.0, burst: 1 };
}

/// Differences between the clients of individual controllers. The functions take the controller's name.
#[derive(Debug, Clone, Copy)]
pub struct ClientSettings {
    /// Returns the rate factors of a controller.
    pub rate_factors: fn(&str) -> RateFactors,
    /// Returns whether a controller uses the program's credentials although others use their own.
    pub uses_program_credentials: fn(&str) -> bool,
}

impl Default for ClientSettings {
    /// Returns the settings of a program whose clients do not differ.
    fn default() -> Self {
        Self { rate_factors: |_| RateFactors::ONE, uses_program_credentials: |_| false }
    }
}

/// Transport, metrics and options that all clients of the program share.
#[derive(Clone)]
pub struct Connection {
    /// Transport with the program's credentials.
    pub transport: Transport,
    /// Transport without credentials, if each controller has its own, or for requests of users.
    anonymous: Option<Transport>,
    options: ClientOptions,
    /// User agent of all clients, to which each client appends its name.
    user_agent: Arc<str>,
    host: Arc<str>,
    clock: Clock,
    metrics: RestMetrics,
}

impl Connection {
    /// Opens the connection. Also returns the reloader of its files, see [`ConfigReloader::run`]. The user
    /// agents start with `program`.
    pub async fn open(
        program: &str,
        options: &ClientOptions,
        clock: &Clock,
        registry: &Registry,
    ) -> Result<(Self, ConfigReloader)> {
        let connect = ConnectOptions {
            kubeconfig: options.kubeconfig.clone().map(Into::into),
            only_in_pod: true,
            server: options.master.clone(),
            ..ConnectOptions::default()
        };
        let config = client::config(&connect).await?;
        let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
        let mut reloader = ConfigReloader::new(connect, clock.clone());
        let transport = reloader.transport(|_| {}).await?;
        let anonymous = if options.own_credentials || options.for_users {
            let anonymous = |config: &mut Config| config.auth_info = AuthInfo::default();
            Some(reloader.transport(anonymous).await?)
        } else {
            None
        };
        let metrics = RestMetrics::new(registry);
        if config.auth_info.exec.is_none() {
            metrics.without_exec_plugin(registry);
        }
        // Count the transports created here. Each client shares one of them.
        [Some(&transport), anonymous.as_ref()]
            .iter()
            .flatten()
            .for_each(|_| metrics.record_new_client(false));
        let connection = Self {
            transport,
            anonymous,
            options: options.clone(),
            user_agent: user_agent(program).into(),
            host: host.into(),
            clock: clock.clone(),
            metrics,
        };
        Ok((connection, reloader))
    }

    /// Returns a client with these factors of `--kube-api-qps` and `--kube-api-burst`. Each client has its own
    /// limit.
    pub fn client(&self, factors: RateFactors) -> Client {
        self.client_over(self.transport.clone(), factors)
    }

    /// Returns a client without a rate limit, for reads that must not wait.
    pub fn unlimited(&self) -> Client {
        let options = ClientOptions { qps: -1.0, ..self.options.clone() };
        Self { options, ..self.clone() }.client(RateFactors::ONE)
    }

    /// Returns a client without credentials, for requests of users with theirs. `None` unless [`ClientOptions::for_users`] or
    /// [`ClientOptions::own_credentials`] is set.
    pub fn anonymous(&self) -> Option<kube::Client> {
        self.anonymous.clone().map(Into::into)
    }

    /// Returns the clients of the controllers, which write while `fence` is open. They use the program's
    /// credentials, or each controller's own, which `tasks` renew.
    pub fn clients(&self, fence: &LeaderFence, tasks: &Tasks, settings: ClientSettings) -> Clients {
        let token_client =
            self.client(RateFactors::ONE).with_user_agent("token-requests").fenced(fence);
        let anonymous = self.anonymous.clone().filter(|_| self.options.own_credentials);
        let own_credentials = anonymous.map(|anonymous| {
            Credentials::new(token_client, anonymous.into(), self.clock.clone(), tasks.clone())
        });
        let (this, fence) = (self.clone(), fence.clone());
        Arc::new(move |name: &str| {
            let transport = match &own_credentials {
                Some(credentials) if !(settings.uses_program_credentials)(name) => {
                    credentials.connect(name).into()
                }
                _ => this.transport.clone(),
            };
            this.client_over(transport, (settings.rate_factors)(name)).fenced(&fence)
        })
    }

    fn client_over(&self, transport: Transport, factors: RateFactors) -> Client {
        self.metrics.record_new_client(true);
        Client::builder(transport, self.clock.clone())
            .qps(self.options.qps * factors.qps)
            .burst(self.options.burst.saturating_mul(factors.burst))
            .user_agent(&self.user_agent)
            .host(&self.host)
            .metrics(self.metrics.clone())
            .json(self.options.json)
            .build()
    }
}

/// Waits until the API server is healthy.
///
/// Upstream: `WaitForAPIServer`.
///
/// # Errors
/// Fails if the server is not healthy within ten seconds.
pub fn wait_for_server<'a>(client: &'a Client, clock: &'a Clock) -> BoxFuture<'a, Result<()>> {
    Box::pin(poll_health(client, clock))
}

async fn poll_health(client: &Client, clock: &Clock) -> Result<()> {
    let deadline = clock.now() + SERVER_HEALTH_TIMEOUT;
    loop {
        let request = http::Request::get("/healthz").body(bytes::Bytes::new())?;
        match client.raw(request).await {
            Ok(_) => return Ok(()),
            Err(error) if clock.now() >= deadline => {
                return Err(error).context("the API server did not become healthy within 10s");
            }
            Err(error) => {
                tracing::debug!(%error, "API server is not healthy yet");
                clock.sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

/// Returns a user agent in upstream's form, `<program>/<version> (<system>/<machine>) kubernetes/<build>`. Each
/// client appends its name. The API server uses the part before the first slash as the field manager.
fn user_agent(program: &str) -> String {
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!(
        "{program}/{KUBERNETES_VERSION} ({}/{machine}) kubernetes/evenkeel-{}",
        std::env::consts::OS,
        env!("CARGO_PKG_VERSION")
    )
}

/// The emulated version of Kubernetes.
const KUBERNETES_VERSION: &str = "v1.37.1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_agents_have_upstreams_form() {
        let agent = user_agent("kube-controller-manager");
        let (first, rest) = agent.split_once(' ').expect("two parts");
        assert_eq!(first, "kube-controller-manager/v1.37.1");
        assert!(rest.starts_with("(linux/") && rest.contains(") kubernetes/"), "{agent}");
    }
}
