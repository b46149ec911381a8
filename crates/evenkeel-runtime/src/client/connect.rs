//! Connection of a client with a kubeconfig or a pod's service account.

use super::{
    Client,
    connection_pool::ConnectionPool,
    proxy::{Connector, Proxy, ProxyEnvironment},
    roots,
    transport::{ReplaceableStack, Stack, Transport},
};
use crate::clock::Clock;
use futures::future::BoxFuture;
use http::{Request, header};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Config,
    client::{Body, ConfigExt as _},
    config::{
        InClusterError, InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError,
        LoadDataError, NamedCluster,
    },
};
use prometheus::Registry;
use rustls::ClientConfig;
use std::{path::PathBuf, time::Duration};
use tower::{BoxError, ServiceBuilder, util::MapRequestLayer};

/// Options of a connection. The default infers the configuration as kubectl does: from `$KUBECONFIG`,
/// `~/.kube/config`, or the pod's service account, in this order.
#[derive(Clone, Default)]
pub struct ConnectOptions {
    /// Path of the kubeconfig. `None` infers the configuration.
    pub kubeconfig: Option<PathBuf>,
    /// Whether only the pod's service account is used if no kubeconfig and no server is given. Programs of the cluster
    /// set it, so that they never act on the cluster of the user's own kubeconfig.
    ///
    /// Upstream: `BuildConfigFromFlags`.
    pub only_in_pod: bool,
    /// Context of the kubeconfig. `None` uses its current context.
    pub context: Option<String>,
    /// URL of the server, which replaces the kubeconfig's: `--master` of upstream's programs.
    pub server: Option<String>,
    /// Bearer token, which replaces the kubeconfig's credentials.
    pub token: Option<String>,
    /// `User-Agent` header. Empty means the default.
    pub user_agent: String,
    /// Requests per second, see [`super::ClientBuilder::qps`]. 0, the default here, means client-go's 5;
    /// negative means no limit.
    pub qps: f32,
    /// Number of requests that may be sent in a burst, see [`super::ClientBuilder::burst`].
    pub burst: u32,
    /// Registry of the `rest_client_*` metrics; `None` for no metrics.
    pub registry: Option<Registry>,
}

impl std::fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            kubeconfig,
            only_in_pod,
            context,
            server,
            token,
            user_agent,
            qps,
            burst,
            registry: _,
        } = self;
        f.debug_struct("ConnectOptions")
            .field("kubeconfig", kubeconfig)
            .field("only_in_pod", only_in_pod)
            .field("context", context)
            .field("server", server)
            .field("token", &token.as_ref().map(|_| "…"))
            .field("user_agent", user_agent)
            .field("qps", qps)
            .field("burst", burst)
            .finish_non_exhaustive()
    }
}

/// Error from connecting a client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The named kubeconfig cannot be used.
    #[error("kubeconfig {}: {}", path.display(), kubeconfig_text(source))]
    Kubeconfig {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// Error of reading or parsing it.
        source: Box<KubeconfigError>,
    },
    /// No configuration could be inferred.
    #[error(
        "no API server to connect to: name a kubeconfig, or run in a pod with a service account: {0}"
    )]
    Infer(Box<InferConfigError>),
    /// The pod's service account is absent or incomplete ([`ConnectOptions::only_in_pod`]).
    #[error(
        "no API server to connect to: name a kubeconfig or a server, or run in a pod with a service account: {0}"
    )]
    Pod(Box<InClusterError>),
    /// The server's URL is invalid.
    #[error("server URL {url:?}: {source}")]
    Server {
        /// The URL of the option.
        url: String,
        /// Error of parsing it.
        source: http::uri::InvalidUri,
    },
    /// Certificates or credentials cannot be used.
    #[error("certificates or credentials for {server}: {source}")]
    Credentials {
        /// The server's URL.
        server: String,
        /// Error of the certificates or credentials.
        source: Box<kube::Error>,
    },
    /// The CA certificates of the server cannot be used.
    #[error("certificates of the authority for {server}: {source}")]
    Authority {
        /// The server's URL.
        server: String,
        /// Error of the CA certificates.
        source: rustls::Error,
    },
    /// `tls-server-name` is invalid.
    #[error("tls-server-name {0:?} is not a DNS name or an IP address")]
    ServerName(String),
    /// The kubeconfig or the environment names a proxy with another protocol, or an invalid URL.
    #[error(
        "the proxy {0} cannot be used: only http://, https:// and socks5:// proxies are supported"
    )]
    Proxy(String),
}

