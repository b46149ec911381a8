//! Authentication: tokens of all types, client certificates, and anonymous requests.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use evenkeel_apiserver::{AuthenticationOptions, Clock, RequestHeaderOptions, Server};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio_rustls::client::TlsStream;

use crate::Client;
use crate::issuer::{SigningKey, TokenIssuer};

const NOW: &str = "2026-07-21T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().expect("a time")
}

async fn start(options: AuthenticationOptions) -> (Server, Client) {
    let builder = Server::builder().clock(Clock::new(now)).authentication(options);
    let server = builder.build().await.expect("a server in memory");
    let client = Client(server.service());
    (server, client)
}

/// A folder with the file of an authentication configuration.
struct ConfigFile(tempfile::TempDir);

impl ConfigFile {
    fn new(text: &str) -> Self {
        let file = Self(tempfile::tempdir().expect("a folder"));
        file.write(text);
        file
    }

    fn write(&self, text: &str) {
        std::fs::write(self.path(), text).expect("written");
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("authentication.yaml")
    }

    fn options(&self) -> AuthenticationOptions {
        AuthenticationOptions {
            authentication_config: Some(self.path()),
            ..AuthenticationOptions::default()
        }
    }
}

impl Client {
    /// Returns the user of a token according to the server; `None` if the server refuses the token.
    async fn user_of(&self, token: &str) -> Option<Value> {
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let authorization = format!("Bearer {token}");
        let headers =
            [("content-type", "application/json"), ("authorization", authorization.as_str())];
        let response = self.send("POST", path, &headers, review.to_string().into()).await;
        let code = response.status();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        match code {
            StatusCode::CREATED => Some(body["status"]["userInfo"].clone()),
            StatusCode::UNAUTHORIZED => None,
            code => panic!("{code}: {body}"),
        }
    }

    /// Returns the server's metrics.
    async fn metrics(&self) -> String {
        let response = self.send("GET", "/metrics", &[], Bytes::new()).await;
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        String::from_utf8(body.to_vec()).expect("UTF-8")
    }

    async fn token_review(&self, token: &str, audiences: &[&str]) -> Value {
        let review = json!({"spec": {"token": token, "audiences": audiences}});
        self.make("/apis/authentication.k8s.io/v1/tokenreviews", review).await["status"].clone()
    }
}

