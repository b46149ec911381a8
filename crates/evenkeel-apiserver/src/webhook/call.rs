//! One request to a webhook: HTTPS to its URL, or to what stands behind its service.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::api::Api;
use crate::kinds::value::{at, int, list, text};

/// No answer is larger.
const LIMIT: usize = 3 * 1024 * 1024;

/// Where a webhook is.
struct Place {
    /// As messages have it.
    url: String,
    /// The name in its certificate.
    host: String,
    /// What is dialled.
    address: String,
    path: String,
}

/// Sends `body` to the webhook of a `clientConfig`, and gives back its answer.
pub(super) async fn post(
    api: &Api,
    config: &Value,
    body: &Value,
    seconds: i64,
) -> Result<Value, String> {
    let place = place(api, config)?;
    let wait = Duration::from_secs(u64::try_from(seconds).unwrap_or(1).clamp(1, 30));
    let url = place.url.clone();
    let asked = tokio::time::timeout(wait, exchange(&place, text(config, "caBundle"), body));
    let failed = |why: &str| format!("failed to call webhook: Post \"{url}\": {why}");
    match asked.await {
        Ok(answer) => answer.map_err(|why| failed(&why)),
        Err(_) => Err(failed("context deadline exceeded")),
    }
}

async fn exchange(place: &Place, ca: &str, body: &Value) -> Result<Value, String> {
    let stream = TcpStream::connect(&place.address).await.map_err(|error| {
        let error = if error.kind() == std::io::ErrorKind::ConnectionRefused {
            "connect: connection refused".to_owned()
        } else {
            error.to_string()
        };
        format!("dial tcp {}: {error}", place.address)
    })?;
    let name = ServerName::try_from(place.host.clone()).map_err(|error| error.to_string())?;
    let connector = TlsConnector::from(Arc::new(tls(ca)?));
    let stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let bytes = serde_json::to_vec(body).map_err(|error| error.to_string())?;
    let request = Request::post(&place.path)
        .header("host", &place.host)
        .header("content-type", "application/json")
        .header("accept", "application/json")
        .body(Full::new(Bytes::from(bytes)))
        .map_err(|error| error.to_string())?;
    let answered = async {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let code = response.status();
        let body = Limited::new(response.into_body(), LIMIT).collect().await;
        let bytes = body.map_err(|error| error.to_string())?.to_bytes();
        if code != StatusCode::OK {
            return Err(format!("unexpected status {code}"));
        }
        serde_json::from_slice(&bytes).map_err(|error| error.to_string())
    };
    // The connection is driven as long as the answer is waited for, and goes with it.
    tokio::select! {
        answer = answered => answer,
        _ = connection => Err("the connection was closed before an answer".to_owned()),
    }
}

fn tls(ca: &str) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    let pem = base64::prelude::BASE64_STANDARD.decode(ca).map_err(|error| error.to_string())?;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| format!("caBundle: {error}"))?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

fn place(api: &Api, config: &Value) -> Result<Place, String> {
    if let Some(service) = at(config, "service") {
        return of_service(api, service);
    }
    let url = text(config, "url");
    let uri: Uri = url.parse().map_err(|error| format!("{url}: {error}"))?;
    let host = uri.host().ok_or_else(|| format!("{url} names no host"))?;
    let host = host.trim_matches(['[', ']']).to_owned();
    let port = uri.port_u16().unwrap_or(443);
    let path = uri.path_and_query().map_or("/", |p| p.as_str()).to_owned();
    let shown = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    Ok(Place { url: url.to_owned(), host, address: format!("{shown}:{port}"), path })
}

/// Something ready behind a service, found by its endpoint slices: there is nobody to dial its address.
fn of_service(api: &Api, service: &Value) -> Result<Place, String> {
    let (name, namespace) = (text(service, "name"), text(service, "namespace"));
    let port = int(service, "port").unwrap_or(443);
    let path = match text(service, "path") {
        "" => "/",
        path => path,
    };
    let host = format!("{name}.{namespace}.svc");
    let url = format!("https://{host}:{port}{path}");
    let not_found =
        || format!("failed to call webhook: Post \"{url}\": service \"{name}\" not found");
    let entry =
        api.store.peek("/services", &format!("{namespace}/{name}")).ok_or_else(not_found)?;
    let object = entry.decode().map_err(|error| error.to_string())?;
    let wanted = list(&object, "spec.ports").iter().find(|p| int(p, "port") == Some(port));
    let port_name = wanted.map_or("", |p| text(p, "name"));
    let address = endpoint(api, namespace, name, port_name).ok_or_else(|| {
        format!(
            "failed to call webhook: Post \"{url}\": no endpoints available for service \"{name}\""
        )
    })?;
    Ok(Place { url, host, address, path: path.to_owned() })
}

fn endpoint(api: &Api, namespace: &str, service: &str, port_name: &str) -> Option<String> {
    for entry in api.store.within("discovery.k8s.io/endpointslices", namespace) {
        if entry.facets.label("kubernetes.io/service-name") != Some(service) {
            continue;
        }
        let Ok(slice) = entry.decode() else { continue };
        let port = list(&slice, "ports").iter().find(|p| text(p, "name") == port_name);
        let Some(port) = port.and_then(|p| int(p, "port")) else { continue };
        let ready = list(&slice, "endpoints")
            .iter()
            .find(|e| at(e, "conditions.ready") != Some(&Value::Bool(false)));
        let address = ready.and_then(|e| list(e, "addresses").first()).and_then(Value::as_str);
        if let Some(address) = address {
            return Some(format!("{address}:{port}"));
        }
    }
    None
}