/// Connects a client.
///
/// ```no_run
/// use evenkeel_runtime::{client::{self, ConnectOptions}, clock::Clock};
///
/// # async fn run() -> Result<(), client::ConnectError> {
/// let options = ConnectOptions { kubeconfig: Some("/etc/kubernetes/controller-manager.conf".into()), qps: 20.0, burst:
/// 30, ..Default::default() }; let client = client::connect(options, Clock::system()).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Fails if a file or a field cannot be used. The error names it. The function sends no request.
pub async fn connect(options: ConnectOptions, clock: Clock) -> Result<Client, ConnectError> {
    let config = config(&options).await?;
    let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    let mut builder = Client::builder(create_transport(&config)?, clock)
        .qps(options.qps)
        .burst(options.burst)
        .host(&host);
    if !options.user_agent.is_empty() {
        builder = builder.user_agent(&options.user_agent);
    }
    if let Some(registry) = &options.registry {
        builder = builder.registry(registry);
    }
    Ok(builder.build())
}

/// Like [`connect`] with the pod's service account; kubeconfigs are ignored. Returns `None` outside of pods,
/// and when the service account's files cannot be read.
///
/// Upstream: `InClusterConfig`.
///
/// # Errors
/// Fails if the certificates or the proxy cannot be used.
pub fn connect_in_pod(
    options: &ConnectOptions,
    clock: Clock,
) -> Result<Option<Client>, ConnectError> {
    let config = match Config::incluster() {
        Ok(config) => config,
        Err(InClusterError::ReadEnvironmentVariable(_)) => return Ok(None),
        Err(error) => {
            tracing::warn!(%error, "The pod's service account cannot be used");
            return Ok(None);
        }
    };
    let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    let builder = Client::builder(create_transport(&config)?, clock)
        .qps(options.qps)
        .burst(options.burst)
        .user_agent(&options.user_agent)
        .host(&host);
    Ok(Some(builder.build()))
}

/// Returns the configuration that [`connect`] uses. Programs may change it before they call [`transport`].
///
/// # Errors
/// Fails if a file or a field cannot be used; the error names it.
pub fn config(options: &ConnectOptions) -> BoxFuture<'_, Result<Config, ConnectError>> {
    Box::pin(read_config(options))
}

async fn read_config(options: &ConnectOptions) -> Result<Config, ConnectError> {
    let mut config = match (&options.kubeconfig, &options.server) {
        (Some(path), _) => from_file(path, options.context.as_ref()).await?,
        (None, Some(url)) => Config::new(parse_server(url)?),
        (None, None) if options.only_in_pod => in_pod()?,
        (None, None) => infer(options.context.as_ref()).await?,
    };
    if let Some(url) = &options.server {
        config.cluster_url = parse_server(url)?;
    }
    if let Some(token) = &options.token {
        config.auth_info =
            kube::config::AuthInfo { token: Some(token.clone().into()), ..Default::default() };
    }
    Ok(config)
}

fn parse_server(url: &str) -> Result<http::Uri, ConnectError> {
    // Upstream's `--master` also accepts a host and port without a scheme.
    let with_scheme = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    with_scheme.parse().map_err(|source| ConnectError::Server { url: url.to_owned(), source })
}

