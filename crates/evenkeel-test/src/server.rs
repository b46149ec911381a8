//! A fresh API server in the test's process.

use crate::{
    Clock, crds,
    crds::CrdError,
    kubeconfig::{self, KubeconfigError, ListeningPort},
    program::{Program, Running},
};
use evenkeel_apiserver::{BuildError, Builder, Server, User};
use evenkeel_runtime::{
    client::{Interceptor, intercept},
    manager::Setup,
};
use kube::{Api, Client, CustomResourceExt, Resource, core::NamespaceResourceScope};
use serde::Serialize;
use serde_json::Value;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};
use tokio::sync::OnceCell;

/// Admission plug-in that rejects a pod whose service account does not exist.
const SERVICE_ACCOUNT: &str = "ServiceAccount";

/// Error of starting a [`TestServer`].
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The server's options are invalid.
    #[error("the API server cannot start: {0}")]
    Server(#[from] BuildError),
    /// CustomResourceDefinitions cannot be installed.
    #[error(transparent)]
    Crds(#[from] CrdError),
}

/// API server of a test. It stores all objects in memory, and stops when it and its clients are dropped.
///
/// Its clock follows tokio's clock: in a runtime whose time is paused, the server's time is virtual. RBAC and the admission
/// plug-ins work as in a cluster. Only the plug-in `ServiceAccount` is disabled, because no controller creates service
/// accounts. Connections that are upgraded (`exec`, `attach`, `portforward`) need a client from [`TestServer::kubeconfig`].
///
/// ```
/// use evenkeel_test::TestServer;
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::Api;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> anyhow::Result<()> {
/// let server = TestServer::start().await?;
/// let pods = server.api::<Pod>();
/// assert!(pods.list(&Default::default()).await?.items.is_empty());
///
/// // RBAC grants nothing to a new user.
/// let pods: Api<Pod> = Api::default_namespaced(server.client_as("alice", ["devs"]));
/// let error = pods.list(&Default::default()).await.unwrap_err();
/// assert!(matches!(error, kube::Error::Api(status) if status.code == 403));
/// # Ok(())
/// # }
/// ```
pub struct TestServer {
    server: Server,
    clock: Clock,
    client: Client,
    listening_port: OnceCell<ListeningPort>,
    /// Number of programs that ran beside the server.
    programs: AtomicU32,
}

impl TestServer {
    /// Starts a server with default options.
    ///
    /// # Errors
    /// Fails as [`TestServerBuilder::start`] does.
    pub async fn start() -> Result<Self, StartError> {
        Self::builder().start().await
    }

    /// Returns a builder with default options.
    pub fn builder() -> TestServerBuilder {
        TestServerBuilder::default()
    }

    /// Returns the administrator's client, with the namespace `default`.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the administrator's [`Api`] of a kind in the namespace `default`. For cluster-scoped kinds and for objects of
    /// all namespaces, use `Api::all(server.client())`.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::default_namespaced(self.client())
    }

    /// Returns the client of a user who is in these groups and in `system:authenticated`.
    pub fn client_as<'a>(&self, user: &str, groups: impl IntoIterator<Item = &'a str>) -> Client {
        Client::new(self.server.service_as(User::authenticated(user, groups)), "default")
    }

    /// Returns the administrator's client with an interceptor, which sees each request first. To run a program with this
    /// client, use `server.run(move |_, setup| operator(client.clone(), setup))`.
    pub fn intercepted(&self, interceptor: impl Interceptor) -> Client {
        intercept(self.client(), interceptor)
    }

    /// Returns the clock of the server.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the server itself.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Creates the CustomResourceDefinitions in a file or folder, as [`TestServerBuilder::crds_from`] does, and waits until
    /// they are established.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or the server rejects a definition.
    pub async fn crds_from(&self, path: impl AsRef<Path>) -> Result<(), CrdError> {
        crds::install(&self.client, crds::read(path.as_ref())?).await
    }

    /// Creates the CustomResourceDefinition of a type, as [`TestServerBuilder::crd`] does, and waits until it is established.
    ///
    /// # Errors
    /// Fails if the server rejects the definition.
    pub async fn crd<K: CustomResourceExt>(&self) -> Result<(), CrdError> {
        self.crd_value(&K::crd()).await
    }

    /// Creates a CustomResourceDefinition, and waits until it is established.
    ///
    /// # Errors
    /// Fails if the server rejects the definition.
    pub async fn crd_value(&self, definition: &impl Serialize) -> Result<(), CrdError> {
        let definition = serde_json::to_value(definition).map_err(CrdError::Invalid)?;
        crds::install(&self.client, vec![definition]).await
    }

    /// Runs a program, such as an operator, until it is stopped or the returned [`Running`] is dropped. The program acts as the
    /// administrator, and shares the server's clock.
    ///
    /// ```
    /// use evenkeel_runtime::manager::{BuildError, Manager, Setup};
    /// use evenkeel_test::TestServer;
    ///
    /// fn operator(client: kube::Client, setup: Setup) -> Result<Manager, BuildError> {
    ///     Manager::builder(client).setup(setup).build()
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> anyhow::Result<()> {
    /// let server = TestServer::start().await?;
    /// let running = server.run(operator);
    /// // Create objects, and wait until the operator has reconciled them.
    /// running.stop().await.map_err(anyhow::Error::from_boxed)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn run(&self, program: impl Program) -> Running {
        let number = self.programs.fetch_add(1, Ordering::Relaxed);
        let setup = Setup::simulated(self.clock.clone(), &format!("program-{number}"));
        Running::start(Arc::new(program), self.client(), setup)
    }

    /// Opens a port on 127.0.0.1 for clients in other processes, unless it is already open. Returns the URL. To serve such
    /// clients, the runtime's time must not be paused.
    ///
    /// # Errors
    /// Fails if no port can be opened.
    pub async fn listen(&self) -> Result<&str, KubeconfigError> {
        let start = || ListeningPort::start(self.server.clone());
        Ok(&self.listening_port.get_or_try_init(start).await?.url)
    }

    /// Opens a port as [`TestServer::listen`] does, and writes the administrator's kubeconfig. Only the file's owner can read
    /// it.
    ///
    /// # Errors
    /// Fails if no port can be opened, or the file cannot be written.
    pub async fn kubeconfig(&self, path: impl AsRef<Path>) -> Result<(), KubeconfigError> {
        let url = self.listen().await?;
        kubeconfig::write(path.as_ref(), &self.server.kubeconfig(url))
    }

    /// Closes the port that [`TestServer::listen`] opened. Open requests have five seconds to complete.
    pub async fn stop(self) {
        if let Some(listening_port) = self.listening_port.into_inner() {
            listening_port.stop().await;
        }
    }
}

