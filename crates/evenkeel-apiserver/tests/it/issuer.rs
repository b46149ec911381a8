//! An issuer of JSON web tokens on this machine, for the tests of authentication.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::webhook::Identity;

/// A key that signs tokens.
pub(crate) struct SigningKey {
    id: &'static str,
    pair: EcdsaKeyPair,
}

impl SigningKey {
    pub(crate) fn new(id: &'static str) -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).expect("a key");
        Self { id, pair }
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        let part = |value: &Value| BASE64.encode(value.to_string());
        let header = json!({"alg": "ES256", "kid": self.id});
        let message = format!("{}.{}", part(&header), part(claims));
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes()).expect("signed");
        format!("{message}.{}", BASE64.encode(signature))
    }

    fn jwk(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let part = |bytes: &[u8]| BASE64.encode(bytes);
        json!({"kty": "EC", "crv": "P-256", "kid": self.id, "x": part(&point[1..33]), "y": part(&point[33..])})
    }
}

/// An issuer that publishes its keys over HTTPS.
pub(crate) struct TokenIssuer {
    pub(crate) url: String,
    pub(crate) identity: Identity,
    keys: Arc<Mutex<Value>>,
}

impl TokenIssuer {
    pub(crate) async fn start(key: &SigningKey) -> Self {
        let identity = Identity::own(|_| ());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let issuer =
            Self { url: format!("https://localhost:{port}"), identity, keys: Arc::default() };
        issuer.publish(&[key]);
        let (acceptor, url, keys) =
            (issuer.identity.acceptor(), issuer.url.clone(), issuer.keys.clone());
        #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(stream) = acceptor.accept(stream).await else { continue };
                let (url, keys) = (url.clone(), keys.clone());
                let service = hyper::service::service_fn(move |request| {
                    let answered = answer(&url, &keys, &request);
                    async move { Ok::<_, std::convert::Infallible>(answered) }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                let _ = connection.serve_connection(TokioIo::new(stream), service).await;
            }
        });
        issuer
    }

    /// Replaces the published keys.
    pub(crate) fn publish(&self, keys: &[&SigningKey]) {
        let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
        *self.keys.lock().expect("no panic before") = json!({ "keys": keys });
    }
}

fn answer(url: &str, keys: &Mutex<Value>, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let body = match request.uri().path() {
        "/.well-known/openid-configuration" => {
            json!({"issuer": url, "jwks_uri": format!("{url}/keys")})
        }
        "/keys" => keys.lock().expect("no panic before").clone(),
        _ => Value::Null,
    };
    let mut response = Response::new(Full::from(body.to_string()));
    if body.is_null() {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    response
}
