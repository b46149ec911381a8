//! HTTP proxies between client and server: the kubeconfig's, or else the environment's.
//!
//! Upstream: `http.ProxyFromEnvironment`, which all of client-go's transports use.

use super::ConnectError;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use evenkeel_api::cidr::Cidr;
use futures::future::BoxFuture;
use http::{HeaderValue, Uri, uri::Scheme};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection, HttpConnector},
    rt::TokioIo,
};
use percent_encoding::percent_decode_str;
use std::{
    io::{self, IoSlice},
    net::IpAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tower::{BoxError, Service};

/// Timeout of a CONNECT request to a proxy.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Limit on the head of the proxy's response to CONNECT, in bytes.
const MAX_RESPONSE_HEAD: usize = 64 * 1024;

/// An HTTP proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proxy {
    address: Uri,
    /// Value of `Proxy-Authorization`. Never printed.
    authorization: Option<HeaderValue>,
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
        let url: Uri = format!("{scheme}://{host_and_port}").parse().map_err(|_| invalid())?;
        let host =
            url.host().filter(|_| url.scheme() == Some(&Scheme::HTTP)).ok_or_else(invalid)?;
        let address = format!("http://{host}:{}", url.port_u16().unwrap_or(80));
        Ok(Self {
            address: address.parse().map_err(|_| invalid())?,
            authorization: user_info.map(basic_authorization).transpose().map_err(|_| invalid())?,
        })
    }

    /// Returns the `Proxy-Authorization` header of a forwarded request. Returns `None` for tunnels, whose
    /// CONNECT request contains it.
    pub(super) fn authorization(&self, server: &Uri) -> Option<HeaderValue> {
        self.authorization.clone().filter(|_| !is_https(server))
    }

    /// Opens a tunnel to the server with CONNECT.
    async fn open_tunnel(&self, mut stream: TcpStream, server: &Uri) -> io::Result<TcpStream> {
        let target = format!("{}:{}", server.host().unwrap_or_default(), port(server));
        let mut head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").into_bytes();
        if let Some(value) = &self.authorization {
            head.extend_from_slice(b"Proxy-Authorization: ");
            head.extend_from_slice(value.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        stream.write_all(&head).await?;
        let mut answer = Vec::new();
        // A TLS server waits for the client's first message, so nothing follows the head of a successful response.
        while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
            if answer.len() > MAX_RESPONSE_HEAD || stream.read_buf(&mut answer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.lines().next().and_then(|line| line.split_once(' '));
        match status.map(|(_, status)| status).unwrap_or_default() {
            status if status.split(' ').next() == Some("200") => Ok(stream),
            status => Err(io::Error::other(format!("proxy {}: {status}", self.address))),
        }
    }
}

/// Returns the header value of basic authentication for `name:password`, which is percent-encoded.
fn basic_authorization(user_info: &str) -> Result<HeaderValue, http::header::InvalidHeaderValue> {
    let (name, password) = user_info.split_once(':').unwrap_or((user_info, ""));
    let decoded = [name, password].map(|text| percent_decode_str(text).collect::<Vec<u8>>());
    let credentials = BASE64_STANDARD.encode(decoded.join(&b':'));
    let mut value = HeaderValue::try_from(format!("Basic {credentials}"))?;
    value.set_sensitive(true);
    Ok(value)
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

/// Connector to the server, directly or through a proxy. TLS uses a tunnel, other requests are forwarded.
#[derive(Clone)]
pub(super) struct Connector {
    http: HttpConnector,
    proxy: Option<Proxy>,
}

impl Connector {
    pub(super) fn new(http: HttpConnector, proxy: Option<Proxy>) -> Self {
        Self { http, proxy }
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
                Ok(ProxyStream { stream: connecting.await?, forwarded: false })
            });
        };
        let connecting = self.http.call(proxy.address.clone());
        Box::pin(async move {
            let stream = connecting.await?;
            if !is_https(&server) {
                return Ok(ProxyStream { stream, forwarded: true });
            }
            let opening = proxy.open_tunnel(stream.into_inner(), &server);
            let stream = tokio::time::timeout(CONNECT_TIMEOUT, opening).await??;
            Ok(ProxyStream { stream: TokioIo::new(stream), forwarded: false })
        })
    }
}

/// Connection to the server, or to a forwarding proxy.
pub(super) struct ProxyStream {
    stream: TokioIo<TcpStream>,
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
    use crate::tasks::Tasks;
    use kube::Config;
    use std::collections::BTreeMap;
    use tokio::{net::TcpListener, sync::oneshot};

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
        assert_eq!(secure.authorization.as_ref().unwrap(), "Basic bWU6cEBzcw==");
        assert!(!format!("{secure:?}").contains("bWU6"), "{secure:?}");
        let none = ProxyEnvironment::default().proxy_for(&"https://a.example".parse().unwrap());
        assert_eq!(none.unwrap(), None);
        for text in ["socks5://me:secret@proxy:1080", "https://proxy", "http://a b"] {
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

    #[tokio::test]
    async fn tls_uses_a_tunnel() {
        for (answer, opened) in [
            ("HTTP/1.1 200 Connection established\r\nVia: p\r\n\r\n", true),
            ("HTTP/1.0 407 Proxy Authentication Required\r\n\r\nwho are you", false),
        ] {
            let tasks = Tasks::new();
            let (address, head) = proxy(&tasks, answer).await;
            let proxy = Proxy::parse(&format!("http://me:secret@{address}")).unwrap();
            let mut http = HttpConnector::new();
            http.enforce_http(false);
            let mut connector = Connector::new(http, Some(proxy));
            let connected = connector.call("https://api.example:6443".parse().unwrap()).await;
            assert_eq!(
                head.await.unwrap(),
                "CONNECT api.example:6443 HTTP/1.1\r\nHost: api.example:6443\r\n\
                 Proxy-Authorization: Basic bWU6c2VjcmV0\r\n\r\n"
            );
            match connected {
                Ok(connected) => {
                    let mut stream = connected.stream.into_inner();
                    stream.write_all(b"hello").await.unwrap();
                    let mut echo = [0; 5];
                    stream.read_exact(&mut echo).await.unwrap();
                    assert!(opened && echo == *b"hello");
                }
                Err(error) => assert!(
                    !opened && error.to_string().ends_with("407 Proxy Authentication Required"),
                    "{error}"
                ),
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
