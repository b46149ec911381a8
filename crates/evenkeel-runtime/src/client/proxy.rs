//! Proxies between client and server: the kubeconfig's, or else the environment's.
//!
//! | URL of the proxy | server over TLS | server without TLS |
//! |---|---|---|
//! | `http://`, `https://` | tunnel with CONNECT | the proxy forwards each request |
//! | `socks5://`, `socks5h://` | SOCKS5; the proxy resolves the server's name | the same |
//!
//! Upstream: `http.ProxyFromEnvironment`, which all of client-go's transports use.

use super::ConnectError;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use evenkeel_api::cidr::Cidr;
use futures::future::BoxFuture;
use http::{HeaderValue, Uri, uri::Scheme};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::legacy::connect::{
        Connected, Connection, HttpConnector,
        proxy::{SocksV5, Tunnel},
    },
    rt::TokioIo,
};
use percent_encoding::percent_decode_str;
use rustls::ClientConfig;
use std::{
    io::{self, IoSlice},
    net::IpAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::net::TcpStream;
use tower::{BoxError, Service};

/// Timeout of the connection to a server through a proxy.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Proxy between this process and a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proxy {
    protocol: Protocol,
    /// Scheme, host and port. The scheme of a SOCKS5 proxy is `http`, as for any connection without TLS.
    address: Uri,
    credentials: Option<Credentials>,
}

/// Protocol of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// HTTP, with or without TLS.
    Http,
    Socks5,
}

/// User name and password for a proxy. Never printed.
#[derive(Clone, PartialEq, Eq)]
struct Credentials {
    user: String,
    password: String,
    /// Value of `Proxy-Authorization`.
    header: HeaderValue,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    /// Parses `name:password`, which is percent-encoded.
    fn parse(user_info: &str) -> Result<Self, http::header::InvalidHeaderValue> {
        let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
        let [user, password] =
            [user, password].map(|text| percent_decode_str(text).decode_utf8_lossy().into_owned());
        let encoded = BASE64_STANDARD.encode(format!("{user}:{password}"));
        let mut header = HeaderValue::try_from(format!("Basic {encoded}"))?;
        header.set_sensitive(true);
        Ok(Self { user, password, header })
    }
}

impl Proxy {
    /// Parses a proxy's URL. `http://` may be omitted.
    pub(super) fn parse(text: &str) -> Result<Self, ConnectError> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let (user_info, host_and_port) = match rest.rsplit_once('@') {
            Some((user_info, host_and_port)) => (Some(user_info), host_and_port),
            None => (None, rest),
        };
        // The error does not contain the password.
        let invalid = || ConnectError::Proxy(format!("{scheme}://{host_and_port}"));
        let (protocol, scheme, default_port) = match scheme {
            "http" => (Protocol::Http, "http", 80),
            "https" => (Protocol::Http, "https", 443),
            "socks5" | "socks5h" => (Protocol::Socks5, "http", 1080),
            _ => return Err(invalid()),
        };
        let url: Uri = format!("{scheme}://{host_and_port}").parse().map_err(|_| invalid())?;
        let host = url.host().ok_or_else(invalid)?;
        let address = format!("{scheme}://{host}:{}", url.port_u16().unwrap_or(default_port));
        Ok(Self {
            protocol,
            address: address.parse().map_err(|_| invalid())?,
            credentials: user_info.map(Credentials::parse).transpose().map_err(|_| invalid())?,
        })
    }

    /// Returns the `Proxy-Authorization` header of a forwarded request. Returns `None` for tunnels, which send the
    /// credentials when they are opened.
    pub(super) fn authorization(&self, server: &Uri) -> Option<HeaderValue> {
        let header = self.credentials.as_ref().map(|credentials| credentials.header.clone());
        header.filter(|_| self.forwards(server))
    }

    /// Returns whether the proxy forwards each request, instead of the bytes of a connection.
    fn forwards(&self, server: &Uri) -> bool {
        self.protocol == Protocol::Http && !is_https(server)
    }
}