async fn from_file(path: &PathBuf, context: Option<&String>) -> Result<Config, ConnectError> {
    let failed = |source| ConnectError::Kubeconfig { path: path.clone(), source: Box::new(source) };
    let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
    let names_proxy = names_proxy(&kubeconfig, context);
    let options = KubeConfigOptions { context: context.cloned(), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(failed)?;
    Ok(without_environment_proxy(config, names_proxy))
}

/// Creates a transport with a kubeconfig that is in memory, for its current context.
///
/// # Errors
/// Fails if a field cannot be used.
pub(crate) async fn of_kubeconfig(kubeconfig: Kubeconfig) -> Result<Transport, ConnectError> {
    let names_proxy = names_proxy(&kubeconfig, None);
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let config = config.map_err(|source| ConnectError::Kubeconfig {
        path: "(in memory)".into(),
        source: Box::new(source),
    })?;
    create_transport(&without_environment_proxy(config, names_proxy))
}

/// Removes a proxy that only the environment names, because kube ignores `NO_PROXY`. `in_kubeconfig` is whether the
/// kubeconfig names the proxy.
fn without_environment_proxy(mut config: Config, in_kubeconfig: bool) -> Config {
    if !in_kubeconfig {
        config.proxy_url = None;
    }
    config
}

/// Returns whether the kubeconfig names a proxy (`proxy-url`).
fn names_proxy(kubeconfig: &Kubeconfig, context: Option<&String>) -> bool {
    let context_name = context.or(kubeconfig.current_context.as_ref());
    let context = kubeconfig.contexts.iter().find(|named| Some(&named.name) == context_name);
    let context = context.and_then(|named| named.context.as_ref());
    let is_of_context =
        |named: &&NamedCluster| context.is_some_and(|context| context.cluster == named.name);
    let cluster =
        kubeconfig.clusters.iter().find(is_of_context).and_then(|named| named.cluster.as_ref());
    let proxy = cluster.and_then(|cluster| cluster.proxy_url.as_deref());
    proxy.is_some_and(|url| !url.is_empty())
}

fn in_pod() -> Result<Config, ConnectError> {
    tracing::warn!(
        "Neither a kubeconfig nor a server is named; the pod's service account is used, if there is one"
    );
    Config::incluster().map_err(|error| ConnectError::Pod(Box::new(error)))
}

/// Infers the configuration as kubectl does. `context` names a context of the kubeconfig; `None` selects the current
/// context.
async fn infer(context: Option<&String>) -> Result<Config, ConnectError> {
    let names_proxy = Kubeconfig::read().is_ok_and(|read| names_proxy(&read, context));
    infer_config(context).await.map(|config| without_environment_proxy(config, names_proxy))
}

async fn infer_config(context: Option<&String>) -> Result<Config, ConnectError> {
    let Some(context) = context else {
        return Config::infer().await.map_err(|error| ConnectError::Infer(Box::new(error)));
    };
    let options =
        KubeConfigOptions { context: Some(context.clone()), ..KubeConfigOptions::default() };
    Config::from_kubeconfig(&options).await.map_err(|source| ConnectError::Kubeconfig {
        path: "(from $KUBECONFIG or ~/.kube/config)".into(),
        source: Box::new(source),
    })
}

/// Returns kube's message, prefixed with the kubeconfig's invalid field.
fn kubeconfig_text(error: &KubeconfigError) -> String {
    let field = match error {
        KubeconfigError::CurrentContextNotSet => "current-context",
        KubeconfigError::LoadContext(_) => "contexts",
        KubeconfigError::LoadClusterOfContext(_) => "clusters",
        KubeconfigError::MissingClusterUrl | KubeconfigError::ParseClusterUrl(_) => {
            "clusters[].cluster.server"
        }
        KubeconfigError::LoadCertificateAuthority(LoadDataError::DecodeBase64(_)) => {
            "clusters[].cluster.certificate-authority-data"
        }
        KubeconfigError::LoadCertificateAuthority(_) | KubeconfigError::ParseCertificates(_) => {
            "clusters[].cluster.certificate-authority"
        }
        KubeconfigError::LoadClientCertificate(_) => "users[].user.client-certificate",
        KubeconfigError::LoadClientKey(_) => "users[].user.client-key",
        KubeconfigError::ParseProxyUrl(_) => "clusters[].cluster.proxy-url",
        KubeconfigError::ReadConfig(io, _) => return format!("cannot be read: {io}"),
        _ => return error.to_string(),
    };
    format!("{field}: {error}")
}

/// Creates a transport for controllers.
///
/// It uses HTTP/2 if the server supports it, so that many concurrent writes and watches share one connection, one TLS
/// session and few system calls. It opens another connection for every 90 concurrent requests. Otherwise it uses
/// HTTP/1.1 with a pool. It does not compress: on a cluster's network, compression costs both sides more than it saves.
/// It closes a connection whose server responds to no ping for 45 s. The configuration determines the proxy, or else
/// the environment (`HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY`).
///
/// Call it inside the tokio runtime that the transport will run in.
///
/// # Errors
/// Fails if certificates or credentials cannot be used.
pub fn transport(config: &Config) -> Result<kube::Client, ConnectError> {
    create_transport(config).map(Into::into)
}

fn create_transport(config: &Config) -> Result<Transport, ConnectError> {
    Ok(Transport::new(ReplaceableStack::new(build_stack(config)?), &config.default_namespace))
}

/// Creates a transport that uses only HTTP/1.1: a connection for each concurrent request, as kube's own client. See
/// [`Transport::try_default`].
pub(super) fn create_http1_transport(config: &Config) -> Result<Transport, ConnectError> {
    let stack = build_stack_of(config, HttpVersions::Http1)?;
    Ok(Transport::new(ReplaceableStack::new(stack), &config.default_namespace))
}

/// HTTP versions that a client offers to the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HttpVersions {
    Http1,
    All,
}

