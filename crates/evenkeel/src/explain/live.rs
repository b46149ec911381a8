//! Client of a running manager, over the socket of `evenkeel up` or over its secure port.

use super::Args;
use crate::schedulers::{self, Schedulers};
use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use evenkeel_explain::Source;
use evenkeel_runtime::{
    client::{self, ApiError, Client, full_text},
    clock::Clock,
    introspect::{Listing, ObjectReport, Subject},
};
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, de::DeserializeOwned};
use std::path::{Path, PathBuf};
use tokio::net::UnixStream;

/// Connection to a running manager.
pub(super) enum Live {
    /// The socket of an `evenkeel up` process.
    Socket(PathBuf),
    /// The secure port, with its URL.
    Https(Client, String),
}

/// Response of `/debug/controllers?object=…`.
#[derive(Deserialize)]
struct Reports {
    reports: Vec<ObjectReport>,
}

/// Returns the socket of the `evenkeel up` process that wrote this kubeconfig: `controllers.sock` beside
/// `kubeconfig`.
pub fn socket_beside(kubeconfig: &Path) -> PathBuf {
    let name = kubeconfig.file_name().unwrap_or_default().to_string_lossy();
    kubeconfig.with_file_name(format!("{}.sock", name.replace("kubeconfig", "controllers")))
}

/// Returns a server's URL without trailing slashes, for comparison.
pub fn normalized_url(url: &str) -> &str {
    url.trim_end_matches('/')
}

impl Live {
    /// Returns a connection to the first of these sockets where the manager of the cluster at `url` responds. Returns
    /// `None` if it responds on none of them.
    pub(super) async fn connect_socket(sockets: &[PathBuf], url: &str) -> Option<Self> {
        for socket in sockets {
            let Ok(cluster_url) = ask_socket(socket, Method::GET, "/cluster").await else {
                continue;
            };
            if normalized_url(&String::from_utf8_lossy(&cluster_url)) == normalized_url(url) {
                return Some(Self::Socket(socket.clone()));
            }
        }
        None
    }

    /// Returns a connection to the secure port of the manager at the URL `server`, with the credentials of `config`.
    ///
    /// # Errors
    /// Fails if the URL or the file of `--certificate-authority` is invalid.
    pub(super) fn connect_https(
        mut config: kube::Config,
        args: &Args,
        server: &str,
        clock: &Clock,
    ) -> Result<Self> {
        config.cluster_url = server.parse().with_context(|| format!("--server {server}"))?;
        config.tls_server_name = None;
        if let Some(path) = &args.certificate_authority {
            use rustls_pki_types::{CertificateDer, pem::PemObject};
            let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
            let certificates: Vec<CertificateDer<'static>> = read
                .map_err(|error| anyhow!("--certificate-authority {}: {error}", path.display()))?;
            config.root_cert =
                Some(certificates.iter().map(|certificate| certificate.to_vec()).collect());
            config.root_cert_file = None;
        }
        config.accept_invalid_certs = args.insecure_skip_tls_verify;
        let kube = client::transport(&config)?;
        let client = Client::builder(kube, clock.clone()).user_agent("evenkeel-explain").build();
        Ok(Self::Https(client, server.to_owned()))
    }

    /// Returns the source of the explanation, for the first line of the output.
    pub(super) fn description(&self) -> String {
        match self {
            Self::Socket(path) => format!("asked the manager at {}", path.display()),
            Self::Https(_, url) => format!("asked the manager at {url}"),
        }
    }

    /// Returns the kinds that the manager's controllers reconcile, as `Kind.group`.
    pub(super) async fn kinds(&self) -> Result<Vec<String>> {
        let listing: Listing = self.get("/debug/controllers").await?;
        Ok(listing
            .controllers
            .into_iter()
            .map(|controller| controller.kind)
            .filter(|kind| !kind.is_empty())
            .collect())
    }

