//! The server as its users see it: built, called in process, served over TLS.

mod authentication;
mod pki;
mod service;
mod tls;
mod unchecked;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evenkeel_tasks::TaskFailure;
use futures::future::BoxFuture;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tokio_rustls::TlsAcceptor;

pub use authentication::AuthenticationOptions;
pub use evenkeel_listener::ConnectionLimits;
pub use service::Service;
pub use tls::ServeError;
pub use unchecked::UncheckedError;

use crate::admission::plugins::Plugins;
use crate::admission::policy::compiled::Compiled;
use crate::apf_controller;
use crate::api::Api;
use crate::auth::impersonation::LastModes;
use crate::auth::{Authorizer, StaticTokens};
use crate::bootstrap::{self, ServiceNetwork};
use crate::clock::Clock;
use crate::components::Components;
use crate::computed::{self, ComputedApi};
use crate::custom::crd_controller;
use crate::custom::served::Served;
use crate::encryption::Encryption;
use crate::event_ttl;
use crate::files;
use crate::flow::{self, Flows};
use crate::kubelet::{Kubelet, Kubelets};
use crate::metrics::Metrics;
use crate::registry;
use crate::resource::Table;
use crate::store::{self, OpenError, Store};
use crate::streaming::StreamLimits;
use crate::tasks::Tasks;
use crate::tracking;
use crate::webhook::budget::Budgets;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::user::User;
use evenkeel_x509::CertPool;
use pki::{Pki, PkiOptions};
use service::Peer;

/// Why a server could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The data folder.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The objects that a new server has.
    #[error("the first objects cannot be written: {0}")]
    Bootstrap(#[from] StatusError),
    /// A certificate file cannot be read, or a certificate cannot be made.
    #[error("certificates cannot be made or read: {0}")]
    Certificates(String),
    /// A setting, by the name of its flag, and what is wrong with it.
    #[error("{0}: {1}")]
    Setting(&'static str, String),
    /// The settings of admission plug-ins.
    #[error("{0}")]
    Admission(String),
    /// The encryption configuration is invalid.
    #[error("encryption-provider-config: {0}")]
    Encryption(String),
}

/// Options of a server.
#[must_use]
pub struct Builder {
    data_dir: Option<PathBuf>,
    encryption_provider_config: Option<String>,
    clock: Clock,
    seed: Option<u64>,
    static_tokens: StaticTokens,
    authentication: AuthenticationOptions,
    admission_plugins: Vec<String>,
    disabled_admission_plugins: Vec<String>,
    authorization_modes: Vec<String>,
    service_range: String,
    pki: PkiOptions,
    advertised: SocketAddr,
    flow: flow::Options,
    connections: ConnectionLimits,
    event_ttl: Duration,
}

/// Where a server says that it is when nobody says otherwise: an address for documentation, since Endpoints cannot have that
/// of the machine itself (`127.0.0.1`).
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 6443);

impl Builder {
    /// Where the server says that it is, in the Endpoints of the Service `kubernetes`. An address that is the machine's own, or
    /// all of them, is no answer for others: then only the port is shown.
    pub fn advertise(mut self, address: SocketAddr) -> Self {
        self.advertised = address;
        if address.ip().is_loopback() || address.ip().is_unspecified() {
            self.advertised.set_ip(NOWHERE.ip());
        }
        self
    }

    /// Keeps everything in this folder: what is acknowledged is on disk. Without, all is in memory.
    pub fn data_dir(mut self, folder: Option<PathBuf>) -> Self {
        self.data_dir = folder;
        self
    }

    /// Encrypts values in the data folder, as kube-apiserver's file of `--encryption-provider-config` says (YAML or JSON).
    pub fn encryption_provider_config(mut self, text: String) -> Self {
        self.encryption_provider_config = Some(text);
        self
    }

    /// Tells the time; the system's clock if not given.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Makes uids and generated names the same in every run.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Knows a bearer token.
    pub fn token(mut self, token: &str, user: User) -> Self {
        self.static_tokens.add(token, user);
        self
    }

    /// Knows the tokens of a file as kube-apiserver's `--token-auth-file` takes it.
    pub fn tokens_csv(mut self, text: &str) -> Self {
        self.static_tokens.add_csv(text);
        self
    }

    /// Serves with this certificate chain and key (PEM) rather than with one of the server's own authority.
    pub fn certificate(mut self, chain: String, key: String) -> Self {
        self.pki.given = Some((chain, key));
        self
    }