/// Proxies of the environment: `HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY`. The lower-case variable applies if the
/// upper-case one is empty.
///
/// Upstream: Go's `httpproxy.FromEnvironment`.
#[derive(Debug, Clone, Default)]
pub(super) struct ProxyEnvironment {
    http: String,
    https: String,
    /// Hosts that need no proxy (`NO_PROXY`).
    no_proxy: String,
}

impl ProxyEnvironment {
    /// Reads the environment of this process.
    #[expect(
        clippy::disallowed_methods,
        reason = "as upstream, the environment configures transports"
    )]
    pub(super) fn from_process() -> Self {
        Self::of(|name| std::env::var(name).unwrap_or_default())
    }

    fn of(value: impl Fn(&str) -> String) -> Self {
        let [http, https, no_proxy] = ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"].map(|name| {
            let upper_case = value(name);
            if upper_case.is_empty() { value(&name.to_ascii_lowercase()) } else { upper_case }
        });
        Self { http, https, no_proxy }
    }

    /// Returns the proxy for a server, if any.
    ///
    /// Upstream: `ProxyFromEnvironment`.
    pub(super) fn proxy_for(&self, server: &Uri) -> Result<Option<Proxy>, ConnectError> {
        let proxy = if is_https(server) { &self.https } else { &self.http };
        let host = server.host().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
        let address: Option<IpAddr> = host.parse().ok();
        let is_local = host == "localhost" || address.is_some_and(|address| address.is_loopback());
        if proxy.is_empty() || is_local {
            return Ok(None);
        }
        let port = port(server).to_string();
        let mut exempt = self.no_proxy.split(',').map(|entry| entry.trim().to_ascii_lowercase());
        if exempt.any(|entry| matches_no_proxy(&entry, &host, address, &port)) {
            return Ok(None);
        }
        Proxy::parse(proxy).map(Some)
    }
}

/// Returns whether an entry of `NO_PROXY` matches this host.
fn matches_no_proxy(entry: &str, host: &str, address: Option<IpAddr>, port: &str) -> bool {
    if entry == "*" {
        return true;
    }
    if let Some(range) = Cidr::parse(entry) {
        return address.is_some_and(|address| range.contains(address));
    }
    let (name, entry_port) = split_port(entry);
    if !entry_port.is_empty() && entry_port != port {
        return false;
    }
    if let Ok(entry_address) = name.parse::<IpAddr>() {
        return address == Some(entry_address);
    }
    // A name with a leading dot matches only subdomains. Any other name also matches itself.
    let name = name.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(name);
    if address.is_some() {
        return false;
    }
    let is_subdomain_of =
        |domain: &str| host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    match name.strip_prefix('.') {
        Some(domain) => !domain.is_empty() && is_subdomain_of(domain),
        None => !name.is_empty() && (host == name || is_subdomain_of(name)),
    }
}

/// Splits an entry into host and port. The port may be empty.
fn split_port(entry: &str) -> (&str, &str) {
    match entry.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
        Some(host_and_port) => host_and_port,
        None => {
            entry.split_once(':').filter(|(_, port)| !port.contains(':')).unwrap_or((entry, ""))
        }
    }
}

fn is_https(server: &Uri) -> bool {
    server.scheme() == Some(&Scheme::HTTPS)
}

fn port(server: &Uri) -> u16 {
    server.port_u16().unwrap_or(if is_https(server) { 443 } else { 80 })
}

/// Connector to the server, directly or through a proxy.
#[derive(Clone)]
pub(super) struct Connector {
    http: HttpConnector,
    proxy: Option<Proxy>,
    /// Connector to the proxy, with TLS if its URL says so.
    to_proxy: HttpsConnector<HttpConnector>,
}

impl Connector {
    /// Creates a connector. `tls` verifies a proxy with TLS, like the server, as client-go does.
    pub(super) fn new(http: HttpConnector, proxy: Option<Proxy>, tls: ClientConfig) -> Self {
        let to_proxy = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        Self { to_proxy: to_proxy.enable_http1().wrap_connector(http.clone()), http, proxy }
    }