/// Builds the layers of a [`transport`].
pub(super) fn build_stack(config: &Config) -> Result<Stack, ConnectError> {
    build_stack_of(config, HttpVersions::All)
}

fn build_stack_of(config: &Config, versions: HttpVersions) -> Result<Stack, ConnectError> {
    let proxy = match &config.proxy_url {
        Some(url) => Some(Proxy::parse(&url.to_string())?),
        None => ProxyEnvironment::from_process().proxy_for(&config.cluster_url)?,
    };
    let proxy_authorization =
        proxy.as_ref().and_then(|proxy| proxy.authorization(&config.cluster_url));
    let proxy_authorization = proxy_authorization.map(|value| {
        MapRequestLayer::new(move |mut request: Request<Body>| {
            request.headers_mut().insert(header::PROXY_AUTHORIZATION, value.clone());
            request
        })
    });
    let failed = |source| ConnectError::Credentials {
        server: config.cluster_url.to_string(),
        source: Box::new(source),
    };
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(config.connect_timeout);
    let tls_config = client_config(config)?;
    let connector = Connector::new(http, proxy, tls_config.clone());
    let mut tls = HttpsConnectorBuilder::new().with_tls_config(tls_config).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let parsed = name.clone().try_into().map_err(|_| ConnectError::ServerName(name.clone()))?;
        tls = tls.with_server_name_resolver(FixedServerNameResolver::new(parsed));
    }
    let connector = match versions {
        HttpVersions::Http1 => tls.enable_http1().wrap_connector(connector),
        HttpVersions::All => tls.enable_all_versions().wrap_connector(connector),
    };
    let mut connection = legacy::Builder::new(TokioExecutor::new());
    connection
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(90))
        .http2_keep_alive_interval(Duration::from_secs(30))
        .http2_keep_alive_timeout(Duration::from_secs(15))
        .http2_keep_alive_while_idle(true);
    let pool = ConnectionPool::new(move || connection.build(connector.clone()));
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(failed)?)
        .layer(config.extra_headers_layer().map_err(failed)?)
        .option_layer(proxy_authorization)
        .map_err(BoxError::from)
        .service(pool);
    Ok(Stack::new(service))
}