    /// A further host name or address for the server's own certificate.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.pki.names.push(name.into());
        self
    }

    /// Accepts client certificates of these authorities (PEM), too.
    pub fn client_ca(mut self, pem: String) -> Self {
        self.pki.client_ca = Some(pem);
        self
    }

    /// Sets how tokens and anonymous requests are authenticated.
    pub fn authentication(mut self, options: AuthenticationOptions) -> Self {
        self.authentication = options;
        self
    }

    /// Switches an admission plug-in on that is off by default: `OwnerReferencesPermissionEnforcement`.
    pub fn enable_admission_plugin(mut self, name: impl Into<String>) -> Self {
        self.admission_plugins.push(name.into());
        self
    }

    /// Switches an admission plug-in off, by upstream's name (`--disable-admission-plugins`).
    pub fn disable_admission_plugin(mut self, name: impl Into<String>) -> Self {
        self.disabled_admission_plugins.push(name.into());
        self
    }

    /// Asks these authorizers, by upstream's names (`--authorization-mode`): `Node`, `RBAC`, `AlwaysAllow`, `AlwaysDeny`.
    /// `Node` and `RBAC` if none is named.
    pub fn authorization_mode(mut self, name: impl Into<String>) -> Self {
        self.authorization_modes.push(name.into());
        self
    }

    /// The range that a new server gives cluster IPs out of (`--service-cluster-ip-range`), 10.96.0.0/16 by default. Its first
    /// address is that of the Service `kubernetes`.
    pub fn service_cluster_ip_range(mut self, range: impl Into<String>) -> Self {
        self.service_range = range.into();
        self
    }

    /// Executes at most this many reads and writes at once (`--max-requests-inflight`, `--max-mutating-requests-inflight`;
    /// 400 and 200 unless said otherwise; 0 is no limit). With priority and fairness, their sum is the seats that priority
    /// levels share.
    pub fn max_requests_in_flight(mut self, reads: usize, writes: usize) -> Self {
        self.flow.max_requests_inflight = reads;
        self.flow.max_mutating_requests_inflight = writes;
        self
    }

    /// Whether FlowSchemas and PriorityLevelConfigurations apply (`--enable-priority-and-fairness`, which is the default), or
    /// reads and writes each have a limit of their own.
    pub fn priority_and_fairness(mut self, enabled: bool) -> Self {
        self.flow.priority_and_fairness = enabled;
        self
    }

    /// Limits the open connections of a listener.
    pub fn connections(mut self, limits: ConnectionLimits) -> Self {
        self.connections = limits;
        self
    }

    /// Sets how long an event is kept after its last write (`--event-ttl`); an hour by default, zero keeps all.
    pub fn event_ttl(mut self, ttl: Duration) -> Self {
        self.event_ttl = ttl;
        self
    }

    /// Builds it: opens the store and installs what a new server has.
    pub fn build(self) -> BoxFuture<'static, Result<Server, BuildError>> {
        Box::pin(self.open())
    }

    async fn open(mut self) -> Result<Server, BuildError> {
        let encryption = self.encryption_provider_config.as_deref().map(Encryption::from_config);
        let encryption = encryption.transpose().map_err(BuildError::Encryption)?;
        let transformer = Arc::new(encryption.unwrap_or_default());
        let store = match &self.data_dir {
            None => Store::in_memory(registry::INDEXED_RESOURCES),
            Some(folder) => {
                files::make_folder(folder, is_of_data_folder).map_err(|source| OpenError::Io {
                    path: folder.display().to_string(),
                    source,
                })?;
                let flavor = tokio::runtime::Handle::try_current().map(|h| h.runtime_flavor());
                let threaded = !matches!(flavor, Ok(tokio::runtime::RuntimeFlavor::CurrentThread));
                let clock = self.clock.clone();
                let indexed = registry::INDEXED_RESOURCES;
                Store::open(folder, threaded, indexed, transformer, clock)?
            }
        };
        if let Some(pem) = &self.pki.client_ca {
            let refused = |why| BuildError::Setting("client-ca-file", why);
            let pool = CertPool::from_pem(pem.as_bytes()).map_err(|e| refused(e.to_string()))?;
            if pool.is_empty() {
                return Err(refused("it contains no PEM of a certificate".to_owned()));
            }
        }
        let authorizer = Authorizer::of(&self.authorization_modes)
            .map_err(|why| BuildError::Setting("authorization-mode", why))?;
        let network = ServiceNetwork::new(self.advertised, &self.service_range)
            .map_err(|why| BuildError::Setting("service-cluster-ip-range", why))?;
        self.pki.names.push(network.service_address().to_string());
        let pki = Pki::open(self.data_dir.as_deref(), self.pki, self.clock.now())
            .map_err(|error| BuildError::Certificates(error.to_string()))?;
        let (enabled, disabled) = (&self.admission_plugins, &self.disabled_admission_plugins);
        let plugins = Plugins::of(enabled, disabled).map_err(BuildError::Admission)?;
        let mut static_tokens = self.static_tokens;
        static_tokens
            .add(pki.admin_token(), User::authenticated("kubernetes-admin", ["system:masters"]));
        let authenticator = self
            .authentication
            .build(static_tokens, pki.account_key(), self.advertised)
            .map_err(|(setting, why)| BuildError::Setting(setting, why))?;
        let rng = self.seed.map_or_else(StdRng::from_os_rng, StdRng::seed_from_u64);
        let api = Arc::new(Api {
            table: Table::builtin(),
            store,
            flows: Flows::new(self.flow, self.clock.clone()),
            clock: self.clock,
            authenticator,
            authorizer,
            impersonation_modes: LastModes::default(),
            metrics: Metrics::default(),
            served: Served::default(),
            plugins,
            policies: Compiled::default(),
            components: Components::default(),
            kubelets: Kubelets::default(),
            streams: StreamLimits::default(),
            webhooks: Budgets::default(),
            tasks: Tasks::default(),
            rng: Mutex::new(rng),
        });
        crd_controller::load(&api);
        bootstrap::install(&api, pki.client_roots_pem(), &network).await?;
        let pki = Arc::new(pki);
        start_tasks(&api, &pki, self.event_ttl);
        let store = api.store.clone();
        api.components.add("etcd-0", move || store.health());
        Ok(Server { api, pki, connections: self.connections })
    }
}

