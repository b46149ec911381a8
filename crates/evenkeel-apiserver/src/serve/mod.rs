//! Public API of the server: building it, calling it in process, and serving it over TLS.

mod aggregation_options;
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

pub use aggregation_options::AggregationOptions;
pub use authentication::AuthenticationOptions;
pub use evenkeel_listener::ConnectionLimits;
pub use service::Service;
pub use tls::ServeError;
pub use unchecked::UncheckedError;

use crate::admission::plugins::Plugins;
use crate::admission::policy::compiled::Compiled;
use crate::aggregation;
use crate::announcement;
use crate::apf_controller;
use crate::api::Api;
use crate::audit::{AuditOptions, Auditor};
use crate::auth::impersonation::LastModes;
use crate::auth::{
    self, AuthorizationOptions, AuthorizationWebhookOptions, Authorizer, StaticTokens,
};
use crate::bootstrap;
use crate::clock::Clock;
use crate::components::Components;
use crate::computed::{self, ComputedApi};
use crate::custom::crd_controller;
use crate::custom::served::Served;
use crate::draws::Draws;
use crate::encryption::Encryption;
use crate::etcd_layout::EtcdLayout;
use crate::event_ttl;
use crate::files;
use crate::flow::{self, Flows};
use crate::kubelet::{Kubelet, Kubelets};
use crate::metrics::Metrics;
use crate::registry;
use crate::resource::Table;
use crate::service_network::ServiceNetwork;
use crate::store::{self, ConnectError, EtcdOptions, OpenError, Store};
use crate::streaming::StreamLimits;
use crate::tasks::Tasks;
use crate::tracking;
use crate::webhook::budget::Budgets;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::user::User;
use evenkeel_x509::CertPool;
use pki::{CertificateWithKey, Pki, PkiOptions};
use service::Peer;

/// Error of building a server.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The data folder cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The bootstrap objects cannot be written.
    #[error("the first objects cannot be written: {0}")]
    Bootstrap(#[from] StatusError),
    /// A certificate cannot be read or created.
    #[error("certificates cannot be made or read: {0}")]
    Certificates(String),
    /// A setting is invalid; the fields are its flag and the reason.
    #[error("{0}: {1}")]
    Setting(&'static str, String),
    /// The settings of admission plug-ins are invalid.
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
    authorization: AuthorizationOptions,
    service_range: Option<String>,
    pki: PkiOptions,
    advertised: SocketAddr,
    flow: flow::Options,
    connections: ConnectionLimits,
    event_ttl: Duration,
    quota_backend_bytes: usize,
    audit: Option<AuditOptions>,
    aggregation: AggregationOptions,
    sharded_list_and_watch: bool,
    tracks_field_managers: bool,
    etcd: Option<EtcdOptions>,
}

/// Default maximum size in bytes of all objects: the largest that etcd recommends for its own limit.
pub const DEFAULT_QUOTA_BACKEND_BYTES: usize = 8 << 30;

/// Default advertised address. It is reserved for documentation (RFC 5737), because Endpoints may not contain a
/// loopback address.
const DOCUMENTATION_ADDRESS: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 6443);

impl Builder {
    /// Sets the address that the server advertises in the Endpoints of the Service `kubernetes`. If the address is a
    /// loopback or unspecified one, only its port is used.
    pub fn advertise(mut self, address: SocketAddr) -> Self {
        self.advertised = address;
        if address.ip().is_loopback() || address.ip().is_unspecified() {
            self.advertised.set_ip(DOCUMENTATION_ADDRESS.ip());
        }
        self
    }

    /// Stores all data durably in this folder: acknowledged writes are on disk. Default: all data is in memory.
    pub fn data_dir(mut self, folder: Option<PathBuf>) -> Self {
        self.data_dir = folder;
        self
    }

    /// Stores all objects in etcd, which other servers may share. The data folder then has only certificates and keys.
    pub fn etcd(mut self, options: EtcdOptions) -> Self {
        self.etcd = Some(options);
        self
    }

    /// Encrypts values in the data folder. `text` is the contents of a `--encryption-provider-config` file (YAML or
    /// JSON).
    pub fn encryption_provider_config(mut self, text: String) -> Self {
        self.encryption_provider_config = Some(text);
        self
    }

