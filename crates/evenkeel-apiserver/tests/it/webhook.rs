//! Webhooks on this machine, for the tests of admission and conversion.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio_rustls::TlsAcceptor;

/// Returns the response to a review.
pub(crate) type Answer = fn(&Value) -> (StatusCode, Value);

/// A self-signed certificate with its key.
pub(crate) struct Identity {
    der: CertificateDer<'static>,
    pem: String,
    key: KeyPair,
}

impl Identity {
    /// Returns a CA certificate for `localhost`, as `openssl req -x509` generates it. `change` changes its parameters.
    pub(crate) fn own(change: impl FnOnce(&mut CertificateParams)) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        let made = params.self_signed(&key).expect("a certificate");
        Self { der: made.der().clone(), pem: made.pem(), key }
    }

    /// Returns the certificate in the form of a `caBundle`.
    pub(crate) fn bundle(&self) -> String {
        base64::prelude::BASE64_STANDARD.encode(&self.pem)
    }

    /// Returns the webhook's certificate in PEM.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_client_cert_verifier(Arc::new(AnyClient))
            .with_single_cert(vec![self.der.clone()], key)
            .expect("a certificate");
        TlsAcceptor::from(Arc::new(config))
    }
}

/// Requests a client certificate, and accepts any.
#[derive(Debug)]
struct AnyClient;

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = rustls::crypto::ring::default_provider();
        provider.signature_verification_algorithms.supported_schemes()
    }
}

/// A webhook.
#[derive(Clone)]
pub(crate) struct Webhook {
    /// The `clientConfig` that leads to it.
    pub(crate) config: Value,
    path: &'static str,
    /// Received reviews, in order.
    asked: Arc<Mutex<Vec<Value>>>,
    /// The header `Host` of the last request.
    host: Arc<Mutex<String>>,
    /// Barrier that the webhook waits at before each response.
    before: Arc<Barrier>,
}

impl Webhook {
    pub(crate) async fn start(identity: &Identity, path: &'static str, answer: Answer) -> Self {
        Self::start_with(identity, path, answer, Arc::new(Barrier::new(1))).await
    }

    /// Starts a webhook that waits at a barrier before it responds.
    pub(crate) async fn start_with(
        identity: &Identity,
        path: &'static str,
        answer: Answer,
        before: Arc<Barrier>,
    ) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let url = format!("https://localhost:{port}{path}");
        let config = json!({"url": url, "caBundle": identity.bundle()});
        let hook = Self { config, path, asked: Arc::default(), host: Arc::default(), before };
        let (acceptor, served) = (identity.acceptor(), hook.clone());
        #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(stream) = acceptor.accept(stream).await else { continue };
                let hook = served.clone();
                let service = hyper::service::service_fn(move |request| {
                    let hook = hook.clone();
                    async move { hook.serve(request, answer).await }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                let _ = connection.serve_connection(TokioIo::new(stream), service).await;
            }
        });
        hook
    }

    async fn serve(
        &self,
        request: Request<Incoming>,
        answer: Answer,
    ) -> Result<Response<Full<Bytes>>, hyper::Error> {
        assert_eq!(request.uri().to_string(), format!("{}?timeout=30s", self.path));
        let host = request.headers().get("host").and_then(|host| host.to_str().ok());
        *self.host.lock().expect("no panic before") = host.unwrap_or_default().to_owned();
        let body = request.into_body().collect().await?.to_bytes();
        let review: Value = serde_json::from_slice(&body).expect("a review");
        let (code, answer) = answer(&review);
        self.before.wait().await;
        self.asked.lock().expect("no panic before").push(review);
        let mut response = Response::new(Full::from(answer.to_string()));
        *response.status_mut() = code;
        Ok(response)
    }

    /// Returns the header `Host` of the last request.
    pub(crate) fn host(&self) -> String {
        self.host.lock().expect("no panic before").clone()
    }

    /// Returns the reviews since the last call.
    pub(crate) fn take(&self) -> Vec<Value> {
        std::mem::take(&mut *self.asked.lock().expect("no panic before"))
    }
}
