//! Client of the API server: typed requests, rate limit, retries, user agents and metrics.
//!
//! The transport is a [`kube::Client`], which supports kubeconfigs, exec plug-ins and in-process servers. [`connect()`]
//! creates one for controllers, with HTTP/2 and without compression. The client requests protobuf if the view can
//! decode it.

mod connect;
mod connection_pool;
mod dry_run;
mod error;
mod fenced_kube;
mod intercept;
mod leader_fence;
mod live_read;
mod metrics;
pub(crate) mod negotiation;
mod options;
mod proxy;
mod rate_limiter;
mod reload;
mod roots;
pub(crate) mod send;
#[cfg(test)]
mod tests;
mod transport;
mod verbs;
pub(crate) mod watch;

pub(crate) use connect::of_kubeconfig;
pub use connect::{ConnectError, ConnectOptions, config, connect, connect_in_pod, transport};
pub(crate) use dry_run::logged_dry_run;
pub use dry_run::{DryRunWrite, RecordedWrites, dry_run};
pub use error::{ApiError, Cause, Status, full_text};
pub use intercept::{ApiCall, Intercepted, Interceptor, intercept};
pub use leader_fence::LeaderFence;
pub use metrics::RestMetrics;
pub use options::{DeleteOptions, ListOptions};
pub use reload::ConfigReloader;
pub use transport::Transport;

pub use evenkeel_api::{list::List, views::Metadata};

use crate::{clock::Clock, discovery::CachedDiscovery};
use http::HeaderValue;
use metrics::HostMetrics;
use prometheus::Registry;
use rate_limiter::RateLimiter;
use std::sync::{Arc, Mutex};

/// Client of the API server. Clones are cheap and share connection, metrics and rate limit.
///
/// ```no_run
/// use evenkeel_runtime::{client::{Client, ListOptions, Metadata}, clock::Clock};
/// use evenkeel_api::Kind;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::builder(kube::Client::try_default().await?, Clock::system())
///     .qps(50.0)
///     .burst(100)
///     .user_agent("my-operator")
///     .build();
/// let pods = Kind::new("", "v1", "Pod", "pods", true);
/// for pod in client.list_metadata(&pods, "default", &ListOptions::default()).await?.items {
///     println!("{}", pod.meta.name);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    user_agent: HeaderValue,
    limiter: Option<Arc<RateLimiter>>,
    fence: Option<LeaderFence>,
    interceptor: Option<Arc<dyn Interceptor>>,
    /// Field manager of writes. `None` for the server's default.
    field_manager: Option<Arc<str>>,
}

pub(crate) struct Shared {
    transport: Transport,
    clock: Clock,
    metrics: Option<Arc<HostMetrics>>,
    /// Host and port of the server, a label of the metrics.
    host: Box<str>,
    /// Whether responses are requested only as JSON.
    json: bool,
    /// Cached result of the last discovery.
    pub(crate) discovery: Mutex<CachedDiscovery>,
}

impl Client {
    /// Creates a client without a rate limit and without metrics.
    pub fn new(transport: impl Into<Transport>, clock: Clock) -> Self {
        Self::builder(transport, clock).build()
    }

    /// Returns a client with the user agent and the field manager of this one, over another connection.
    pub(crate) fn over(&self, kube: kube::Client) -> Self {
        let client = Self::new(kube, self.clock().clone());
        let (user_agent, field_manager) = (self.user_agent.clone(), self.field_manager.clone());
        Self { user_agent, field_manager, ..client }
    }

    /// Returns this client with an interceptor and a field manager, or with its own where these are `None`.
    pub(crate) fn with_options(
        self,
        interceptor: Option<Arc<dyn Interceptor>>,
        field_manager: Option<Arc<str>>,
    ) -> Self {
        let interceptor = interceptor.or(self.interceptor);
        let field_manager = field_manager.or(self.field_manager);
        Self { interceptor, field_manager, ..self }
    }

    /// Returns this client with the interceptor and the field manager of another one.
    pub(crate) fn with_options_of(self, other: &Self) -> Self {
        self.with_options(other.interceptor.clone(), other.field_manager.clone())
    }

    /// Returns the field manager of writes, or `None` for the server's default.
    pub(crate) fn field_manager(&self) -> Option<&str> {
        self.field_manager.as_deref()
    }

    /// Returns a builder, for a client with a rate limit, metrics or another user agent.
    pub fn builder(transport: impl Into<Transport>, clock: Clock) -> ClientBuilder {
        ClientBuilder {
            transport: transport.into(),
            clock,
            qps: -1.0,
            burst: 0,
            user_agent: concat!("evenkeel/", env!("CARGO_PKG_VERSION")).to_owned(),
            metrics: None,
            host: "in-process".into(),
            json: false,
            interceptor: None,
            field_manager: None,
        }
    }

