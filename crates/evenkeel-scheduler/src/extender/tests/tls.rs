//! Certificates that the scheduler trusts, and the client certificate that it sends.

use super::{
    config, fixtures, names, one,
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
        let made = params.self_signed(&key).unwrap();
        let (certificate, pem) = (made.der().clone(), made.pem());
        Self { issuer: Issuer::new(params, key), certificate, pem }
    }

    /// Issues a certificate for these hosts, or a client certificate if there are none.
    fn sign(&self, hosts: &[&str]) -> Identity {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let made = CertificateParams::new(hosts).unwrap().signed_by(&key, &self.issuer).unwrap();
        Identity { certificate: made.pem(), key: key.serialize_pem() }
    }

    /// TLS settings of a server whose certificate names this host. With `asks`, the server requires a client
    /// certificate.
    fn server(&self, host: &str, asks: bool) -> ServerConfig {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        let made = params.signed_by(&key, &self.issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if asks {
            let mut roots = RootCertStore::empty();
            roots.add(self.certificate.clone()).unwrap();
            let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            builder.with_client_cert_verifier(clients.build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        builder.with_single_cert(vec![made.der().clone()], key).unwrap()
    }
}

/// Certificate files in a temporary directory.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

fn data(pem: &str) -> String {
    BASE64_STANDARD.encode(pem)
}

/// Calls an extender with this configuration. Returns whether the scheduler sent a client certificate, or the error.
async fn ask(
    server: ServerConfig,
    change: impl FnOnce(&mut ExtenderConfig),
) -> Result<bool, String> {
    let reply = Reply::from(json!({"NodeNames": ["a"]}));
    let server = Server::start(Some(server), [reply]).await;
    let mut config = config(format!("https://{}/base", server.address));
    change(&mut config);
    let extender = one(config).map_err(|error| format!("set up: {error}"))?;
    let (pod, all) = (fixtures::pod("p", &json!({})), names(&["a"]));
    let left = extender.filter(&pod, &all).await.map_err(|error| error.to_string())?;
    assert_eq!(left.nodes, all);
    Ok(server.sent()[0].certified)
}

/// Calls `ask` with these TLS settings.
async fn with(server: ServerConfig, https: bool, tls: ExtenderTlsConfig) -> Result<bool, String> {
    ask(server, |config| {
        config.enable_https = https;
        config.tls_config = Some(tls);
    })
    .await
}

const HOST: &str = "127.0.0.1";

#[tokio::test]
async fn an_extender_needs_a_certificate_of_the_configured_authority() {
    let (own, other, files) = (Authority::new(), Authority::new(), Files::new());
    let by_data =
        |pem: &str| ExtenderTlsConfig { ca_data: data(pem), ..ExtenderTlsConfig::default() };
    let by_file = |pem: &str| ExtenderTlsConfig {
        ca_file: files.write("ca.crt", pem),
        ..ExtenderTlsConfig::default()
    };
    for https in [true, false] {
        assert_eq!(with(own.server(HOST, false), https, by_data(&own.pem)).await, Ok(false));
        assert_eq!(with(own.server(HOST, false), https, by_file(&own.pem)).await, Ok(false));
        for tls in [by_data(&other.pem), by_file(&other.pem)] {
            let why = with(own.server(HOST, false), https, tls).await.unwrap_err();
            assert!(why.contains("certificate"), "{why}");
        }
    }
    // Data take precedence over the file.
    let both = ExtenderTlsConfig { ca_data: data(&own.pem), ..by_file(&other.pem) };
    assert_eq!(with(own.server(HOST, false), true, both).await, Ok(false));
}

#[tokio::test]
async fn insecure_connections_accept_any_certificate() {
    let own = Authority::new();
    let none = ExtenderTlsConfig::default;
    assert_eq!(
        ask(own.server("elsewhere", false), |config| config.enable_https = true).await,
        Ok(false)
    );
    assert_eq!(with(own.server("elsewhere", false), true, none()).await, Ok(false));
    let insecure = ExtenderTlsConfig { insecure: true, ..none() };
    assert_eq!(with(own.server("elsewhere", false), false, insecure).await, Ok(false));
    // The system's roots do not include this authority.
    assert!(ask(own.server(HOST, false), |_| {}).await.is_err());
    let contradiction = ExtenderTlsConfig { insecure: true, ca_data: data(&own.pem), ..none() };
    let why = with(own.server(HOST, false), true, contradiction).await.unwrap_err();
    assert_eq!(
        why,
        "set up: specifying a root certificates file with the insecure flag is not allowed"
    );
}

#[tokio::test]
async fn an_extender_may_have_another_name() {
    let own = Authority::new();
    let tls = |name: &str| ExtenderTlsConfig {
        ca_data: data(&own.pem),
        server_name: name.to_owned(),
        ..ExtenderTlsConfig::default()
    };
    assert_eq!(
        with(own.server("extender.example", false), true, tls("extender.example")).await,
        Ok(false)
    );
    for name in ["", "other.example"] {
        let why = with(own.server("extender.example", false), true, tls(name)).await.unwrap_err();
        assert!(why.contains("certificate"), "{why}");
    }
}

#[tokio::test]
async fn the_scheduler_presents_its_client_certificate() {
    let (own, files) = (Authority::new(), Files::new());
    let Identity { certificate, key } = own.sign(&["scheduler"]);
    let (cert_file, key_file) =
        (files.write("tls.crt", &certificate), files.write("tls.key", &key));
    let trusting = || ExtenderTlsConfig { ca_data: data(&own.pem), ..ExtenderTlsConfig::default() };
    for tls in [
        ExtenderTlsConfig {
            cert_file: cert_file.clone(),
            key_file: key_file.clone(),
            ..trusting()
        },
        ExtenderTlsConfig { cert_data: data(&certificate), key_data: data(&key), ..trusting() },
        ExtenderTlsConfig { cert_data: data(&certificate), key_file, ..trusting() },
    ] {
        assert_eq!(with(own.server(HOST, true), true, tls).await, Ok(true));
    }
    // Upstream ignores a certificate without its key, and a key without its certificate.
    for tls in [
        trusting(),
        ExtenderTlsConfig { cert_file: cert_file.clone(), ..trusting() },
        ExtenderTlsConfig { key_data: data(&key), ..trusting() },
    ] {
        assert_eq!(with(own.server(HOST, false), true, tls.clone()).await, Ok(false));
        let why = with(own.server(HOST, true), true, tls).await.unwrap_err();
        assert!(!why.starts_with("set up"), "{why}");
    }
}

#[tokio::test]
async fn a_certificate_that_is_renewed_is_used() {
    let (own, other, files) = (Authority::new(), Authority::new(), Files::new());
    let reply = || Reply::from(json!({"NodeNames": ["a"]}));
    let server = Server::start(Some(own.server(HOST, true)), [reply(), reply()]).await;
    let write = |Identity { certificate, key }: &Identity| {
        (files.write("tls.crt", certificate), files.write("tls.key", key))
    };
    let (cert_file, key_file) = write(&other.sign(&["scheduler"]));
    let mut config = config(format!("https://{}", server.address));
    let tls =
        ExtenderTlsConfig { ca_data: data(&own.pem), cert_file, key_file, ..Default::default() };
    config.tls_config = Some(tls);
    let extender = one(config).unwrap();
    let (pod, all) = (fixtures::pod("p", &json!({})), names(&["a"]));
    assert!(extender.filter(&pod, &all).await.is_err(), "the extender does not know who signed it");
    let renewed = own.sign(&["scheduler"]);
    write(&renewed);
    assert!(extender.filter(&pod, &all).await.is_err(), "nobody has looked yet");
    let look = || async {
        tokio::time::pause();
        tokio::time::advance(RELOAD_INTERVAL).await;
        tokio::time::resume();
    };
    look().await;
    assert!(extender.filter(&pod, &all).await.is_ok());
    files.write("tls.key", "half written");
    look().await;
    assert!(extender.filter(&pod, &all).await.is_ok(), "it goes on with what it has");
}

#[tokio::test]
async fn unusable_tls_files_are_reported_at_startup() {
    let (own, files) = (Authority::new(), Files::new());
    let missing = || files.0.path().join("missing").display().to_string();
    let Identity { certificate, .. } = own.sign(&["scheduler"]);
    for (tls, want) in [
        (
            ExtenderTlsConfig { ca_file: missing(), ..ExtenderTlsConfig::default() },
            "missing: No such file",
        ),
        (
            ExtenderTlsConfig { ca_data: data("nothing"), ..ExtenderTlsConfig::default() },
            "unable to load root certificates",
        ),
        (
            ExtenderTlsConfig { ca_data: "?".to_owned(), ..ExtenderTlsConfig::default() },
            "unable to load root certificates",
        ),
        (
            ExtenderTlsConfig {
                cert_data: data(&certificate),
                key_file: missing(),
                ..ExtenderTlsConfig::default()
            },
            "certificates or credentials for https://",
        ),
    ] {
        let why = with(own.server(HOST, false), true, tls).await.unwrap_err();
        assert!(why.starts_with("set up: ") && why.contains(want), "{why}");
    }
}

/// `enableHTTPS` only controls how certificates are verified. The URL's scheme decides whether TLS is used.
#[tokio::test]
async fn an_http_url_is_called_without_tls() {
    let own = Authority::new();
    let server = Server::start(None, [json!({"NodeNames": ["a"]}).into()]).await;
    let tls = ExtenderTlsConfig { ca_data: data(&own.pem), ..ExtenderTlsConfig::default() };
    let mut config = config(format!("http://{}", server.address));
    (config.enable_https, config.tls_config) = (true, Some(tls));
    let (pod, all) = (fixtures::pod("p", &json!({})), names(&["a"]));
    let left = one(config).unwrap().filter(&pod, &all).await.unwrap();
    assert_eq!((left.nodes, &*server.sent()[0].path), (all, "/filter"));
}
