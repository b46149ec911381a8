//! Ports of a manager: probes over plain HTTP, and metrics over plain HTTP or TLS.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `HealthProbeBindAddress`: `/healthz`, `/readyz`, and a path for each check | `probes` |
//! | `metricsserver.Options`: address, TLS from files or self-signed | `Metrics`, `tls` |
//! | `WithAuthenticationAndAuthorization`: authorization of reads of a path, and the cache of its results | `guard` |
//!
//! The ports are bound when the manager is built, so that a port in use is reported at that time. They are served from the
//! manager's start until all other parts have stopped.

use super::{BuildError, Manager, ManagerBuilder, RunnableGroup, Setup};
#[cfg(feature = "pprof")]
use crate::secure_serving::pprof;
use crate::{
    health::Health,
    metrics::process,
    secure_serving::{
        AlwaysAllowPaths, Certificate, Guard, Identity, ReviewCacheTtls, ReviewClient, Routes,
        ServerOptions, Tls, TlsError, TlsSettings, Trust, TrustFiles, listen, serve, serve_plain,
    },
};
use bytes::Bytes;
use http::Request;
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use tokio::net::TcpListener;

/// Lifetimes of cached reviews.
///
/// Upstream: `WithAuthenticationAndAuthorization` of controller-runtime.
const REVIEW_TTLS: ReviewCacheTtls = ReviewCacheTtls {
    token: Duration::from_secs(60),
    granted: Duration::from_secs(5 * 60),
    denied: Duration::from_secs(30),
};

/// Port of a manager's metrics. See [`ManagerBuilder::metrics`].
///
/// ```
/// use evenkeel_runtime::manager::Metrics;
///
/// let metrics = Metrics::secure(8443).certificate("/certs/tls.crt", "/certs/tls.key");
/// ```
///
/// Upstream: `metricsserver.Options` of controller-runtime.
#[derive(Debug, Clone)]
#[must_use = "a port is opened by the manager that takes it"]
pub struct Metrics {
    address: SocketAddr,
    security: Security,
    debug: bool,
    #[cfg(feature = "pprof")]
    pprof: bool,
}

/// Security of a port.
#[derive(Debug, Clone)]
enum Security {
    Plain,
    /// TLS with the certificate and key of these files, or with a self-signed certificate.
    Tls(Option<(PathBuf, PathBuf)>),
}

impl Metrics {
    /// Serves metrics over plain HTTP without authentication, on all addresses. Port 0 stands for any free port.
    ///
    /// ```
    /// # use evenkeel_runtime::manager::Metrics;
    /// let metrics = Metrics::plain(8080).debug();
    /// ```
    pub fn plain(port: u16) -> Self {
        Self::new(port, Security::Plain, false)
    }

    /// Serves metrics over TLS, on all addresses, with a self-signed certificate. A client must send a token whose user may
    /// `get` the path: `nonResourceURLs: ["/metrics"]`. The operator needs the role `system:auth-delegator`.
    ///
    /// ```
    /// # use evenkeel_runtime::manager::Metrics;
    /// let metrics = Metrics::secure(8443);
    /// ```
    #[doc(alias("SecureServing", "WithAuthenticationAndAuthorization"))]
    pub fn secure(port: u16) -> Self {
        Self::new(port, Security::Tls(None), true)
    }

    fn new(port: u16, security: Security, debug: bool) -> Self {
        Self {
            address: on_all_addresses(port),
            security,
            debug,
            #[cfg(feature = "pprof")]
            pprof: false,
        }
    }

    /// Sets the address to listen on. Default: all addresses.
    ///
    /// ```
    /// # use evenkeel_runtime::manager::Metrics;
    /// let metrics = Metrics::plain(8080).address([127, 0, 0, 1].into());
    /// ```
    pub fn address(mut self, address: IpAddr) -> Self {
        self.address.set_ip(address);
        self
    }

    /// Serves over TLS with the certificate and key of these PEM files, which are read again when they change.
    ///
    /// ```
    /// # use evenkeel_runtime::manager::Metrics;
    /// let metrics = Metrics::secure(8443).certificate("/certs/tls.crt", "/certs/tls.key");
    /// ```
    #[doc(alias = "CertDir")]
    pub fn certificate(self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        let files = (certificate.into(), key.into());
        Self { security: Security::Tls(Some(files)), ..self }
    }