    /// Sets the source of time. Default: the system's clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Seeds the generators of UIDs and names, so that every run generates the same ones. Those of an object depend on
    /// its resource, namespace, `generateName` or name, and controller, and on the number of such creates before it. UIDs
    /// also depend on the hour since the start.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Adds a bearer token and its user.
    pub fn token(mut self, token: &str, user: User) -> Self {
        self.static_tokens.add(token, user);
        self
    }

    /// Adds the tokens of a `--token-auth-file`.
    pub fn tokens_csv(mut self, text: &str) -> Self {
        self.static_tokens.add_csv(text);
        self
    }

    /// Serves this certificate chain and key (PEM) instead of a certificate of the server's own CA.
    pub fn certificate(mut self, chain: String, key: String) -> Self {
        self.pki.configured_certificate = Some(CertificateWithKey { chain, key });
        self
    }

    /// Adds a host name or address to the server's own certificate.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.pki.names.push(name.into());
        self
    }

    /// Also accepts client certificates of these CAs (PEM).
    pub fn client_ca(mut self, pem: String) -> Self {
        self.pki.client_ca = Some(pem);
        self
    }

    /// Sets the options of token and anonymous authentication.
    pub fn authentication(mut self, options: AuthenticationOptions) -> Self {
        self.authentication = options;
        self
    }

    /// Enables an admission plug-in (`--enable-admission-plugins`). Only `OwnerReferencesPermissionEnforcement` is off
    /// by default.
    pub fn enable_admission_plugin(mut self, name: impl Into<String>) -> Self {
        self.admission_plugins.push(name.into());
        self
    }

    /// Disables an admission plug-in by upstream's name (`--disable-admission-plugins`).
    pub fn disable_admission_plugin(mut self, name: impl Into<String>) -> Self {
        self.disabled_admission_plugins.push(name.into());
        self
    }

    /// Adds an authorizer by upstream's name (`--authorization-mode`): `Node`, `RBAC`, `Webhook`, `AlwaysAllow` or
    /// `AlwaysDeny`. Default: `Node` and `RBAC`.
    pub fn authorization_mode(mut self, name: impl Into<String>) -> Self {
        self.authorization.modes.push(name.into());
        self
    }

    /// Sets the options of the authorization mode `Webhook`.
    pub fn authorization_webhook(mut self, options: AuthorizationWebhookOptions) -> Self {
        self.authorization.webhook = Some(options);
        self
    }

    /// Configures the authorizers by a file (`--authorization-config`), whose changes apply without a restart.
    pub fn authorization_config(mut self, file: PathBuf) -> Self {
        self.authorization.config_file = Some(file);
        self
    }

    /// Sets the range of cluster IPs (`--service-cluster-ip-range`), or two ranges of different IP families, separated
    /// by a comma. The first has the family of the advertised address. Default: 10.96.0.0/16, or fd00:10:96::/112 if
    /// the advertised address is of IPv6. The Service `kubernetes` gets the first range's first address.
    pub fn service_cluster_ip_range(mut self, range: impl Into<String>) -> Self {
        self.service_range = Some(range.into());
        self
    }

    /// Sets the maximum numbers of concurrent reads and writes (`--max-requests-inflight`,
    /// `--max-mutating-requests-inflight`). The defaults are 400 and 200; 0 means no limit. With priority and fairness,
    /// the priority levels share their sum.
    pub fn max_requests_in_flight(mut self, reads: usize, writes: usize) -> Self {
        self.flow.max_requests_inflight = reads;
        self.flow.max_mutating_requests_inflight = writes;
        self
    }

    /// Sets whether FlowSchemas and PriorityLevelConfigurations apply (`--enable-priority-and-fairness`, default true).
    /// Otherwise reads and writes have separate limits.
    pub fn priority_and_fairness(mut self, enabled: bool) -> Self {
        self.flow.priority_and_fairness = enabled;
        self
    }

    /// Sets the limits on open connections of a listener.
    pub fn connections(mut self, limits: ConnectionLimits) -> Self {
        self.connections = limits;
        self
    }

    /// Sets the maximum size in bytes of all objects (`--quota-backend-bytes`), without their history. Beyond it, the
    /// server refuses writes that add to the size, with code 507; objects can be read and deleted. Default:
    /// [`DEFAULT_QUOTA_BACKEND_BYTES`]. It does not apply to objects in etcd, which has a limit of its own.
    pub fn quota_backend_bytes(mut self, bytes: usize) -> Self {
        self.quota_backend_bytes = bytes;
        self
    }

    /// Sets how long an event is kept after its last write (`--event-ttl`). Default: one hour; zero keeps all events.
    pub fn event_ttl(mut self, ttl: Duration) -> Self {
        self.event_ttl = ttl;
        self
    }

    /// Writes audit events of requests (`--audit-policy-file`). Default: none.
    pub fn audit(mut self, options: AuditOptions) -> Self {
        self.audit = Some(options);
        self
    }

    /// Sets the options of aggregation: how the server identifies itself to extension API servers.
    pub fn aggregation(mut self, options: AggregationOptions) -> Self {
        self.aggregation = options;
        self
    }

    /// Sets whether lists and watches honor `shardSelector` (KEP-5866): the feature gate `ShardedListAndWatch`, an alpha
    /// feature. Default: false; the parameter then has no effect.
    pub fn sharded_list_and_watch(mut self, enabled: bool) -> Self {
        self.sharded_list_and_watch = enabled;
        self
    }

    /// Sets whether new objects have `managedFields`. Without them, an object's fields get owners at its first
    /// server-side apply, like the fields of an object whose managed fields a client has reset. Default: true, as in
    /// upstream.
    pub fn tracks_field_managers(mut self, enabled: bool) -> Self {
        self.tracks_field_managers = enabled;
        self
    }

    /// Builds the server: opens the store and creates missing bootstrap objects.
    pub fn build(self) -> BoxFuture<'static, Result<Server, BuildError>> {
        Box::pin(self.open())
    }

    /// Opens the store in etcd. Returns `None` if the endpoint is a stand-in for etcd that stores nothing.
    async fn connect(&self, options: &EtcdOptions) -> Result<Option<Store>, BuildError> {
        let setting = |reason: &str| BuildError::Setting("etcd-servers", reason.to_owned());
        if self.encryption_provider_config.is_some() {
            return Err(setting(
                "a store in etcd is not encrypted by this server: leave --encryption-provider-config away",
            ));
        }
        let layout = Arc::new(EtcdLayout::builtin(self.event_ttl));
        let indexed = registry::INDEXED_RESOURCES;
        match Store::connect(options, layout, indexed, &self.clock).await {
            Ok(store) => {
                let mut folder = self.data_dir.iter();
                if let Some(folder) = folder.find(|folder| store::has_file(folder)) {
                    tracing::warn!(
                        folder = %folder.display(),
                        "the objects in the data folder are not used, because the store is in etcd"
                    );
                }
                Ok(Some(store))
            }
            Err(ConnectError::StandIn) => {
                tracing::warn!(
                    "the server of --etcd-servers is a stand-in for etcd, which stores nothing: this server keeps the objects itself"
                );
                Ok(None)
            }
            Err(ConnectError::Failed(reason)) => Err(setting(&reason)),
        }
    }

    async fn open(mut self) -> Result<Server, BuildError> {
        let text = self.encryption_provider_config.as_deref();
        let encryption = text.map(|text| Encryption::from_config(text, &self.clock));
        let encryption = encryption.transpose().map_err(BuildError::Encryption)?;
        let kms_plugins = encryption.as_ref().map_or_else(Vec::new, |e| e.plugins().to_vec());
        for plugin in &kms_plugins {
            plugin.poll().await;
        }
        let transformer = Arc::new(encryption.unwrap_or_default());
        let connected = match &self.etcd {
            Some(options) => self.connect(options).await?,
            None => None,
        };
        if let Some(folder) = &self.data_dir {
            files::make_folder(folder, is_expected_in_data_folder)
                .map_err(|source| OpenError::Io { path: folder.display().to_string(), source })?;
        }
        let store = match &self.data_dir {
            _ if let Some(store) = connected => store,
            None => Store::in_memory(registry::INDEXED_RESOURCES),
            Some(folder) => {
                let flavor =
                    tokio::runtime::Handle::try_current().map(|handle| handle.runtime_flavor());
                let threaded = !matches!(flavor, Ok(tokio::runtime::RuntimeFlavor::CurrentThread));
                let clock = self.clock.clone();
                let indexed = registry::INDEXED_RESOURCES;
                Store::open(folder, threaded, indexed, transformer, clock)?
            }
        };
        store.set_quota(self.quota_backend_bytes);
        let tasks = Tasks::default();
        for (name, task) in store.background() {
            tasks.spawn(name, task);
        }
        if let Some(pem) = &self.pki.client_ca {
            let invalid = |reason| BuildError::Setting("client-ca-file", reason);
            let pool =
                CertPool::from_pem(pem.as_bytes()).map_err(|error| invalid(error.to_string()))?;
            if pool.is_empty() {
                return Err(invalid("it contains no PEM of a certificate".to_owned()));
            }
        }
        let server_id = self.advertised.to_string();
        let authorizer = Authorizer::open(&self.authorization, &server_id, &self.clock)
            .map_err(|(setting, reason)| BuildError::Setting(setting, reason))?;
        let network = ServiceNetwork::new(self.advertised, self.service_range.as_deref())
            .map_err(|reason| BuildError::Setting("service-cluster-ip-range", reason))?;
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
            .build(static_tokens, pki.account_key(), self.advertised, &self.clock, &tasks)
            .map_err(|(setting, reason)| BuildError::Setting(setting, reason))?;
        let auditor = self.audit.map(|options| Auditor::open(options, self.clock.clone()));
        let auditor = auditor
            .transpose()
            .map_err(|(setting, reason)| BuildError::Setting(setting, reason))?;
        let aggregation = self
            .aggregation
            .build()
            .map_err(|(setting, reason)| BuildError::Setting(setting, reason))?;
        let rng = self.seed.map_or_else(StdRng::from_os_rng, StdRng::seed_from_u64);
        // Include the revision and the time, so that a server that restarts on its data does not draw the same values
        // again.
        let draws = self.seed.map(|seed| Draws::new(seed, store.revision(), self.clock.now()));
        let api = Arc::new(Api {
            table: Table::builtin(),
            service_families: network.families(),
            store,
            flows: Flows::new(self.flow, self.clock.clone()),
            clock: self.clock,
            authenticator,
            authorizer,
            impersonation_modes: LastModes::default(),
            auditor: auditor.map(Arc::new),
            kms_plugins,
            metrics: Metrics::default(),
            served: Served::default(),
            plugins,
            policies: Compiled::default(),
            components: Components::default(),
            kubelets: Kubelets::default(),
            streams: StreamLimits::default(),
            connections: StreamLimits::default(),
            aggregation,
            sharded_list_and_watch: self.sharded_list_and_watch,
            tracks_field_managers: self.tracks_field_managers,
            webhooks: Budgets::default(),
            tasks,
            rng: Mutex::new(rng),
            draws,
        });
        crd_controller::load(&api);
        aggregation::controller::load(&api);
        bootstrap::install(&api, pki.client_roots_pem(), &network).await?;
        let pki = Arc::new(pki);
        start_tasks(&api, &pki, self.event_ttl);
        if api.store.is_shared() {
            let (weak, network) = (Arc::downgrade(&api), Arc::new(network));
            let announcement = move || announcement::run(weak.clone(), network.clone());
            api.tasks.spawn("announcement", announcement);
        }
        let store = api.store.clone();
        api.components.add("etcd-0", move || store.health());
        Ok(Server { api, pki, connections: self.connections })
    }
}