    /// Returns the schedulers that the process runs. Returns `None` if the process is not `evenkeel up`, or is an older
    /// version.
    pub(super) async fn schedulers(&self) -> Option<Schedulers> {
        match self {
            Self::Socket(_) => self.get(schedulers::PATH).await.ok(),
            Self::Https(..) => None,
        }
    }

    /// Sends a GET request to the manager, and decodes its JSON response.
    async fn get<T: DeserializeOwned>(&self, target: &str) -> Result<T> {
        let body = match self {
            Self::Socket(path) => ask_socket(path, Method::GET, target).await?,
            Self::Https(client, url) => {
                let request = Request::get(target).header(header::ACCEPT, "application/json");
                let response = client.raw(request.body(Bytes::new())?).await;
                response.map_err(|error| anyhow!(describe_failure(url, &error)))?.into_body()
            }
        };
        serde_json::from_slice(&body)
            .context("the manager's response cannot be decoded; the manager may be another version of Evenkeel")
    }
}

/// Returns the reason why a request to the manager at `url` failed, and how to resolve it.
fn describe_failure(url: &str, error: &ApiError) -> String {
    let why = full_text(error);
    match error.code() {
        401 => format!(
            "the manager at {url} cannot authenticate you: the kubeconfig's user has a certificate or token that it \
             cannot verify (see its --client-ca-file and --authentication-kubeconfig)"
        ),
        403 => format!(
            "the manager at {url} does not permit you to read its reports: you need a cluster role with the verb get \
             for the nonResourceURL /debug/controllers"
        ),
        404 => format!(
            "the server at {url} is not a manager of Evenkeel: it has no /debug/controllers. Without --server, or with \
             --offline, this command reads only the cluster"
        ),
        0 if why.contains("certificate") => format!(
            "the certificate of the manager at {url} is not trusted ({why}). Accept a self-signed one with \
             --insecure-skip-tls-verify, or name its CA with --certificate-authority"
        ),
        0 => format!("the manager at {url} does not answer: {why}"),
        code => format!("the manager at {url} answers {code}: {why}"),
    }
}

impl Source for Live {
    type Error = anyhow::Error;

    async fn reports(&self, subject: &Subject) -> Result<Vec<ObjectReport>> {
        let escape = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let Subject { group, kind, .. } = subject;
        let dot = if group.is_empty() { "" } else { "." };
        let kind = escape(&format!("{kind}{dot}{group}"));
        let object = escape(&subject.key().to_string());
        let target = format!("/debug/controllers?object={object}&kind={kind}");
        Ok(self.get::<Reports>(&target).await?.reports)
    }
}

/// Sends a request without a body to a Unix socket, and returns the body of the response.
///
/// # Errors
/// Fails if no process responds, or the status code is an error. That error contains the body of the response.
pub async fn ask_socket(path: &Path, method: Method, target: &str) -> Result<Bytes> {
    let stream = UnixStream::connect(path).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await?;
    let request = Request::builder().method(method).uri(target).header(header::HOST, "evenkeel");
    let request = request.body(Empty::new())?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let code = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if !code.is_success() {
            bail!("{target}: {code} {}", String::from_utf8_lossy(&body).trim_end());
        }
        Ok(body)
    };
    // Poll the connection while waiting for the response.
    tokio::pin!(connection);
    tokio::pin!(exchange);
    tokio::select! {
        body = &mut exchange => body,
        ended = &mut connection => {
            ended?;
            exchange.await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_in_the_folder_of_their_kubeconfig() {
        let table = [
            ("/d/kubeconfig", "/d/controllers.sock"),
            ("/s/kubeconfig-7000", "/s/controllers-7000.sock"),
            ("/home/u/.kube/config", "/home/u/.kube/config.sock"),
        ];
        for (kubeconfig, socket) in table {
            assert_eq!(socket_beside(Path::new(kubeconfig)), Path::new(socket));
        }
        assert_eq!(normalized_url("https://127.0.0.1:6443/"), "https://127.0.0.1:6443");
    }
}