    /// Also serves profiles at `/debug/pprof/`: of the CPU time (`profile?seconds=30`), of the memory (`heap`), and the tasks
    /// by name (`goroutine`), for `go tool pprof`. A port of [`Metrics::secure`] serves them to users who may `get` the path:
    /// `nonResourceURLs: ["/debug/pprof/*"]`. On a plain port, any client can make the program profile itself.
    #[cfg(feature = "pprof")]
    #[doc(alias = "PprofBindAddress")]
    pub fn pprof(self) -> Self {
        Self { pprof: true, ..self }
    }

    /// Also serves `/debug/controllers`, which names objects and shows errors. [`Metrics::secure`] always serves it, to users
    /// who may `get` that path.
    ///
    /// ```
    /// # use evenkeel_runtime::manager::Metrics;
    /// let metrics = Metrics::plain(8080).debug();
    /// ```
    pub fn debug(self) -> Self {
        Self { debug: true, ..self }
    }
}

fn on_all_addresses(port: u16) -> SocketAddr {
    (Ipv4Addr::UNSPECIFIED, port).into()
}

/// Ports that a builder was given.
#[derive(Default)]
pub(super) struct Ports {
    probes: Option<SocketAddr>,
    metrics: Option<Metrics>,
    #[cfg(feature = "pprof")]
    pprof: Option<SocketAddr>,
}

impl Ports {
    /// Returns whether requests for metrics are authenticated and authorized.
    pub(super) fn reviews_requests(&self) -> bool {
        self.metrics.as_ref().is_some_and(|metrics| matches!(metrics.security, Security::Tls(_)))
    }
}

/// Addresses of a manager's open ports.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Addresses {
    probes: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
    #[cfg(feature = "pprof")]
    pprof: Option<SocketAddr>,
}

impl ManagerBuilder {
    /// Serves `/healthz` and `/readyz` over plain HTTP on all addresses, and each check at a path below them. Port 0 is
    /// any free port.
    ///
    /// ```
    /// # use evenkeel_test::TestServer;
    /// use evenkeel_runtime::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let kube = TestServer::start().await?.client();
    /// let manager = Manager::builder(kube).probes(0).build()?;
    /// assert!(manager.probes_address().is_some_and(|address| address.port() != 0));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "HealthProbeBindAddress")]
    pub fn probes(self, port: u16) -> Self {
        self.probes_on(on_all_addresses(port))
    }

    /// Like [`ManagerBuilder::probes`], on one address.
    ///
    /// ```
    /// # use evenkeel_test::TestServer;
    /// use evenkeel_runtime::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let kube = TestServer::start().await?.client();
    /// let manager = Manager::builder(kube).probes_on(([127, 0, 0, 1], 0).into()).build()?;
    /// assert!(manager.probes_address().is_some_and(|address| address.ip().is_loopback()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn probes_on(mut self, address: SocketAddr) -> Self {
        self.ports.probes = Some(address);
        self
    }

    /// Serves the metrics of the manager's registry at `/metrics`.
    ///
    /// ```
    /// # use evenkeel_test::TestServer;
    /// use evenkeel_runtime::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let kube = TestServer::start().await?.client();
    /// let manager = Manager::builder(kube).metrics(Metrics::plain(0)).build()?;
    /// assert!(manager.metrics_address().is_some_and(|address| address.port() != 0));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "metricsserver")]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.ports.metrics = Some(metrics);
        self
    }

    /// Serves profiles at `/debug/pprof/` over plain HTTP on this address, without authentication. The usual address is
    /// `127.0.0.1`, for `kubectl port-forward`. [`Metrics::pprof`] serves them with authentication. Default: not served.
    #[cfg(feature = "pprof")]
    #[doc(alias = "PprofBindAddress")]
    pub fn pprof_on(mut self, address: SocketAddr) -> Self {
        self.ports.pprof = Some(address);
        self
    }
}

impl Manager {
    /// Returns the address of [`ManagerBuilder::probes`], with the chosen port. `None` if there is none, or if the [`Setup`]
    /// opens no ports.
    pub fn probes_address(&self) -> Option<SocketAddr> {
        self.addresses.probes
    }

    /// Returns the address of [`ManagerBuilder::metrics`], with the chosen port. `None` if there is none, or if the [`Setup`]
    /// opens no ports.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.addresses.metrics
    }

    /// Returns the address of [`ManagerBuilder::pprof_on`], with the chosen port. `None` if there is none, or if the [`Setup`]
    /// opens no ports.
    #[cfg(feature = "pprof")]
    pub fn pprof_address(&self) -> Option<SocketAddr> {
        self.addresses.pprof
    }
}

