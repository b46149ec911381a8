//! Tests which certificates are trusted, by handshakes over sockets with both versions of TLS.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use evenkeel_x509::{CertPool, message};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose as Purpose, IsCa, Issuer,
    KeyPair,
};
use rustls::{
    ClientConfig, ServerConfig, SupportedProtocolVersion,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName},
    server::danger::ClientCertVerifier,
    version::{TLS12, TLS13},
};
use std::{io, sync::Arc};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

type Params = fn(&mut CertificateParams);

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// A certificate with its key.
struct Identity {
    der: CertificateDer<'static>,
    key: KeyPair,
    params: CertificateParams,
}

impl Identity {
    /// Returns a self-signed certificate for `localhost` and 127.0.0.1, like that of `openssl req -x509`.
    fn own(change: Params) -> Self {
        let (key, params) = (KeyPair::generate().unwrap(), params(change));
        let der = params.self_signed(&key).unwrap().der().clone();
        Self { der, key, params }
    }

    /// Returns a certificate for `localhost` and 127.0.0.1 that another authority signed.
    fn by(issuer: &Self, change: Params) -> Self {
        let (key, params) = (KeyPair::generate().unwrap(), params(change));
        let signer = Issuer::from_params(&issuer.params, &issuer.key);
        let der = params.signed_by(&key, &signer).unwrap().der().clone();
        Self { der, key, params }
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
    }
}

fn params(change: Params) -> CertificateParams {
    let mut params =
        CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut params);
    params
}

fn pool(certificates: &[&Identity]) -> CertPool {
    let mut pool = CertPool::empty();
    for certificate in certificates {
        pool.add(certificate.der.clone()).unwrap();
    }
    pool
}

/// Performs a TLS handshake, and sends a byte in each direction. Returns the client's first error, or else the
/// server's.
async fn handshake(server: ServerConfig, client: ClientConfig, name: &str) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let served = async {
        let mut stream =
            TlsAcceptor::from(Arc::new(server)).accept(listener.accept().await?.0).await?;
        let byte = stream.read_u8().await?;
        stream.write_u8(byte).await?;
        stream.shutdown().await
    };
    let asked = async {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let stream = TcpStream::connect(address).await?;
        let mut stream = TlsConnector::from(Arc::new(client)).connect(name, stream).await?;
        stream.write_u8(7).await?;
        stream.read_u8().await.map(|byte| assert_eq!(byte, 7))
    };
    let (served, asked) = tokio::join!(served, asked);
    let by_server = |error: &io::Error| error.to_string().contains("alert");
    match (asked, served) {
        (Err(error), Err(refused)) if by_server(&error) => Err(refused),
        (Err(error), _) | (Ok(()), Err(error)) => Err(error),
        (Ok(()), Ok(())) => Ok(()),
    }
}

type Versions = [&'static SupportedProtocolVersion; 1];

/// Connects to a server with this certificate. Returns Go's message if the client refuses the certificate.
async fn ask(server: &Identity, roots: &[&Identity], name: &str) -> Result<(), String> {
    let mut answers = Vec::new();
    for version in [[&TLS12], [&TLS13]] {
        let answered = handshake(serving(server, version), asking(roots, version), name).await;
        answers.push(answered.map_err(|error| in_go(&error)));
    }
    let last = answers.pop().unwrap();
    assert_eq!(answers, std::slice::from_ref(&last), "both versions answer alike");
    last
}

fn in_go(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let text = inner.and_then(message).unwrap_or_else(|| error.to_string());
    text.trim_start_matches("tls: failed to verify certificate: ").to_owned()
}

fn serving(server: &Identity, versions: Versions) -> ServerConfig {
    ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&versions)
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Shows::new(server)))
}

fn asking(roots: &[&Identity], versions: Versions) -> ClientConfig {
    ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(pool(roots).server_verifier(provider()))
        .with_no_client_auth()
}