/// Options of a [`TestServer`].
#[must_use = "a builder does nothing until it is started"]
pub struct TestServerBuilder {
    server: Builder,
    clock: Option<Clock>,
    /// Names of admission plug-ins to enable in addition to the defaults.
    enabled: BTreeSet<String>,
    /// Names of admission plug-ins to disable.
    disabled: BTreeSet<String>,
    crd_paths: Vec<PathBuf>,
    crds: Vec<Result<Value, serde_json::Error>>,
}

impl Default for TestServerBuilder {
    fn default() -> Self {
        Self {
            server: Server::builder(),
            clock: None,
            enabled: BTreeSet::new(),
            disabled: [SERVICE_ACCOUNT.to_owned()].into(),
            crd_paths: Vec::new(),
            crds: Vec::new(),
        }
    }
}

impl TestServerBuilder {
    /// Sets the server's clock. By default, it starts at the system's time and then follows tokio's clock.
    ///
    /// ```
    /// use evenkeel_test::{Clock, TestServer};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> anyhow::Result<()> {
    /// let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse()?);
    /// let server = TestServer::builder().clock(clock).start().await?;
    /// tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
    /// assert_eq!(server.clock().now().to_string(), "2026-01-01T01:00:00Z");
    /// # Ok(())
    /// # }
    /// ```
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Seeds the generator of UIDs and names, so that every run generates the same UIDs and names.
    pub fn seed(self, seed: u64) -> Self {
        self.configure(|server| server.seed(seed))
    }

    /// Allows every request of every user.
    pub fn without_rbac(self) -> Self {
        self.configure(|server| server.authorization_mode("AlwaysAllow"))
    }

    /// Disables all admission plug-ins, including those of policies and webhooks.
    pub fn without_admission(mut self) -> Self {
        self.enabled.clear();
        self.disabled.extend(evenkeel_apiserver::admission_plugins());
        self
    }

    /// Enables an admission plug-in by upstream's name, such as `ServiceAccount`.
    pub fn enable_admission_plugin(mut self, name: &str) -> Self {
        self.disabled.remove(name);
        self.enabled.insert(name.to_owned());
        self
    }

    /// Disables an admission plug-in by upstream's name.
    pub fn disable_admission_plugin(mut self, name: &str) -> Self {
        self.enabled.remove(name);
        self.disabled.insert(name.to_owned());
        self
    }