/// Starts the server's own tasks.
fn start_tasks(api: &Arc<Api>, pki: &Arc<Pki>, event_ttl: Duration) {
    api.tasks.report("store", api.store.failed());
    for authenticator in &api.authenticator.jwt {
        api.tasks.spawn("JSON web keys", authenticator.fetch_keys());
    }
    let (certificates, clock) = (pki.clone(), api.clock.clone());
    api.tasks.spawn("certificates", move || renew(certificates.clone(), clock.clone()));
    let changes = api.store.changes(&crd_controller::RESOURCE_PREFIX.into());
    let weak = Arc::downgrade(api);
    api.tasks.spawn("definitions", move || crd_controller::run(weak.clone(), changes.clone()));
    if api.flows.is_fair() {
        apf_controller::load(api);
        let changes =
            apf_controller::RESOURCE_PREFIXES.map(|prefix| api.store.changes(&prefix.into()));
        let weak = Arc::downgrade(api);
        let controller = move || apf_controller::run(weak.clone(), changes.clone());
        api.tasks.spawn("API priority and fairness", controller);
    }
    if !event_ttl.is_zero() {
        let changes = api.store.changes(&event_ttl::RESOURCE_PREFIX.into());
        let weak = Arc::downgrade(api);
        let expiry = move || event_ttl::run(weak.clone(), changes.clone(), event_ttl);
        api.tasks.spawn("expiry of events", expiry);
    }
    let changes = api.store.changes(&tracking::RESOURCE_PREFIX.into());
    let weak = Arc::downgrade(api);
    api.tasks.spawn("token tracking", move || tracking::run(weak.clone(), changes.clone()));
}

/// Longest pause between two looks at the clock, which may have been set.
const RENEWAL_CHECK_PERIOD: Duration = Duration::from_secs(24 * 60 * 60);
/// Pause after a renewal that failed.
const RENEWAL_RETRY_PERIOD: Duration = Duration::from_secs(60);

/// Renews certificates when they are due, until the server ends.
async fn renew(pki: Arc<Pki>, clock: Clock) {
    loop {
        let now = clock.now();
        let pause = match pki.renew_if_due(now) {
            Ok(due) => due.duration_since(now).try_into().unwrap_or(RENEWAL_RETRY_PERIOD),
            Err(error) => {
                tracing::error!(%error, "certificates cannot be renewed; trying again");
                RENEWAL_RETRY_PERIOD
            }
        };
        tokio::time::sleep(pause.clamp(RENEWAL_RETRY_PERIOD, RENEWAL_CHECK_PERIOD)).await;
    }
}

/// Whether a file in the data folder is the server's, or of the program around it.
fn is_of_data_folder(name: &str) -> bool {
    store::is_its_file(name)
        || name == pki::FOLDER
        || name.starts_with("kubeconfig")
        || name.ends_with(".sock")
}

/// A running server. Cheap to clone.
#[derive(Clone)]
pub struct Server {
    api: Arc<Api>,
    pki: Arc<Pki>,
    connections: ConnectionLimits,
}