#[tokio::test]
async fn tokens_of_another_issuer_make_users() {
    let (old, new) = (SigningKey::new("old"), SigningKey::new("new"));
    let issuer = TokenIssuer::start(&old).await;
    let config = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {"url": issuer.url, "audiences": ["cluster"], "certificateAuthority": issuer.identity.pem()},
            "claimMappings": {
                "username": {"expression": "'oidc:' + claims.sub"},
                "groups": {"claim": "groups", "prefix": "oidc:"},
                "extra": [{"key": "example.org/tenant", "valueExpression": "claims.tenant"}],
            },
            "claimValidationRules": [{"expression": "claims.tenant != 'banned'", "message": "banned"}],
            "userValidationRules": [{"expression": "user.username != 'oidc:root'", "message": "reserved"}],
        }],
    });
    let file = ConfigFile::new(&config.to_string());
    let (_server, client) = start(file.options()).await;
    let claims = |change: &[(&str, Value)]| {
        let mut claims = json!({
            "iss": issuer.url, "aud": "cluster", "sub": "ann", "groups": ["dev"], "tenant": "t",
            "jti": "1", "exp": now().as_second() + 60,
        });
        for (claim, value) in change {
            claims[*claim] = value.clone();
        }
        claims
    };
    let ann = json!({
        "username": "oidc:ann",
        "groups": ["oidc:dev", "system:authenticated"],
        "extra": {"authentication.kubernetes.io/credential-id": ["JTI=1"], "example.org/tenant": ["t"]},
    });
    let token = old.sign(&claims(&[]));
    // The keys are fetched in the background.
    let mut user = client.user_of(&token).await;
    while user.is_none() {
        tokio::task::yield_now().await;
        user = client.user_of(&token).await;
    }
    assert_eq!(user, Some(ann.clone()));
    for (claim, value) in [
        ("aud", json!("another")),
        ("exp", json!(now().as_second() - 1)),
        ("tenant", json!("banned")),
        ("sub", json!("root")),
        ("iss", json!("https://another")),
    ] {
        let token = old.sign(&claims(&[(claim, value.clone())]));
        assert_eq!(client.user_of(&token).await, None, "{claim} {value}");
    }
    let server = "https://kubernetes.default.svc";
    let review = client.token_review(&token, &[]).await;
    assert_eq!(review, json!({"authenticated": true, "user": ann, "audiences": [server]}));
    // An issuer's audience is not among the server's audiences.
    let review = client.token_review(&token, &["cluster"]).await;
    assert_eq!(
        (&review["authenticated"], &review["error"]),
        (&Value::Null, &json!("invalid bearer token"))
    );
    let review = client.token_review(&old.sign(&claims(&[("sub", json!("root"))])), &[]).await;
    assert!(review["error"].as_str().is_some_and(|error| error.contains("reserved")), "{review}");
    // Keys rotate: a token of the new key is accepted immediately, and a token of the old key is refused.
    issuer.publish(&[&new]);
    assert_eq!(client.user_of(&new.sign(&claims(&[]))).await, Some(ann));
    assert_eq!(client.user_of(&token).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_replaces_issuers_without_a_restart() {
    let (key, other_key) = (SigningKey::new("a"), SigningKey::new("b"));
    let (old, new) = (TokenIssuer::start(&key).await, TokenIssuer::start(&other_key).await);
    let config = |issuer: &TokenIssuer| {
        json!({
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AuthenticationConfiguration",
            "jwt": [{
                "issuer": {"url": issuer.url, "audiences": ["cluster"], "certificateAuthority": issuer.identity.pem()},
                "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
            }],
        })
    };
    let token = |issuer: &TokenIssuer, key: &SigningKey| {
        let exp = now().as_second() + 60;
        key.sign(&json!({"iss": issuer.url, "aud": "cluster", "sub": "ann", "exp": exp}))
    };
    let (of_old, of_new) = (token(&old, &key), token(&new, &other_key));
    let file = ConfigFile::new(&config(&old).to_string());
    let (server, client) = start(file.options()).await;
    // Waits until the user of the first token is known, while the time of timers passes.
    let known = async |accepted: &str, refused: &str| {
        while client.user_of(accepted).await.is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        assert_eq!(client.user_of(refused).await, None);
    };
    known(&of_old, &of_new).await;
    // A broken file, and one that changes anonymous requests, keep the old issuer.
    let mut opens = config(&new);
    opens["anonymous"] = json!({"enabled": false});
    for (text, failures) in [("{", 1), (&*opens.to_string(), 2)] {
        file.write(text);
        tokio::time::sleep(std::time::Duration::from_secs(6)).await;
        known(&of_old, &of_new).await;
        let line = format!("status=\"failure\"}} {failures}\n");
        let metrics = client.metrics().await;
        assert!(metrics.contains(&line), "{text}\n{metrics}");
    }
    file.write(&config(&new).to_string());
    known(&of_new, &of_old).await;
    let metrics = client.metrics().await;
    for name in [
        "automatic_reloads_total{apiserver_id_hash=\"sha256:",
        "automatic_reload_last_timestamp_seconds{apiserver_id_hash=\"sha256:",
        "last_config_info{apiserver_id_hash=\"sha256:",
    ] {
        let line = format!("\napiserver_authentication_config_controller_{name}");
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
    assert!(metrics.contains("status=\"success\"} 1\n"), "{metrics}");
    drop(server);
}

/// A configuration whose issuer is that of service account tokens.
const OWN_ISSUER: &str = "jwt: [{issuer: {url: 'https://kubernetes.default.svc', audiences: [a]}, claimMappings: {username: {claim: sub, prefix: ''}}}]";

#[tokio::test]
async fn a_configuration_that_is_wrong_does_not_start() {
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
    let text = |text: &str| ConfigFile::new(&format!("{head}{text}"));
    let files = ["anonymous: {enabled: false}", "jwt: [{}]", OWN_ISSUER].map(text);
    let [anonymous, incomplete, own_issuer] = files.each_ref().map(ConfigFile::options);
    let both = AuthenticationOptions { anonymous_auth: Some(true), ..anonymous };
    let nowhere = AuthenticationOptions {
        authentication_config: Some("/nowhere".into()),
        ..AuthenticationOptions::default()
    };
    let key = AuthenticationOptions {
        service_account_signing_key: Some("nothing".to_owned()),
        ..AuthenticationOptions::default()
    };
    for (options, why) in [
        (incomplete, "authentication-config: jwt[0].issuer.url: Required value"),
        (own_issuer, "disallowed issuers"),
        (nowhere, "authentication-config: /nowhere: No such file"),
        (both, "anonymous-auth: it cannot be set"),
        (key, "service-account-signing-key-file: no private key"),
    ] {
        let error = Server::builder().authentication(options).build().await.expect_err(why);
        assert!(error.to_string().contains(why), "{error}");
    }
    let wrong = Server::builder().client_ca("nothing".to_owned()).build().await;
    let why = "client-ca-file: it contains no PEM of a certificate";
    assert_eq!(wrong.expect_err(why).to_string(), why);
    let wrong = Server::builder().enable_admission_plugin("Nothing").build().await;
    assert!(wrong.expect_err("unknown").to_string().contains("\"Nothing\" is unknown"));
}

#[tokio::test]
async fn bootstrap_tokens_authenticate_where_they_are_enabled() {
    let secret = json!({
        "metadata": {"name": "bootstrap-token-abcdef"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
            "expiration": "2026-07-21T12:00:01Z", "auth-extra-groups": "system:bootstrappers:kubeadm",
        },
    });
    let (path, token) = ("/api/v1/namespaces/kube-system/secrets", "abcdef.0123456789abcdef");
    for enabled in [true, false] {
        let options = AuthenticationOptions {
            enable_bootstrap_token_auth: enabled,
            ..AuthenticationOptions::default()
        };
        let (_server, client) = start(options).await;
        assert_eq!(client.user_of(token).await, None);
        client.make(path, secret.clone()).await;
        let user = json!({
            "username": "system:bootstrap:abcdef",
            "groups": ["system:bootstrappers", "system:bootstrappers:kubeadm", "system:authenticated"],
        });
        assert_eq!(client.user_of(token).await, enabled.then_some(user));
        assert_eq!(client.user_of("abcdef.0123456789abcdeg").await, None);
        client.ask("DELETE", &format!("{path}/bootstrap-token-abcdef"), Value::Null).await;
        assert_eq!(client.user_of(token).await, None);
    }
}

/// Creates a service account and returns its UID.
async fn account(client: &Client, name: &str) -> String {
    let path = "/api/v1/namespaces/default/serviceaccounts";
    let made = client.make(path, json!({"metadata": {"name": name}})).await;
    made["metadata"]["uid"].as_str().expect("a uid").to_owned()
}

#[tokio::test]
async fn a_secret_holds_a_token_as_long_as_it_lives() {
    // The key signs legacy tokens, as the token controller does for Secrets.
    let (key, signer) = legacy_signer();
    let options = AuthenticationOptions {
        service_account_keys: vec![key],
        ..AuthenticationOptions::default()
    };
    let (_server, client) = start(options).await;
    let uid = account(&client, "web").await;
    let prefix = "kubernetes.io/serviceaccount";
    let token = signer(&json!({
        "iss": "kubernetes/serviceaccount",
        "sub": "system:serviceaccount:default:web",
        (format!("{prefix}/namespace")): "default",
        (format!("{prefix}/secret.name")): "token",
        (format!("{prefix}/service-account.name")): "web",
        (format!("{prefix}/service-account.uid")): uid,
    }));
    let path = "/api/v1/namespaces/default/secrets";
    assert_eq!(client.user_of(&token).await, None);
    let secret = json!({
        "metadata": {"name": "token", "annotations": {(format!("{prefix}.name").replace("serviceaccount.name", "service-account.name")): "web"}},
        "type": "kubernetes.io/service-account-token",
        "stringData": {"token": token},
    });
    client.make(path, secret).await;
    let user = client.user_of(&token).await.expect("a user");
    assert_eq!(
        (&user["username"], &user["uid"]),
        (&json!("system:serviceaccount:default:web"), &json!(uid))
    );
    // A label records its last use.
    let one = format!("{path}/token");
    let labels = async || client.get(&one).await["metadata"]["labels"].clone();
    assert_eq!(labels().await["kubernetes.io/legacy-token-last-used"], "2026-07-21");
    let review = client.token_review(&token, &["vault"]).await;
    assert!(review["error"].as_str().is_some_and(|error| error.contains("audiences")), "{review}");
    // A label invalidates it.
    let label = |value: Value| json!({"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": value}}});
    client.ask("PATCH", &one, label(json!("2026-07-01"))).await;
    assert_eq!(client.user_of(&token).await, None);
    client.ask("PATCH", &one, label(Value::Null)).await;
    assert!(client.user_of(&token).await.is_some());
    client.ask("DELETE", &one, Value::Null).await;
    assert_eq!(client.user_of(&token).await, None);
}

