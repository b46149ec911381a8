//! Tests of the certificates that the scheduler trusts, and of the client certificate that it sends.

use super::{
    build, config, fixtures, names,
    server::{Reply, Server},
};
use crate::{
    extender::tls::RELOAD_INTERVAL,
    extender::{ExtenderConfig, ExtenderTlsConfig},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    server::WebPkiClientVerifier,
};
use serde_json::json;
use std::sync::Arc;
use tempfile::TempDir;

/// Authority that signs the certificates of extenders and schedulers.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
}

/// A certificate with its key, both as PEM.
struct Identity {
    certificate: String,
    key: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let signed = params.self_signed(&key).unwrap();
        let (certificate, pem) = (signed.der().clone(), signed.pem());
        Self { issuer: Issuer::new(params, key), certificate, pem }
    }

    /// Issues a certificate for these hosts, or a client certificate if there are none.
    fn sign(&self, hosts: &[&str]) -> Identity {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let signed = CertificateParams::new(hosts).unwrap().signed_by(&key, &self.issuer).unwrap();
        Identity { certificate: signed.pem(), key: key.serialize_pem() }
    }

    /// Returns the TLS settings of a server whose certificate names this host.
    fn server(&self, host: &str, requires_client_certificate: bool) -> ServerConfig {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if requires_client_certificate {
            let mut roots = RootCertStore::empty();
            roots.add(self.certificate.clone()).unwrap();
            let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            builder.with_client_cert_verifier(clients.build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        builder.with_single_cert(vec![signed.der().clone()], key).unwrap()
    }
}

/// Certificate files in a temporary directory.
struct CertificateFiles(TempDir);

impl CertificateFiles {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Writes a file, and returns its path.
    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

/// Encodes a PEM as in the field `caData`.
fn base64(pem: &str) -> String {
    BASE64_STANDARD.encode(pem)
}

/// Calls an extender whose configuration `configure` sets. Returns whether the scheduler sent a client certificate, or
/// the error.
async fn call(
    server: ServerConfig,
    configure: impl FnOnce(&mut ExtenderConfig),
) -> Result<bool, String> {
    let reply = Reply::from(json!({"NodeNames": ["a"]}));
    let server = Server::start(Some(server), [reply]).await;
    let mut config = config(format!("https://{}/base", server.address));
    configure(&mut config);
    let extender = build(config).map_err(|error| format!("set up: {error}"))?;
    let (pod, nodes) = (fixtures::pod("p", &json!({})), names(&["a"]));
    let filtered = extender.filter(&pod, &nodes).await.map_err(|error| error.to_string())?;
    assert_eq!(filtered.nodes, nodes);
    Ok(server.take_sent()[0].has_client_certificate)
}

/// Calls an extender with these TLS settings.
async fn call_with_tls(
    server: ServerConfig,
    https: bool,
    tls: ExtenderTlsConfig,
) -> Result<bool, String> {
    call(server, |config| {
        config.enable_https = https;
        config.tls_config = Some(tls);
    })
    .await
}

/// Host of the URL of the extender.
const HOST: &str = "127.0.0.1";

#[tokio::test]
async fn an_extender_needs_a_certificate_of_the_configured_authority() {
    let (authority, other_authority, files) =
        (Authority::new(), Authority::new(), CertificateFiles::new());
    let by_data =
        |pem: &str| ExtenderTlsConfig { ca_data: base64(pem), ..ExtenderTlsConfig::default() };
    let by_file = |pem: &str| ExtenderTlsConfig {
        ca_file: files.write("ca.crt", pem),
        ..ExtenderTlsConfig::default()
    };
    for https in [true, false] {
        assert_eq!(
            call_with_tls(authority.server(HOST, false), https, by_data(&authority.pem)).await,
            Ok(false)
        );
        assert_eq!(
            call_with_tls(authority.server(HOST, false), https, by_file(&authority.pem)).await,
            Ok(false)
        );
        for tls in [by_data(&other_authority.pem), by_file(&other_authority.pem)] {
            let error = call_with_tls(authority.server(HOST, false), https, tls).await.unwrap_err();
            assert!(error.contains("certificate"), "{error}");
        }
    }
    // Data take precedence over the file.
    let data_and_file =
        ExtenderTlsConfig { ca_data: base64(&authority.pem), ..by_file(&other_authority.pem) };
    assert_eq!(call_with_tls(authority.server(HOST, false), true, data_and_file).await, Ok(false));
}

#[tokio::test]
async fn insecure_connections_accept_any_certificate() {
    let authority = Authority::new();
    let default_tls = ExtenderTlsConfig::default;
    assert_eq!(
        call(authority.server("elsewhere", false), |config| config.enable_https = true).await,
        Ok(false)
    );
    assert_eq!(
        call_with_tls(authority.server("elsewhere", false), true, default_tls()).await,
        Ok(false)
    );
    let insecure = ExtenderTlsConfig { insecure: true, ..default_tls() };
    assert_eq!(
        call_with_tls(authority.server("elsewhere", false), false, insecure).await,
        Ok(false)
    );
    // The system's roots do not include this authority.
    assert!(call(authority.server(HOST, false), |_| {}).await.is_err());
    let contradiction =
        ExtenderTlsConfig { insecure: true, ca_data: base64(&authority.pem), ..default_tls() };
    let error =
        call_with_tls(authority.server(HOST, false), true, contradiction).await.unwrap_err();
    assert_eq!(
        error,
        "set up: specifying a root certificates file with the insecure flag is not allowed"
    );
}

#[tokio::test]
async fn the_server_name_overrides_the_host_of_the_url() {
    let authority = Authority::new();
    let tls = |name: &str| ExtenderTlsConfig {
        ca_data: base64(&authority.pem),
        server_name: name.to_owned(),
        ..ExtenderTlsConfig::default()
    };
    assert_eq!(
        call_with_tls(authority.server("extender.example", false), true, tls("extender.example"))
            .await,
        Ok(false)
    );
    for name in ["", "other.example"] {
        let error = call_with_tls(authority.server("extender.example", false), true, tls(name))
            .await
            .unwrap_err();
        assert!(error.contains("certificate"), "{error}");
    }
}

#[tokio::test]
async fn the_scheduler_presents_its_client_certificate() {
    let (authority, files) = (Authority::new(), CertificateFiles::new());
    let Identity { certificate, key } = authority.sign(&["scheduler"]);
    let (cert_file, key_file) =
        (files.write("tls.crt", &certificate), files.write("tls.key", &key));
    let trusting_tls =
        || ExtenderTlsConfig { ca_data: base64(&authority.pem), ..ExtenderTlsConfig::default() };
    for tls in [
        ExtenderTlsConfig {
            cert_file: cert_file.clone(),
            key_file: key_file.clone(),
            ..trusting_tls()
        },
        ExtenderTlsConfig {
            cert_data: base64(&certificate),
            key_data: base64(&key),
            ..trusting_tls()
        },
        ExtenderTlsConfig { cert_data: base64(&certificate), key_file, ..trusting_tls() },
    ] {
        assert_eq!(call_with_tls(authority.server(HOST, true), true, tls).await, Ok(true));
    }
    // Upstream ignores a certificate without its key, and a key without its certificate.
    for tls in [
        trusting_tls(),
        ExtenderTlsConfig { cert_file: cert_file.clone(), ..trusting_tls() },
        ExtenderTlsConfig { key_data: base64(&key), ..trusting_tls() },
    ] {
        assert_eq!(
            call_with_tls(authority.server(HOST, false), true, tls.clone()).await,
            Ok(false)
        );
        let error = call_with_tls(authority.server(HOST, true), true, tls).await.unwrap_err();
        assert!(!error.starts_with("set up"), "{error}");
    }
}

#[tokio::test]
async fn a_renewed_client_certificate_is_used_after_the_reload_interval() {
    let (authority, other_authority, files) =
        (Authority::new(), Authority::new(), CertificateFiles::new());
    let reply = || Reply::from(json!({"NodeNames": ["a"]}));
    let server = Server::start(Some(authority.server(HOST, true)), [reply(), reply()]).await;
    let write_identity = |Identity { certificate, key }: &Identity| {
        (files.write("tls.crt", certificate), files.write("tls.key", key))
    };
    let (cert_file, key_file) = write_identity(&other_authority.sign(&["scheduler"]));
    let mut config = config(format!("https://{}", server.address));
    let tls = ExtenderTlsConfig {
        ca_data: base64(&authority.pem),
        cert_file,
        key_file,
        ..Default::default()
    };
    config.tls_config = Some(tls);
    let extender = build(config).unwrap();
    let (pod, nodes) = (fixtures::pod("p", &json!({})), names(&["a"]));
    assert!(extender.filter(&pod, &nodes).await.is_err(), "the extender does not trust the issuer");
    let renewed = authority.sign(&["scheduler"]);
    write_identity(&renewed);
    assert!(
        extender.filter(&pod, &nodes).await.is_err(),
        "the scheduler has not checked the files"
    );
    let pass_reload_interval = || async {
        tokio::time::pause();
        tokio::time::advance(RELOAD_INTERVAL).await;
        tokio::time::resume();
    };
    pass_reload_interval().await;
    assert!(extender.filter(&pod, &nodes).await.is_ok());
    files.write("tls.key", "half written");
    pass_reload_interval().await;
    assert!(extender.filter(&pod, &nodes).await.is_ok(), "an unusable key changes nothing");
}

#[tokio::test]
async fn unusable_tls_files_are_reported_at_startup() {
    let (authority, files) = (Authority::new(), CertificateFiles::new());
    let missing = || files.0.path().join("missing").display().to_string();
    let Identity { certificate, .. } = authority.sign(&["scheduler"]);
    for (tls, expected) in [
        (
            ExtenderTlsConfig { ca_file: missing(), ..ExtenderTlsConfig::default() },
            "missing: No such file",
        ),
        (
            ExtenderTlsConfig { ca_data: base64("nothing"), ..ExtenderTlsConfig::default() },
            "unable to load root certificates",
        ),
        (
            ExtenderTlsConfig { ca_data: "?".to_owned(), ..ExtenderTlsConfig::default() },
            "unable to load root certificates",
        ),
        (
            ExtenderTlsConfig {
                cert_data: base64(&certificate),
                key_file: missing(),
                ..ExtenderTlsConfig::default()
            },
            "certificates or credentials for https://",
        ),
    ] {
        let error = call_with_tls(authority.server(HOST, false), true, tls).await.unwrap_err();
        assert!(error.starts_with("set up: ") && error.contains(expected), "{error}");
    }
}

/// `enableHTTPS` only controls how certificates are verified. The URL's scheme decides whether TLS is used.
#[tokio::test]
async fn an_http_url_is_called_without_tls() {
    let authority = Authority::new();
    let server = Server::start(None, [json!({"NodeNames": ["a"]}).into()]).await;
    let tls = ExtenderTlsConfig { ca_data: base64(&authority.pem), ..ExtenderTlsConfig::default() };
    let mut config = config(format!("http://{}", server.address));
    (config.enable_https, config.tls_config) = (true, Some(tls));
    let (pod, nodes) = (fixtures::pod("p", &json!({})), names(&["a"]));
    let filtered = build(config).unwrap().filter(&pod, &nodes).await.unwrap();
    assert_eq!((filtered.nodes, &*server.take_sent()[0].path), (nodes, "/filter"));
}