/// Starts the server's background tasks.
fn start_tasks(api: &Arc<Api>, pki: &Arc<Pki>, event_ttl: Duration) {
    api.tasks.report("store", api.store.failed());
    if let Some(source) = &api.authenticator.jwt {
        let source = source.clone();
        api.tasks.spawn("authentication configuration", move || {
            let source = source.clone();
            async move { source.follow().await }
        });
    }
    let (certificates, clock) = (pki.clone(), api.clock.clone());
    api.tasks
        .spawn("certificates", move || renew_certificates(certificates.clone(), clock.clone()));
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
    if let Some(sender) = api.auditor.as_ref().and_then(|auditor| auditor.sender()) {
        api.tasks.spawn("audit webhook", move || {
            let sender = sender.clone();
            async move { sender.run().await }
        });
    }
    for plugin in &api.kms_plugins {
        let plugin = plugin.clone();
        let poll = move || {
            let plugin = plugin.clone();
            async move { plugin.run().await }
        };
        api.tasks.spawn("KMS plugin", poll);
    }
    if api.authorizer.has_source() {
        let weak = Arc::downgrade(api);
        let follow =
            move || auth::follow(weak.clone(), |api: &Api| (&api.authorizer, api.clock.now()));
        api.tasks.spawn("authorization configuration", follow);
    }
    // etcd deletes events by their leases.
    if !event_ttl.is_zero() && !api.store.is_shared() {
        let changes = api.store.changes(&event_ttl::RESOURCE_PREFIX.into());
        let weak = Arc::downgrade(api);
        let expiry = move || event_ttl::run(weak.clone(), changes.clone(), event_ttl);
        api.tasks.spawn("expiry of events", expiry);
    }
    start_aggregation(api);
    let changes = api.store.changes(&tracking::RESOURCE_PREFIX.into());
    let weak = Arc::downgrade(api);
    api.tasks.spawn("token tracking", move || tracking::run(weak.clone(), changes.clone()));
}