    /// Starts a connection to the server through the proxy.
    fn connect_through(
        &mut self,
        proxy: &Proxy,
        server: Uri,
    ) -> BoxFuture<'static, Result<MaybeHttpsStream<Tcp>, BoxError>> {
        let credentials = proxy.credentials.as_ref();
        match proxy.protocol {
            Protocol::Http if proxy.forwards(&server) => {
                Box::pin(self.to_proxy.call(proxy.address.clone()))
            }
            Protocol::Http => {
                let tunnel = Tunnel::new(proxy.address.clone(), self.to_proxy.clone());
                let mut tunnel = match credentials {
                    Some(credentials) => tunnel.with_auth(credentials.header.clone()),
                    None => tunnel,
                };
                let opening = tunnel.call(server);
                Box::pin(async move { Ok(opening.await?) })
            }
            Protocol::Socks5 => {
                let socks = SocksV5::new(proxy.address.clone(), self.http.clone());
                let mut socks = match credentials.cloned() {
                    Some(Credentials { user, password, .. }) => socks.with_auth(user, password),
                    None => socks,
                };
                let opening = socks.call(server);
                Box::pin(async move { Ok(MaybeHttpsStream::Http(opening.await?)) })
            }
        }
    }
}

impl Service<Uri> for Connector {
    type Response = ProxyStream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<ProxyStream, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.http.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let Some(proxy) = self.proxy.clone() else {
            let connecting = self.http.call(server);
            return Box::pin(async move {
                let stream = MaybeHttpsStream::Http(connecting.await?);
                Ok(ProxyStream { stream, forwarded: false })
            });
        };
        let forwarded = proxy.forwards(&server);
        let server = match with_port(&server) {
            Ok(server) => server,
            Err(error) => return Box::pin(async move { Err(error.into()) }),
        };
        let connecting = self.connect_through(&proxy, server);
        Box::pin(async move {
            let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
            let stream = connected
                .map_err(BoxError::from)
                .flatten()
                .map_err(|source| ProxyError { address: proxy.address, source })?;
            Ok(ProxyStream { stream, forwarded })
        })
    }
}

/// Failure to connect to the server through a proxy.
#[derive(Debug, thiserror::Error)]
#[error("proxy {address}")]
struct ProxyError {
    address: Uri,
    source: BoxError,
}

/// Returns the server's address with its port.
fn with_port(server: &Uri) -> Result<Uri, http::Error> {
    let scheme = server.scheme_str().unwrap_or("https");
    let authority = format!("{}:{}", server.host().unwrap_or_default(), port(server));
    Uri::builder().scheme(scheme).authority(authority).path_and_query("/").build()
}

/// Connection without TLS.
type Tcp = TokioIo<TcpStream>;

/// Connection to the server, or to a forwarding proxy.
pub(super) struct ProxyStream {
    stream: MaybeHttpsStream<Tcp>,
    /// Whether the peer is a proxy that forwards each request.
    forwarded: bool,
}

impl Connection for ProxyStream {
    fn connected(&self) -> Connected {
        // A forwarded request contains the server's address.
        self.stream.connected().proxy(self.forwarded)
    }
}