/// Returns the TLS configuration with the client certificate and the trusted CAs.
fn client_config(config: &Config) -> Result<ClientConfig, ConnectError> {
    let failed = |source| ConnectError::Credentials {
        server: config.cluster_url.to_string(),
        source: Box::new(source),
    };
    // `roots::verifier` replaces kube's verifier below. Give kube an empty list of root certificates, so that
    // it does not load the system's, which small images lack.
    let mut without_system_roots = config.clone();
    without_system_roots.root_cert.get_or_insert_default();
    let mut tls = without_system_roots.rustls_client_config().map_err(failed)?;
    let verifies_server = config.cluster_url.scheme() != Some(&http::uri::Scheme::HTTP)
        && !config.accept_invalid_certs;
    if verifies_server {
        let verifier = roots::verifier(config).map_err(|source| ConnectError::Authority {
            server: config.cluster_url.to_string(),
            source,
        })?;
        tls.dangerous().set_certificate_verifier(verifier);
    }
    Ok(tls)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn error_of(options: ConnectOptions) -> String {
        match connect(options, Clock::system()).await {
            Ok(_) => panic!("connected"),
            Err(error) => error.to_string(),
        }
    }

    /// Writes a temporary file and returns its path.
    fn file(name: &str, text: &str) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("evenkeel-connect-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    #[tokio::test]
    async fn errors_name_the_kubeconfig_and_the_field() {
        let missing = PathBuf::from("/nonexistent/kubeconfig");
        let text =
            error_of(ConnectOptions { kubeconfig: Some(missing), ..Default::default() }).await;
        assert!(text.starts_with("kubeconfig /nonexistent/kubeconfig: cannot be read: "), "{text}");

        let path = file(
            "no-server",
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\nclusters: [{name: k, cluster: {}}]\nusers: [{name: u, user: {}}]\n",
        );
        let text =
            error_of(ConnectOptions { kubeconfig: Some(path.clone()), ..Default::default() }).await;
        assert!(
            text.contains(&*path.to_string_lossy()) && text.contains("clusters[].cluster.server"),
            "{text}"
        );

        let options = ConnectOptions {
            kubeconfig: Some(path.clone()),
            context: Some("other".into()),
            ..Default::default()
        };
        let text = error_of(options).await;
        assert!(text.contains("contexts") && text.contains("other"), "{text}");
        std::fs::remove_file(path).unwrap();
    }

    /// The test runs outside of pods, perhaps with a kubeconfig of the user.
    #[tokio::test]
    async fn only_in_pod_ignores_the_users_kubeconfig() {
        let options = ConnectOptions { only_in_pod: true, ..Default::default() };
        let error = config(&options).await.expect_err("this is no pod");
        assert!(matches!(error, ConnectError::Pod(_)), "{error}");
        let server = Some("api.example:6443".to_owned());
        let named = config(&ConnectOptions { server, ..options }).await.expect("named");
        assert_eq!(named.cluster_url, "http://api.example:6443");
    }

    #[tokio::test]
    async fn the_error_names_an_invalid_server_url() {
        let text =
            error_of(ConnectOptions { server: Some("https://a b".into()), ..Default::default() })
                .await;
        assert!(text.contains("https://a b"), "{text}");
    }

    #[test]
    fn only_proxy_url_of_the_contexts_cluster_names_a_proxy() {
        let kubeconfig = |cluster: &str| {
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
                 clusters: [{{name: j, cluster: {{proxy-url: \"http://j\"}}}}, {{name: k, cluster: {{{cluster}}}}}]\nusers: []\n"
            );
            Kubeconfig::from_yaml(&text).unwrap()
        };
        assert!(!names_proxy(&kubeconfig("server: \"https://h\""), None));
        assert!(!names_proxy(&kubeconfig("proxy-url: \"\""), None));
        assert!(names_proxy(&kubeconfig("proxy-url: \"http://p\""), None));
        assert!(!names_proxy(&kubeconfig("proxy-url: \"http://p\""), Some(&"other".to_owned())));
    }

    #[test]
    fn a_token_is_not_printed() {
        let options = ConnectOptions { token: Some("s3cret".into()), ..Default::default() };
        assert!(!format!("{options:?}").contains("s3cret"));
    }
}