impl Ports {
    /// Binds the ports, and adds their servers to the manager.
    pub(super) fn open(self, manager: &mut Manager) -> Result<(), BuildError> {
        if !manager.setup().is_none_or(Setup::opens_ports) {
            return Ok(());
        }
        if let Some(address) = self.probes {
            let (listener, address) = bind("probes", address)?;
            manager.addresses.probes = Some(address);
            add_plain(manager, "probes", listener, probes(manager));
        }
        #[cfg(feature = "pprof")]
        if let Some(address) = self.pprof {
            let (listener, address) = bind("profiles", address)?;
            manager.addresses.pprof = Some(address);
            add_plain(manager, "profiles", listener, pprof::add_to(Routes::new()));
        }
        if let Some(metrics) = self.metrics {
            let Metrics { address, security, debug, .. } = metrics;
            let (listener, address) = bind("metrics", address)?;
            manager.addresses.metrics = Some(address);
            if process::register(manager.registry()).is_err() {
                tracing::debug!("the registry has the metrics of the process already");
            }
            let routes = Routes::new().metrics(manager.registry().clone());
            let introspection = manager.env().introspection.clone();
            let routes = if debug { routes.controllers(introspection) } else { routes };
            #[cfg(feature = "pprof")]
            let routes = if metrics.pprof { pprof::add_to(routes) } else { routes };
            match security {
                Security::Plain => add_plain(manager, "metrics", listener, routes),
                Security::Tls(files) => {
                    let tls = tls(files, address.ip()).map_err(BuildError::Tls)?;
                    add_secure(manager, listener, tls, routes);
                }
            }
        }
        Ok(())
    }
}

fn bind(
    purpose: &'static str,
    address: SocketAddr,
) -> Result<(TcpListener, SocketAddr), BuildError> {
    let failed = |source| BuildError::Listen { purpose, address, source };
    let listener = listen(address, false, false).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    tracing::info!(%address, "serving {purpose}");
    Ok((listener, address))
}

/// Returns the routes of probes.
fn probes(manager: &Manager) -> Routes {
    let with_slash = |routes: Routes, name: &'static str, health: &Health| {
        let all = health.clone();
        routes.health(name, health.clone()).unlisted(
            &format!("/{name}/"),
            move |request: &Request<Bytes>| {
                all.answer(name, request.uri().query().unwrap_or_default()).map(Bytes::from)
            },
        )
    };
    let routes = with_slash(Routes::new(), "healthz", manager.health());
    with_slash(routes, "readyz", manager.readiness())
}

fn add_plain(manager: &Manager, name: &'static str, listener: TcpListener, routes: Routes) {
    let clock = manager.env().clock.clone();
    manager.add(RunnableGroup::HttpServers, name, move |running| async move {
        running.ready();
        serve_plain(listener, routes, clock, running.token()).await;
        Ok(())
    });
}

fn tls(files: Option<(PathBuf, PathBuf)>, address: IpAddr) -> Result<Tls, TlsError> {
    let identity = match files {
        Some((certificate, key)) => Identity::Files { certificate, key },
        None => {
            let names = ["localhost".to_owned(), "127.0.0.1".to_owned(), address.to_string()];
            let names = if address.is_unspecified() { &names[..2] } else { &names[..] };
            Identity::SelfSigned(Certificate::self_signed(names, None)?)
        }
    };
    Tls::new(TlsSettings::default(), identity, Vec::new(), TrustFiles::default(), Trust::default())
}

/// Returns the guard of metrics: it authenticates users by their tokens, and requires the permission to `get` the path.
fn guard(manager: &Manager) -> Guard {
    let clock = manager.env().clock.clone();
    // A standby also reviews requests, so the client is not fenced.
    let reviews =
        || ReviewClient::new(manager.unfenced_client().clone(), clock.clone(), REVIEW_TTLS);
    let (tokens, access) = (Some(reviews()), Some(reviews()));
    Guard::new(AlwaysAllowPaths::default(), Trust::default(), tokens, access, clock.clone())
        .refuse_anonymous()
}

fn add_secure(manager: &Manager, listener: TcpListener, tls: Tls, routes: Routes) {
    let (guard, clock) = (guard(manager), manager.env().clock.clone());
    manager.add(RunnableGroup::HttpServers, "metrics", move |running| async move {
        running.ready();
        let (tls, options) = (Arc::new(tls), ServerOptions::default());
        serve(listener, tls, routes, guard, options, clock, running.token()).await;
        Ok(())
    });
}