impl Read for ProxyStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl Write for ProxyStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{client::full_text, tasks::Tasks};
    use kube::Config;
    use std::{collections::BTreeMap, sync::Arc};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
        sync::oneshot,
    };

    /// Returns the proxies of an environment with these variables.
    fn environment(all: &[(&str, &str)]) -> ProxyEnvironment {
        let all: BTreeMap<&str, &str> = all.iter().copied().collect();
        ProxyEnvironment::of(|name| all.get(name).copied().unwrap_or_default().to_owned())
    }

    #[test]
    fn local_hosts_and_those_in_no_proxy_need_no_proxy() {
        for (none, server, direct) in [
            ("", "https://api.example:6443", false),
            ("", "https://localhost:6443", true),
            ("", "https://127.0.0.1:6443", true),
            ("", "https://[::1]:6443", true),
            ("*", "https://api.example", true),
            ("api.example", "https://API.example", true),
            ("example", "https://api.example", true),
            ("ample", "https://api.example", false),
            (".example, other", "https://api.example", true),
            ("*.example", "https://api.example", true),
            (".api.example", "https://api.example", false),
            ("example:6443", "https://api.example:6443", true),
            ("example:443", "https://api.example:6443", false),
            ("example:443", "https://api.example", true),
            ("10.0.0.0/8", "https://10.96.0.1", true),
            ("10.0.0.0/8", "https://11.96.0.1", false),
            ("10.96.0.1", "https://10.96.0.1:6443", true),
            ("10.96.0.1:443", "https://10.96.0.1:6443", false),
            ("96.0.1", "https://10.96.0.1", false),
            ("[fd00::1]:6443", "https://[fd00::1]:6443", true),
            ("fd00::/8", "https://[fd00::1]:6443", true),
            (" ,, .", "https://api.example", false),
        ] {
            let environment = environment(&[("HTTPS_PROXY", "proxy:3128"), ("NO_PROXY", none)]);
            let proxy = environment.proxy_for(&server.parse().unwrap()).unwrap();
            assert_eq!(proxy.is_none(), direct, "{none:?} {server}");
        }
    }

    #[test]
    fn each_scheme_has_its_own_proxy() {
        let both = environment(&[
            ("http_proxy", "http://unused"),
            ("HTTP_PROXY", "http://plain"),
            ("HTTPS_PROXY", ""),
            ("https_proxy", "http://me:p%40ss@secure:3128/"),
        ]);
        let proxy = |server: &str| both.proxy_for(&server.parse().unwrap()).unwrap().unwrap();
        assert_eq!(proxy("http://a.example").address, "http://plain:80");
        let secure = proxy("https://a.example");
        assert_eq!(secure.address, "http://secure:3128");
        assert_eq!(secure.credentials.as_ref().unwrap().header, "Basic bWU6cEBzcw==");
        let printed = format!("{secure:?}");
        assert!(!printed.contains("bWU6") && !printed.contains("p@ss"), "{printed}");
        let none = ProxyEnvironment::default().proxy_for(&"https://a.example".parse().unwrap());
        assert_eq!(none.unwrap(), None);
        for (url, protocol, address) in [
            ("https://proxy", Protocol::Http, "https://proxy:443"),
            ("socks5://me:secret@proxy", Protocol::Socks5, "http://proxy:1080"),
            ("socks5h://[fd00::1]:9", Protocol::Socks5, "http://[fd00::1]:9"),
        ] {
            let parsed = Proxy::parse(url).unwrap();
            assert_eq!((parsed.protocol, parsed.address), (protocol, address.parse().unwrap()));
        }
        for text in ["socks4://me:secret@proxy:1080", "ftp://proxy", "http://a b"] {
            let error = Proxy::parse(text).unwrap_err().to_string();
            assert!(error.contains("http://") && !error.contains("secret"), "{error}");
        }
    }

    /// Starts a proxy that sends the head it receives to the receiver, answers with `answer`, and then echoes.
    async fn proxy(tasks: &Tasks, answer: &'static str) -> (String, oneshot::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, head) = oneshot::channel();
        tasks.spawn_until_cancelled("proxy", async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                assert!(stream.read_buf(&mut head).await.unwrap() > 0);
            }
            sender.send(String::from_utf8(head).unwrap()).unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            let (mut from, mut to) = stream.split();
            // A client that has read enough closes the connection.
            drop(tokio::io::copy(&mut from, &mut to).await);
        });
        (address, head)
    }

    /// Returns a connector through a proxy.
    fn connector(proxy: Proxy) -> Connector {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        let tls =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(rustls::RootCertStore::empty())
                .with_no_client_auth();
        Connector::new(http, Some(proxy), tls)
    }

    /// Sends `hello` and returns the echoed bytes.
    async fn echo(connected: ProxyStream) -> String {
        let MaybeHttpsStream::Http(stream) = connected.stream else { panic!("TLS to the proxy") };
        let mut stream = stream.into_inner();
        stream.write_all(b"hello").await.unwrap();
        let mut echo = [0; 5];
        stream.read_exact(&mut echo).await.unwrap();
        String::from_utf8(echo.to_vec()).unwrap()
    }

    /// The proxy gets the server's name and resolves it.
    #[tokio::test]
    async fn socks5_carries_any_connection() {
        for server in ["https://api.example", "http://api.example:443"] {
            let tasks = Tasks::new();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tasks.spawn_until_cancelled("proxy", async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                let said = |bytes: usize| vec![0; bytes];
                let mut greeting = said(3);
                stream.read_exact(&mut greeting).await.unwrap();
                assert_eq!(greeting, [5, 1, 2], "version 5, one method: user name and password");
                stream.write_all(&[5, 2]).await.unwrap();
                let mut credentials = said(11);
                stream.read_exact(&mut credentials).await.unwrap();
                assert_eq!(credentials, b"\x01\x02me\x06secret");
                stream.write_all(&[1, 0]).await.unwrap();
                let mut request = said(18);
                stream.read_exact(&mut request).await.unwrap();
                assert_eq!(request, b"\x05\x01\x00\x03\x0bapi.example\x01\xbb");
                stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
                let (mut from, mut to) = stream.split();
                drop(tokio::io::copy(&mut from, &mut to).await);
            });
            let proxy = Proxy::parse(&format!("socks5://me:secret@{address}")).unwrap();
            assert_eq!(proxy.authorization(&server.parse().unwrap()), None);
            let connected = connector(proxy).call(server.parse().unwrap()).await.unwrap();
            assert!(!connected.forwarded);
            assert_eq!(echo(connected).await, "hello");
            tasks.shut_down(CONNECT_TIMEOUT).await;
        }
    }

    #[tokio::test]
    async fn tls_uses_a_tunnel() {
        for (answer, opened) in [
            ("HTTP/1.1 200 Connection established\r\nVia: p\r\n\r\n", true),
            ("HTTP/1.0 407 Proxy Authentication Required\r\n\r\nwho are you", false),
        ] {
            let tasks = Tasks::new();
            let (address, head) = proxy(&tasks, answer).await;
            let proxy = Proxy::parse(&format!("http://me:secret@{address}")).unwrap();
            let mut connector = connector(proxy);
            let connected = connector.call("https://api.example:6443".parse().unwrap()).await;
            assert_eq!(
                head.await.unwrap(),
                "CONNECT api.example:6443 HTTP/1.1\r\nHost: api.example:6443\r\n\
                 Proxy-Authorization: Basic bWU6c2VjcmV0\r\n\r\n"
            );
            match connected {
                Ok(connected) => {
                    assert_eq!((echo(connected).await, opened), ("hello".to_owned(), true));
                }
                Err(error) => {
                    let text = full_text(&*error);
                    assert!(!opened && text.ends_with("proxy authorization required"), "{text}");
                }
            }
            tasks.shut_down(CONNECT_TIMEOUT).await;
        }
    }

    #[tokio::test]
    async fn the_proxy_forwards_requests_without_tls() {
        let tasks = Tasks::new();
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhere";
        let (address, head) = proxy(&tasks, answer).await;
        let mut config = Config::new("http://api.example:8080".parse().unwrap());
        config.proxy_url = Some(format!("http://me:secret@{address}").parse().unwrap());
        let client = crate::client::transport(&config).unwrap();
        let request = http::Request::get("/pods").body(Vec::new()).unwrap();
        assert_eq!(client.request_text(request).await.unwrap(), "here");
        let head = head.await.unwrap().to_ascii_lowercase();
        assert!(head.starts_with("get http://api.example:8080/pods http/1.1\r\n"), "{head}");
        assert!(head.contains("proxy-authorization: basic bwu6c2vjcmv0\r\n"), "{head}");
        tasks.shut_down(CONNECT_TIMEOUT).await;
    }
}