/// Starts the controllers of APIServices.
fn start_aggregation(api: &Arc<Api>) {
    use aggregation::{checker, controller, fetcher};
    let changes = controller::RESOURCE_PREFIXES.map(|prefix| api.store.changes(&prefix.into()));
    let weak = Arc::downgrade(api);
    api.tasks.spawn("APIServices", move || controller::run(weak.clone(), changes.clone()));
    let changes = checker::RESOURCE_PREFIXES.map(|prefix| api.store.changes(&prefix.into()));
    let weak = Arc::downgrade(api);
    api.tasks
        .spawn("availability of APIServices", move || checker::run(weak.clone(), changes.clone()));
    let weak = Arc::downgrade(api);
    api.tasks.spawn("documents of APIServices", move || fetcher::run(weak.clone()));
}

/// Maximum delay between two checks of the clock, because an administrator may change the system time.
const RENEWAL_CHECK_PERIOD: Duration = Duration::from_secs(24 * 60 * 60);
/// Delay after a failed renewal, and minimum delay between two checks.
const RENEWAL_RETRY_PERIOD: Duration = Duration::from_secs(60);

/// Renews certificates when they are due, until the server shuts down.
async fn renew_certificates(pki: Arc<Pki>, clock: Clock) {
    loop {
        let now = clock.now();
        let delay = match pki.renew_if_due(now) {
            Ok(due) => due.duration_since(now).try_into().unwrap_or(RENEWAL_RETRY_PERIOD),
            Err(error) => {
                tracing::error!(%error, "certificates cannot be renewed; trying again");
                RENEWAL_RETRY_PERIOD
            }
        };
        tokio::time::sleep(delay.clamp(RENEWAL_RETRY_PERIOD, RENEWAL_CHECK_PERIOD)).await;
    }
}