    /// Returns a client for one controller over the same connection. `suffix` is appended to the user agent.
    /// Like upstream's clients of single controllers, it has its own rate limit of the same size.
    #[must_use]
    pub fn with_user_agent(&self, suffix: &str) -> Self {
        let base = self.user_agent.to_str().unwrap_or_default();
        let user_agent =
            header(&format!("{base}/{suffix}")).unwrap_or_else(|| self.user_agent.clone());
        let limiter = self.limiter.as_ref().map(|limiter| Arc::new(limiter.full_copy()));
        Self { user_agent, limiter, ..self.clone() }
    }

    /// Returns the same client behind a leader fence: a write while `fence` is closed fails with
    /// [`ApiError::Fenced`]. Reads and watches are not fenced.
    #[must_use]
    pub fn fenced(&self, fence: &LeaderFence) -> Self {
        Self { fence: Some(fence.clone()), ..self.clone() }
    }

    /// Returns the same client without a fence: it writes at any time.
    #[must_use]
    pub(crate) fn without_fence(&self) -> Self {
        Self { fence: None, ..self.clone() }
    }

    /// Returns the same client behind a second fence: it writes only while both are open.
    #[must_use]
    pub(crate) fn also_fenced(&self, fence: &LeaderFence) -> Self {
        match &self.fence {
            Some(first) => self.fenced(&first.and(fence)),
            None => self.fenced(fence),
        }
    }

    /// Returns the client's clock.
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Returns the client's `User-Agent` header.
    pub fn user_agent(&self) -> &str {
        self.user_agent.to_str().unwrap_or_default()
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The output excludes the transport, because it holds credentials.
        f.debug_struct("Client")
            .field("host", &self.shared.host)
            .field("agent", &self.user_agent)
            .finish_non_exhaustive()
    }
}

/// Settings of a client. See [`Client::builder`].
#[must_use = "a builder does nothing until built"]
pub struct ClientBuilder {
    transport: Transport,
    clock: Clock,
    qps: f32,
    burst: u32,
    user_agent: String,
    metrics: Option<RestMetrics>,
    host: Box<str>,
    json: bool,
    interceptor: Option<Arc<dyn Interceptor>>,
    field_manager: Option<Arc<str>>,
}

impl ClientBuilder {
    /// Sets the requests per second after the burst. Negative means no limit (the default), 0 means client-go's
    /// default of 5.
    pub fn qps(mut self, qps: f32) -> Self {
        self.qps = qps;
        self
    }

    /// Sets the number of requests that may be sent in a burst. 0 means client-go's default of 10.
    pub fn burst(mut self, burst: u32) -> Self {
        self.burst = burst;
        self
    }

    /// Sets the `User-Agent` header. Ignores a value that a header cannot contain. The default is `evenkeel/<version>`.
    pub fn user_agent(mut self, user_agent: &str) -> Self {
        if header(user_agent).is_some() {
            user_agent.clone_into(&mut self.user_agent);
        }
        self
    }

    /// Registers the `rest_client_*` metrics in a registry.
    pub fn registry(self, registry: &Registry) -> Self {
        self.metrics(RestMetrics::new(registry))
    }

    /// Uses metrics that were registered for another client.
    pub fn metrics(mut self, metrics: RestMetrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Sets the server's host and port, a label of the metrics.
    pub fn host(mut self, host: &str) -> Self {
        self.host = host.into();
        self
    }

    /// Sets whether responses are requested only as JSON, for proxies that need it. Requests are always JSON.
    pub fn json(mut self, json: bool) -> Self {
        self.json = json;
        self
    }

    /// Sets the function that each request passes before it is sent.
    #[doc(alias("interceptor.NewClient", "WrapTransport"))]
    pub fn interceptor(mut self, interceptor: impl Interceptor) -> Self {
        self.interceptor = Some(Arc::new(interceptor));
        self
    }

    /// Sets the field manager of writes: creations, updates, and patches other than applies, which name their own. Default:
    /// the user agent up to its first slash, as the server sets it.
    #[doc(alias = "client.WithFieldOwner")]
    pub fn field_manager(mut self, name: &str) -> Self {
        self.field_manager = Some(name.into());
        self
    }

    /// Builds the client. Call it inside the tokio runtime that the client will run in.
    pub fn build(self) -> Client {
        let Self {
            transport,
            clock,
            qps,
            burst,
            user_agent,
            metrics,
            host,
            json,
            interceptor,
            field_manager,
        } = self;
        Client {
            user_agent: header(&user_agent).unwrap_or_else(|| HeaderValue::from_static("evenkeel")),
            limiter: RateLimiter::new(qps, burst, &clock).map(Arc::new),
            shared: Arc::new(Shared {
                transport,
                clock,
                metrics: metrics.map(|metrics| metrics.for_host(&host)),
                host,
                json,
                discovery: Mutex::default(),
            }),
            fence: None,
            interceptor,
            field_manager,
        }
    }
}

fn header(text: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(text).ok()
}