impl Server {
    /// Starts to build one.
    pub fn builder() -> Builder {
        Builder {
            data_dir: None,
            encryption_provider_config: None,
            clock: Clock::system(),
            seed: None,
            static_tokens: StaticTokens::default(),
            authentication: AuthenticationOptions::default(),
            admission_plugins: Vec::new(),
            disabled_admission_plugins: Vec::new(),
            authorization_modes: Vec::new(),
            service_range: bootstrap::DEFAULT_SERVICE_RANGE.to_owned(),
            pki: PkiOptions::default(),
            advertised: NOWHERE,
            flow: flow::Options::default(),
            connections: ConnectionLimits::default(),
            event_ttl: event_ttl::DEFAULT_TTL,
        }
    }

    /// The server as a service in this process. Requests without credentials of their own are the administrator's
    /// (in `system:masters`); see [`service_as`](Self::service_as).
    pub fn service(&self) -> Service {
        self.service_as(User::authenticated("kubernetes-admin", ["system:masters"]))
    }

    /// The same for another user.
    pub fn service_as(&self, user: User) -> Service {
        let peer = Peer { user: Arc::new(user), not_after: None };
        Service::new(self.api.clone(), Some(peer))
    }

    /// Serves one more API from now on: what is in it is made by its source when somebody asks.
    ///
    /// # Errors
    /// When the APIService that tells of it cannot be written.
    pub async fn aggregate(&self, api: &ComputedApi) -> Result<(), BuildError> {
        self.api.table.add(computed::rows(api));
        let now = evenkeel_apimachinery::time::seconds(self.api.clock.now());
        Ok(bootstrap::register(&self.api, computed::service(api, &now)).await?)
    }

    /// Lists a part of the control plane (`scheduler`, `controller-manager`) among the `componentstatuses` from now on,
    /// with what `check` says of it whenever somebody asks.
    pub fn component(
        &self,
        name: &str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.api.components.add(name, check);
    }

    /// Asks these kubelets for logs from now on, and to execute commands.
    pub fn connect_kubelet(&self, kubelet: Arc<dyn Kubelet>) {
        self.api.kubelets.connect(kubelet);
    }

    /// A kubeconfig for the administrator of a server at `url`.
    pub fn kubeconfig(&self, url: &str) -> String {
        self.pki.kubeconfig(url)
    }

    /// The authority that signed the server's certificate, as PEM.
    pub fn ca_pem(&self) -> &str {
        self.pki.ca_pem()
    }

    /// The key of that authority (PEM), for whoever signs certificates in the cluster's name. It is not to be shown.
    pub fn ca_key_pem(&self) -> &str {
        self.pki.ca_key_pem()
    }

    /// The key that signs service account tokens, PEM, for whoever fills token Secrets. It is not to be shown.
    pub fn service_account_key_pem(&self) -> &str {
        self.api.authenticator.service_accounts.signing_key_pem()
    }

    /// Changes whenever the certificates were renewed: kubeconfigs are then to be written again.
    pub fn renewals(&self) -> tokio::sync::watch::Receiver<u64> {
        self.pki.renewals()
    }

    /// The administrator's bearer token.
    pub fn admin_token(&self) -> &str {
        self.pki.admin_token()
    }

    /// The latest revision that can be seen.
    pub fn revision(&self) -> u64 {
        self.api.store.revision()
    }

    /// Saves a snapshot of everything that is stored now into a new file; writes go on meanwhile. It blocks until the file is on
    /// disk. See [`snapshot`](crate::snapshot) for its contents, and for restoring it.
    ///
    /// # Errors
    /// When the file is there already or cannot be written.
    pub fn snapshot(&self, file: &std::path::Path) -> Result<(), store::SnapshotError> {
        self.api.store.snapshot(file)
    }

    /// Waits until a part of the server fails that cannot start anew, such as the store: the program has to stop. Meanwhile
    /// reads go on, and health checks fail.
    pub async fn failed(&self) -> TaskFailure {
        self.api.tasks.failed().await
    }

    /// Serves HTTP/1.1 and HTTP/2 over TLS on `listener` until `shutdown` is ready.
    pub async fn serve(
        &self,
        listener: tokio::net::TcpListener,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), ServeError> {
        let acceptor = tls::acceptor(&self.pki)?;
        self.serve_until(listener, Some(acceptor), Box::pin(shutdown)).await
    }

    /// Serves without TLS: for a listener on a loopback address behind something that encrypts.
    pub async fn serve_plain(
        &self,
        listener: tokio::net::TcpListener,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), ServeError> {
        self.serve_until(listener, None, Box::pin(shutdown)).await
    }

    fn serve_until<'a>(
        &self,
        listener: tokio::net::TcpListener,
        acceptor: Option<TlsAcceptor>,
        shutdown: BoxFuture<'a, ()>,
    ) -> BoxFuture<'a, Result<(), ServeError>> {
        Box::pin(tls::serve(self.api.clone(), listener, self.connections, acceptor, shutdown))
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