/// Returns whether a file in the data folder belongs to the server or to the surrounding program.
fn is_expected_in_data_folder(name: &str) -> bool {
    store::is_its_file(name)
        || name == pki::FOLDER
        || name.starts_with("kubeconfig")
        || name.ends_with(".sock")
}

/// Running server. Clones are cheap. Its futures are boxed: otherwise, each crate that polls them compiles the server's code again.
#[derive(Clone)]
pub struct Server {
    api: Arc<Api>,
    pki: Arc<Pki>,
    connections: ConnectionLimits,
}

impl Server {
    /// Returns a builder with default options.
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
            authorization: AuthorizationOptions::default(),
            service_range: None,
            pki: PkiOptions::default(),
            advertised: DOCUMENTATION_ADDRESS,
            flow: flow::Options::default(),
            connections: ConnectionLimits::default(),
            event_ttl: event_ttl::DEFAULT_TTL,
            quota_backend_bytes: DEFAULT_QUOTA_BACKEND_BYTES,
            audit: None,
            aggregation: AggregationOptions::default(),
            sharded_list_and_watch: false,
            tracks_field_managers: true,
            etcd: None,
        }
    }

    /// Returns the server as an in-process service. Requests without credentials have the permissions of the
    /// administrator (`system:masters`); see [`service_as`](Self::service_as).
    pub fn service(&self) -> Service {
        self.service_as(User::authenticated("kubernetes-admin", ["system:masters"]))
    }

    /// Returns the server as an in-process service for another user.
    pub fn service_as(&self, user: User) -> Service {
        let peer = Peer { user: Arc::new(user), not_after: None };
        Service::new(self.api.clone(), Some(peer))
    }

    /// Also serves this API, whose source computes the objects for each request.
    ///
    /// # Errors
    /// Fails if the API's APIService cannot be written.
    pub fn aggregate(&self, api: &ComputedApi) -> BoxFuture<'_, Result<(), BuildError>> {
        self.api.table.add(computed::resource_types(api));
        let now = evenkeel_apimachinery::time::seconds(self.api.clock.now());
        let apiservice = computed::apiservice(api, &now);
        Box::pin(async move { Ok(bootstrap::register(&self.api, apiservice).await?) })
    }

    /// Adds a control plane component (`scheduler`, `controller-manager`) to the `componentstatuses`. Each request for
    /// `componentstatuses` calls `check`.
    pub fn component(
        &self,
        name: &str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.api.components.add(name, check);
    }

    /// Sets the kubelets that return logs and execute commands for the server.
    pub fn connect_kubelet(&self, kubelet: Arc<dyn Kubelet>) {
        self.api.kubelets.connect(kubelet);
    }

    /// Returns a kubeconfig for the administrator of a server at `url`.
    pub fn kubeconfig(&self, url: &str) -> String {
        self.pki.kubeconfig(url)
    }

    /// Returns the certificate (PEM) of the CA that signed the server's certificate.
    pub fn ca_pem(&self) -> &str {
        self.pki.ca_pem()
    }

    /// Returns the CA's secret key (PEM), for controllers that sign certificates for the cluster.
    pub fn ca_key_pem(&self) -> &str {
        self.pki.ca_key_pem()
    }

    /// Returns the secret key (PEM) that signs service account tokens, for the controller that fills token Secrets.
    pub fn service_account_key_pem(&self) -> &str {
        self.api.authenticator.service_accounts.signing_key_pem()
    }

    /// Returns a counter of certificate renewals. After each renewal, callers have to write kubeconfigs again.
    pub fn renewals(&self) -> evenkeel_tasks::watch::Receiver<u64> {
        self.pki.renewals()
    }

    /// Returns the administrator's bearer token.
    pub fn admin_token(&self) -> &str {
        self.pki.admin_token()
    }

    /// Returns the latest revision that readers observe.
    pub fn revision(&self) -> u64 {
        self.api.store.revision()
    }

    /// Saves a snapshot of all stored objects to a new file, and blocks until the file is on disk. Writes continue in
    /// the meantime. See [`snapshot`](crate::snapshot) for the contents and the restore.
    ///
    /// # Errors
    /// Fails if the file exists or cannot be written.
    pub fn snapshot(&self, file: &std::path::Path) -> Result<(), store::SnapshotError> {
        self.api.store.snapshot(file)
    }

    /// Waits until a part of the server fails that cannot restart, such as the store. The program then has to exit.
    /// Before it exits, reads still work and health checks fail.
    pub async fn failed(&self) -> TaskFailure {
        self.api.tasks.failed().await
    }

    /// Serves HTTP/1.1 and HTTP/2 over TLS on `listener` until `shutdown` is ready.
    pub async fn serve(
        &self,
        listener: tokio::net::TcpListener,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), ServeError> {
        let front_proxy = self.api.authenticator.front_proxy.as_ref();
        let acceptor = tls::acceptor(&self.pki, front_proxy)?;
        self.serve_until(listener, Some(acceptor), Box::pin(shutdown)).await
    }

    /// Serves without TLS, for a listener on a loopback address behind a proxy that encrypts.
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
        acceptor: Option<tls::Acceptor>,
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