#[tokio::test]
async fn a_server_may_show_a_root() {
    let as_made: [(&str, Params); 5] = [
        ("of a CA", |_| {}),
        ("of no CA", |params| params.is_ca = IsCa::ExplicitNoCa),
        ("without basic constraints", |params| params.is_ca = IsCa::NoCa),
        ("for servers", |params| params.extended_key_usages = vec![Purpose::ServerAuth]),
        ("for anything", |params| params.extended_key_usages = vec![Purpose::Any]),
    ];
    for (what, change) in as_made {
        let own = Identity::own(change);
        for name in ["localhost", "127.0.0.1"] {
            assert_eq!(ask(&own, &[&own], name).await, Ok(()), "{what}, as {name}");
            let other = Identity::own(|_| {});
            assert_eq!(ask(&own, &[&other, &own], name).await, Ok(()), "{what}, beside another");
        }
    }
    // One that another signed is a root as well when it is in the pool and that other is not.
    let signed = Identity::by(&Identity::own(|_| {}), |params| params.is_ca = IsCa::NoCa);
    assert_eq!(ask(&signed, &[&signed], "localhost").await, Ok(()));
}

#[tokio::test]
async fn a_root_is_refused_for_what_it_says_of_itself() {
    let own = Identity::own(|_| {});
    let got = ask(&own, &[&own], "elsewhere").await;
    assert_eq!(got.unwrap_err(), "x509: certificate is valid for localhost, not elsewhere");
    let got = ask(&own, &[&own], "10.0.0.1").await;
    assert_eq!(got.unwrap_err(), "x509: certificate is valid for 127.0.0.1, not 10.0.0.1");

    let expired = Identity::own(|params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    let why = ask(&expired, &[&expired], "localhost").await.unwrap_err();
    assert!(why.starts_with("x509: certificate has expired or is not yet valid: current time "));
    assert!(why.ends_with(" is after 2020-01-01T00:00:00Z"), "{why}");

    let future = Identity::own(|params| params.not_before = rcgen::date_time_ymd(3000, 1, 1));
    let why = ask(&future, &[&future], "localhost").await.unwrap_err();
    assert!(why.ends_with(" is before 3000-01-01T00:00:00Z"), "{why}");

    let incompatible = "x509: certificate specifies an incompatible key usage";
    let client = Identity::own(|params| params.extended_key_usages = vec![Purpose::ClientAuth]);
    assert_eq!(ask(&client, &[&client], "localhost").await.unwrap_err(), incompatible);

    let none = Identity::own(|params| params.subject_alt_names.clear());
    let why = ask(&none, &[&none], "localhost").await.unwrap_err();
    assert_eq!(why, "x509: certificate is not valid for any names, but wanted to match localhost");
    let why = ask(&none, &[&none], "127.0.0.1").await.unwrap_err();
    assert_eq!(
        why,
        "x509: cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs"
    );

    // A critical extension that the verifier does not handle is an error.
    let strange = Identity::own(|params| {
        let mut extension = rcgen::CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
        extension.set_criticality(true);
        params.custom_extensions = vec![extension];
    });
    assert!(ask(&strange, &[&strange], "localhost").await.is_err());
}

#[tokio::test]
async fn a_common_name_is_no_name_of_a_server() {
    for name in ["localhost", "LOCALHOST", "*.example.com"] {
        let named = match name {
            "localhost" => Identity::own(|params| common(params, "localhost")),
            "LOCALHOST" => Identity::own(|params| common(params, "LOCALHOST")),
            _ => Identity::own(|params| common(params, "*.example.com")),
        };
        let asked = if name.starts_with('*') { "a.example.com" } else { "localhost" };
        assert_eq!(
            ask(&named, &[&named], asked).await.unwrap_err(),
            "x509: certificate relies on legacy Common Name field, use SANs instead",
            "{name}"
        );
    }
}

fn common(params: &mut CertificateParams, name: &str) {
    params.subject_alt_names.clear();
    params.distinguished_name.push(DnType::CommonName, name);
}

#[tokio::test]
async fn what_is_no_root_is_refused() {
    let unknown = "x509: certificate signed by unknown authority";
    let own = Identity::own(|params| params.is_ca = IsCa::NoCa);
    let other = Identity::own(|params| params.distinguished_name.push(DnType::CommonName, "other"));
    assert_eq!(ask(&own, &[&other], "localhost").await.unwrap_err(), unknown);
    assert_eq!(ask(&own, &[], "localhost").await.unwrap_err(), unknown);
    assert_eq!(ask(&other, &[&own], "localhost").await.unwrap_err(), unknown);

    // A twin: the same names, serial number and authority, another key.
    let twin = |params: &mut CertificateParams| {
        params.serial_number = Some(rcgen::SerialNumber::from(7));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    };
    let (root, forged) = (Identity::own(twin), Identity::own(twin));
    assert!(ask(&forged, &[&root], "localhost").await.is_err());
    // Renewed with the same key: other bytes.
    let mut renewed = Identity::own(|_| {});
    let first = renewed.der.clone();
    renewed.params.serial_number = Some(rcgen::SerialNumber::from(8));
    renewed.der = renewed.params.self_signed(&renewed.key).unwrap().der().clone();
    let old = Identity { der: first, key: KeyPair::generate().unwrap(), params: params(|_| {}) };
    assert!(ask(&renewed, &[&old], "localhost").await.is_err());

    // A root's certificate, presented by a server without its key.
    let thief = Identity {
        der: root.der.clone(),
        key: KeyPair::generate().unwrap(),
        params: params(|_| {}),
    };
    let stolen = serving(&thief, [&TLS13]);
    let why = handshake(stolen, asking(&[&root], [&TLS13]), "localhost").await.unwrap_err();
    assert!(why.to_string().contains("BadSignature"), "{why}");
}

/// Shows a certificate, whether the key belongs to it or not.
#[derive(Debug)]
struct Shows(Arc<rustls::sign::CertifiedKey>);

impl Shows {
    fn new(identity: &Identity) -> Self {
        let key = ring::sign::any_supported_type(&identity.key()).unwrap();
        Self(Arc::new(rustls::sign::CertifiedKey::new(vec![identity.der.clone()], key)))
    }
}

impl rustls::server::ResolvesServerCert for Shows {
    fn resolve(
        &self,
        _: rustls::server::ClientHello<'_>,
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        Some(self.0.clone())
    }
}

#[tokio::test]
async fn whom_a_root_has_signed_is_believed_as_before() {
    let root = Identity::own(|_| {});
    let signed = Identity::by(&root, |params| params.is_ca = IsCa::NoCa);
    assert_eq!(ask(&signed, &[&root], "localhost").await, Ok(()));
    let got = ask(&signed, &[&root], "elsewhere").await;
    assert_eq!(got.unwrap_err(), "x509: certificate is valid for localhost, not elsewhere");
    let client = Identity::by(&root, |params| {
        params.is_ca = IsCa::NoCa;
        params.extended_key_usages = vec![Purpose::ClientAuth];
    });
    let why = ask(&client, &[&root], "localhost").await.unwrap_err();
    assert_eq!(why, "x509: certificate specifies an incompatible key usage");
}

/// Comes as a client with this certificate to a server that believes these.
async fn come(client: &Identity, roots: &[&Identity]) -> Result<(), String> {
    let server = Identity::own(|_| {});
    let mut answers = Vec::new();
    for version in [[&TLS12], [&TLS13]] {
        let believes: Arc<dyn ClientCertVerifier> =
            pool(roots).client_verifier(true, provider()).unwrap();
        let serving = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&version)
            .unwrap()
            .with_client_cert_verifier(believes)
            .with_single_cert(vec![server.der.clone()], server.key())
            .unwrap();
        let asking = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&version)
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(pool(&[&server]).server_verifier(provider()))
            .with_client_auth_cert(vec![client.der.clone()], client.key())
            .unwrap();
        let answered = handshake(serving, asking, "localhost").await;
        answers.push(answered.map_err(|error| in_go(&error)));
    }
    let last = answers.pop().unwrap();
    assert_eq!(answers, std::slice::from_ref(&last), "both versions answer alike");
    last
}

#[tokio::test]
async fn a_client_may_show_a_root() {
    let own = Identity::own(|_| {});
    let other = Identity::own(|_| {});
    assert_eq!(come(&own, &[&other, &own]).await, Ok(()));
    assert!(come(&own, &[&other]).await.is_err());
    let client = Identity::own(|params| params.extended_key_usages = vec![Purpose::ClientAuth]);
    assert_eq!(come(&client, &[&client]).await, Ok(()));
    let incompatible = "x509: certificate specifies an incompatible key usage";
    let server = Identity::own(|params| params.extended_key_usages = vec![Purpose::ServerAuth]);
    assert_eq!(come(&server, &[&server]).await.unwrap_err(), incompatible);
    let expired = Identity::own(|params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    assert!(come(&expired, &[&expired]).await.is_err());
    // The server does not check the names in a client certificate.
    let nameless = Identity::own(|params| params.subject_alt_names.clear());
    assert_eq!(come(&nameless, &[&nameless]).await, Ok(()));
    let signed = Identity::by(&own, |params| params.is_ca = IsCa::NoCa);
    assert_eq!(come(&signed, &[&own]).await, Ok(()));
}