/// Returns a key in PEM, and a function that signs claims with it.
fn legacy_signer() -> (String, impl Fn(&Value) -> String) {
    use base64::Engine as _;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
    let key = KeyPair::generate().expect("a key");
    let random = ring::rand::SystemRandom::new();
    let pair =
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key.serialize_der(), &random)
            .expect("a key");
    let sign = move |claims: &Value| {
        let part = |value: &Value| BASE64.encode(value.to_string());
        let message = format!("{}.{}", part(&json!({"alg": "ES256"})), part(claims));
        let signature = pair.sign(&random, message.as_bytes()).expect("signed");
        format!("{message}.{}", BASE64.encode(signature))
    };
    (key.public_key_pem(), sign)
}

#[tokio::test]
async fn requested_tokens_end_with_what_they_are_bound_to() {
    let (_server, client) = start(AuthenticationOptions::default()).await;
    let uid = account(&client, "web").await;
    let path = "/api/v1/namespaces/default/serviceaccounts/web/token";
    let secrets = "/api/v1/namespaces/default/secrets";
    client.make(secrets, json!({"metadata": {"name": "s"}})).await;
    let bound =
        json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": "s"}}});
    let request = async |body: Value| {
        let made = client.make(path, body).await;
        made["status"]["token"].as_str().expect("a token").to_owned()
    };
    let (of_secret, of_account) = (request(bound).await, request(json!({})).await);
    for token in [&of_secret, &of_account] {
        let user = client.user_of(token).await.expect("a user");
        assert_eq!(user["uid"], json!(uid));
    }
    client.ask("DELETE", &format!("{secrets}/s"), Value::Null).await;
    client.make(secrets, json!({"metadata": {"name": "s"}})).await;
    assert_eq!(client.user_of(&of_secret).await, None);
    assert!(client.user_of(&of_account).await.is_some());
    let one = "/api/v1/namespaces/default/serviceaccounts/web";
    client.ask("DELETE", one, Value::Null).await;
    assert_eq!(client.user_of(&of_account).await, None);
    let other = account(&client, "web").await;
    assert_ne!(other, uid);
    assert_eq!(client.user_of(&of_account).await, None);
    // A request with the UID of the previous account is a conflict.
    let (code, _) = client.ask("POST", path, json!({"metadata": {"uid": uid}})).await;
    assert_eq!(code, StatusCode::CONFLICT);
    let (code, _) = client.ask("POST", path, json!({"metadata": {"name": "x"}})).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn the_issuer_of_service_account_tokens_is_discovered() {
    let options = AuthenticationOptions {
        service_account_issuers: vec!["https://issuer".to_owned(), "https://before".to_owned()],
        service_account_jwks_uri: Some("https://keys/jwks".to_owned()),
        api_audiences: vec!["cluster".to_owned()],
        ..AuthenticationOptions::default()
    };
    let (server, client) = start(options).await;
    account(&client, "web").await;
    let made = client.make("/api/v1/namespaces/default/serviceaccounts/web/token", json!({})).await;
    assert_eq!(made["spec"]["audiences"], json!(["cluster"]));
    let token = format!("Bearer {}", made["status"]["token"].as_str().expect("a token"));
    let nobody = Client(server.service_as(evenkeel_apiserver::User::anonymous()));
    for (path, content_type) in [
        ("/.well-known/openid-configuration", "application/json"),
        ("/openid/v1/jwks", "application/jwk-set+json"),
    ] {
        let refused = nobody.send("GET", path, &[], Bytes::new()).await;
        assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{path}");
        assert_eq!(refused.headers()["x-content-type-options"], "nosniff");
        let headers = [("authorization", "Bearer none")];
        let refused = nobody.send("GET", path, &headers, Bytes::new()).await;
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED, "{path}");
        assert!(!refused.headers().contains_key("www-authenticate"));
        let headers = [("authorization", token.as_str())];
        let response = nobody.send("GET", path, &headers, Bytes::new()).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        assert_eq!(response.headers()["content-type"], content_type);
        assert_eq!(response.headers()["cache-control"], "public, max-age=3600");
        let (code, _) = client.ask("POST", path, Value::Null).await;
        assert_eq!(code, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        let headers = [("accept", "text/html")];
        let response = client.send("GET", path, &headers, Bytes::new()).await;
        assert_eq!(response.status(), StatusCode::NOT_ACCEPTABLE, "{path}");
    }
    // All users may get the server's health, and only get it.
    for (method, code) in [("GET", 200), ("HEAD", 403), ("POST", 403), ("TRACE", 403)] {
        let response = nobody.send(method, "/livez", &[], Bytes::new()).await;
        assert_eq!(response.status().as_u16(), code, "{method}");
    }
    let metadata = client.get("/.well-known/openid-configuration").await;
    assert_eq!(
        (
            &metadata["issuer"],
            &metadata["jwks_uri"],
            &metadata["id_token_signing_alg_values_supported"]
        ),
        (&json!("https://issuer"), &json!("https://keys/jwks"), &json!(["ES256"]))
    );
    let keys = client.get("/openid/v1/jwks").await;
    assert_eq!((&keys["keys"][0]["kty"], &keys["keys"][0]["crv"]), (&json!("EC"), &json!("P-256")));
}

/// A server behind TLS.
struct Listening {
    server: Server,
    port: u16,
}

impl Listening {
    async fn start(builder: evenkeel_apiserver::Builder) -> Self {
        let server = builder.build().await.expect("a server in memory");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let served = server.clone();
        #[expect(clippy::disallowed_methods, reason = "the server of a test, which ends with it")]
        tokio::spawn(async move { served.serve(listener, std::future::pending()).await });
        Self { server, port }
    }

    /// Opens a TLS connection with this client certificate.
    async fn connect(
        &self,
        identity: Option<(CertificateDer<'static>, &KeyPair)>,
    ) -> TlsStream<tokio::net::TcpStream> {
        let mut roots = rustls::RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(self.server.ca_pem().as_bytes()).expect("PEM");
        roots.add(ca).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_root_certificates(roots);
        let config = match identity {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
                config.with_client_auth_cert(vec![certificate], key).expect("an identity")
            }
        };
        let stream =
            tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.expect("dialled");
        let name = "localhost".try_into().expect("a name");
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        connector.connect(name, stream).await.expect("a connection")
    }

    /// Returns the code and the body of the response to a client with this certificate, and the server's certificate.
    async fn get(
        &self,
        path: &str,
        identity: Option<(CertificateDer<'static>, &KeyPair)>,
        headers: &[(&str, &str)],
    ) -> (StatusCode, String, CertificateDer<'static>) {
        let stream = self.connect(identity).await;
        let of_server = stream.get_ref().1.peer_certificates().expect("a chain")[0].clone();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
        let mut request = Request::get(path).header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Empty::<Bytes>::new()).expect("a request");
        let answered = async {
            let response = sender.send_request(request).await.expect("sent");
            let code = response.status();
            let body = response.into_body().collect().await.expect("a body").to_bytes();
            (code, String::from_utf8_lossy(&body).into_owned())
        };
        let (code, body) = tokio::select! {
            answered = answered => answered,
            _ = connection => panic!("the connection ended"),
        };
        (code, body, of_server)
    }
}

#[tokio::test]
async fn requests_without_credentials_are_served_where_that_is_allowed() {
    let files =
        ["{enabled: false}", "{enabled: true}", "{enabled: true, conditions: [{path: /livez}]}"];
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
    let files = files.map(|text| ConfigFile::new(&format!("{head}anonymous: {text}")));
    let [none, all, one] = files.each_ref().map(ConfigFile::options);
    let off =
        AuthenticationOptions { anonymous_auth: Some(false), ..AuthenticationOptions::default() };
    for (options, livez, api) in [
        (AuthenticationOptions::default(), 200, 403),
        (off, 401, 401),
        (none, 401, 401),
        (all, 200, 403),
        (one, 200, 401),
    ] {
        let listening = Listening::start(Server::builder().authentication(options.clone())).await;
        for (path, expected) in [("/livez", livez), ("/api", api)] {
            let (code, body, _) = listening.get(path, None, &[]).await;
            assert_eq!(code.as_u16(), expected, "{path} {options:?}: {body}");
        }
    }
}

/// Returns the certificate of an authority, and a client certificate and key of an administrator that it signed.
/// `change` changes the client certificate.
fn administrator(
    change: impl FnOnce(&mut CertificateParams),
) -> (String, CertificateDer<'static>, KeyPair) {
    let ca_key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = params.self_signed(&ca_key).expect("a certificate");
    let issuer = rcgen::Issuer::new(params, ca_key);
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "ann");
    params.distinguished_name.push(DnType::OrganizationName, "system:masters");
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    change(&mut params);
    let certificate = params.signed_by(&key, &issuer).expect("signed").der().clone();
    (ca.pem(), certificate, key)
}