    /// Installs the CustomResourceDefinitions in a file, or in the files of a folder (`.yaml`, `.yml`, `.json`). A file
    /// may hold several documents and lists. Objects of other kinds are skipped.
    pub fn crds_from(mut self, path: impl Into<PathBuf>) -> Self {
        self.crd_paths.push(path.into());
        self
    }

    /// Installs the CustomResourceDefinition of a type that derives kube's `CustomResource`.
    ///
    /// ```
    /// use evenkeel_test::TestServer;
    /// # use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    /// # #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
    /// # struct WebApp { metadata: kube::core::ObjectMeta }
    /// # impl kube::Resource for WebApp {
    /// #     type DynamicType = ();
    /// #     type Scope = kube::core::NamespaceResourceScope;
    /// #     fn kind(_: &()) -> std::borrow::Cow<'_, str> { "WebApp".into() }
    /// #     fn group(_: &()) -> std::borrow::Cow<'_, str> { "example.com".into() }
    /// #     fn version(_: &()) -> std::borrow::Cow<'_, str> { "v1".into() }
    /// #     fn plural(_: &()) -> std::borrow::Cow<'_, str> { "webapps".into() }
    /// #     fn meta(&self) -> &kube::core::ObjectMeta { &self.metadata }
    /// #     fn meta_mut(&mut self) -> &mut kube::core::ObjectMeta { &mut self.metadata }
    /// # }
    /// # impl kube::CustomResourceExt for WebApp {
    /// #     fn crd() -> CustomResourceDefinition {
    /// #         serde_json::from_value(serde_json::json!({
    /// #             "metadata": {"name": "webapps.example.com"},
    /// #             "spec": {
    /// #                 "group": "example.com", "scope": "Namespaced",
    /// #                 "names": {"kind": "WebApp", "plural": "webapps"},
    /// #                 "versions": [{"name": "v1", "served": true, "storage": true,
    /// #                     "schema": {"openAPIV3Schema": {"type": "object"}}}],
    /// #             },
    /// #         })).unwrap()
    /// #     }
    /// #     fn crd_name() -> &'static str { "webapps.example.com" }
    /// #     fn api_resource() -> kube::api::ApiResource { kube::api::ApiResource::erase::<Self>(&()) }
    /// #     fn shortnames() -> &'static [&'static str] { &[] }
    /// # }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> anyhow::Result<()> {
    /// let server = TestServer::builder().crd::<WebApp>().start().await?;
    /// assert!(server.api::<WebApp>().list(&Default::default()).await?.items.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn crd<K: CustomResourceExt>(self) -> Self {
        self.crd_value(&K::crd())
    }

    /// Installs a CustomResourceDefinition from a value that serializes to it, such as `k8s-openapi`'s type or JSON.
    pub fn crd_value(mut self, definition: &impl Serialize) -> Self {
        self.crds.push(serde_json::to_value(definition));
        self
    }

    /// Changes other options of the server. The server always uses the clock of [`TestServerBuilder::clock`], even if
    /// `change` sets another one.
    pub fn configure(mut self, change: impl FnOnce(Builder) -> Builder) -> Self {
        self.server = change(self.server);
        self
    }

    /// Starts the server, and waits until its CustomResourceDefinitions are established.
    ///
    /// # Errors
    /// Fails if an option is invalid, or a CustomResourceDefinition cannot be read or is rejected.
    pub async fn start(self) -> Result<TestServer, StartError> {
        let clock = self.clock.unwrap_or_else(|| Clock::starting_at(Clock::system().now()));
        let server_clock = clock.clone();
        let builder = self.server.clock(evenkeel_apiserver::Clock::new(move || server_clock.now()));
        let builder = self.enabled.iter().fold(builder, Builder::enable_admission_plugin);
        let builder = self.disabled.iter().fold(builder, Builder::disable_admission_plugin);
        let server = builder.build().await?;
        let client = Client::new(server.service(), "default");
        let definitions: Result<Vec<Value>, _> = self.crds.into_iter().collect();
        let mut definitions = definitions.map_err(CrdError::Invalid)?;
        for path in &self.crd_paths {
            definitions.extend(crds::read(path)?);
        }
        crds::install(&client, definitions).await?;
        Ok(TestServer {
            server,
            clock,
            client,
            listening_port: OnceCell::new(),
            programs: AtomicU32::new(0),
        })
    }
}

impl std::fmt::Debug for TestServerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestServerBuilder")
            .field("enabled", &self.enabled)
            .field("disabled", &self.disabled)
            .field("crd_paths", &self.crd_paths)
            .finish_non_exhaustive()
    }
}