#[tokio::test]
async fn client_certificates_of_another_authority_are_accepted_where_it_is_given() {
    let (ca, certificate, key) = administrator(|_| {});
    let listening = Listening::start(Server::builder().client_ca(ca.clone())).await;
    let (code, body, of_server) =
        listening.get("/api/v1/namespaces/default", Some((certificate, &key)), &[]).await;
    assert_eq!(code, StatusCode::OK, "{body}");
    // Extension API servers accept them, too.
    let client = Client(listening.server.service());
    let map = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let bundle = client.get(map).await["data"]["client-ca-file"].clone();
    assert!(bundle.as_str().is_some_and(|bundle| bundle.contains(&ca)), "{bundle}");
    // The server's own certificate is valid for a year.
    let (_, parsed) = x509_parser::parse_x509_certificate(&of_server).expect("a certificate");
    let validity = parsed.validity();
    let seconds = validity.not_after.timestamp() - validity.not_before.timestamp();
    assert_eq!(seconds, 365 * 24 * 60 * 60 + 5 * 60);
}

#[tokio::test]
async fn a_certificate_that_expires_is_refused_on_its_old_connection() {
    let time = Arc::new(Mutex::new(Timestamp::UNIX_EPOCH));
    let clock = {
        let time = time.clone();
        Clock::new(move || *time.lock().expect("no panic before"))
    };
    #[expect(clippy::disallowed_methods, reason = "TLS follows the system's clock")]
    let begun = Timestamp::now();
    *time.lock().expect("no panic before") = begun;
    let until = Timestamp::from_second(begun.as_second() + 3600).expect("an hour later");
    let (ca, certificate, key) = administrator(|params| {
        let seconds = until.as_second().unsigned_abs();
        let until = rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds);
        params.not_after = until;
    });
    let listening = Listening::start(Server::builder().clock(clock).client_ca(ca)).await;
    let stream = listening.connect(Some((certificate, &key))).await;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
    #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
    tokio::spawn(connection);
    let token = format!("Bearer {}", listening.server.admin_token());
    let mut get = async |token: Option<&str>| {
        let mut request = Request::get("/api/v1/namespaces/default").header("host", "localhost");
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        let request = request.body(Empty::<Bytes>::new()).expect("a request");
        let response = sender.send_request(request).await.expect("an answer");
        let code = response.status().as_u16();
        response.into_body().collect().await.expect("a body");
        code
    };
    assert_eq!(get(None).await, 200);
    *time.lock().expect("no panic before") = until;
    assert_eq!(get(None).await, 200);
    *time.lock().expect("no panic before") = until + jiff::SignedDuration::from_secs(1);
    assert_eq!(get(None).await, 401);
    // Other credentials remain valid.
    assert_eq!(get(Some(&token)).await, 200);
    assert_eq!(get(None).await, 401);
}

#[tokio::test]
async fn a_front_proxy_names_the_users_of_its_requests() {
    let named = |name: &'static str| {
        move |params: &mut CertificateParams| {
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, name);
        }
    };
    let names = |name: &str| vec![name.to_owned()];
    let path = "/api/v1/namespaces/default";
    let masters = [("x-remote-user", "bob"), ("x-remote-group", "system:masters")];
    let token = ("authorization", "Bearer nonsense");
    for (common_name, headers, code, text) in [
        ("front", &masters[..], 200, "\"name\":\"default\""),
        ("front", &masters[..1], 403, "User \\\"bob\\\" cannot get"),
        // The proxy's own certificate does not authenticate a client.
        ("front", &[], 401, "Unauthorized"),
        ("front", &masters[1..], 401, "Unauthorized"),
        ("front", &[masters[0], masters[1], token], 200, "\"name\":\"default\""),
        ("other", &masters[..], 401, "Unauthorized"),
        // Without a certificate, the headers are ignored.
        ("", &masters[..], 403, "User \\\"system:anonymous\\\" cannot get"),
    ] {
        let (ca, certificate, key) = administrator(named(common_name));
        let request_header = Some(RequestHeaderOptions {
            client_ca: ca.clone(),
            allowed_names: names("front"),
            username_headers: names("X-Remote-User"),
            group_headers: names("X-Remote-Group"),
            ..RequestHeaderOptions::default()
        });
        let options = AuthenticationOptions { request_header, ..AuthenticationOptions::default() };
        let listening = Listening::start(Server::builder().authentication(options)).await;
        let identity = (!common_name.is_empty()).then_some((certificate, &key));
        let (found, body, _) = listening.get(path, identity, headers).await;
        assert_eq!(found.as_u16(), code, "{common_name} {headers:?}: {body}");
        assert!(body.contains(text), "{common_name} {headers:?}: {body}");
        // Extension API servers trust the same proxies.
        let client = Client(listening.server.service());
        let map = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
        let data = client.get(map).await["data"].clone();
        assert_eq!(data["requestheader-client-ca-file"], json!(ca));
        assert_eq!(data["requestheader-allowed-names"], json!("[\"front\"]"));
        assert_eq!(data["requestheader-uid-headers"], json!("[]"));
    }
    let request_header = Some(RequestHeaderOptions::default());
    let options = AuthenticationOptions { request_header, ..AuthenticationOptions::default() };
    let refused = Server::builder().authentication(options).build().await.expect_err("no CA");
    assert!(refused.to_string().starts_with("requestheader-client-ca-file: "), "{refused}");
}
