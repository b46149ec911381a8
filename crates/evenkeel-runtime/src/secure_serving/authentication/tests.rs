use super::*;
use http::HeaderMap;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair,
};

/// CA with the certificates that it signs.
struct Ca {
    issuer: Issuer<'static, KeyPair>,
    authority: Authority,
}

impl Ca {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&key).unwrap().pem();
        let authority = Authority::from_pem(pem.as_bytes()).unwrap();
        Self { issuer: Issuer::new(params, key), authority }
    }

    fn sign(&self, name: &str, group: &[&str]) -> Vec<CertificateDer<'static>> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        if !name.is_empty() {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        for group in group {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        vec![params.signed_by(&key, &self.issuer).unwrap().der().clone()]
    }
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, value.parse().unwrap());
    }
    headers
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

fn proxy_headers(allowed: &[&str]) -> ProxyHeaders {
    ProxyHeaders {
        allowed_names: texts(allowed),
        username: texts(&["X-Remote-User", "X-User"]),
        uid: texts(&["X-Remote-Uid"]),
        group: texts(&["X-Remote-Group"]),
        extra_prefix: texts(&["X-Remote-Extra-"]),
    }
}

fn today() -> UnixTime {
    unix_time(&Clock::system())
}

#[test]
fn token_is_read_from_the_authorization_header() {
    let table = [
        ("Bearer x", Some("x")),
        ("bearer x y", Some("x")),
        ("  BEARER x ", Some("x")),
        ("Bearer", None),
        ("Bearer  x", None),
        ("Basic eDp5", None),
        ("x", None),
    ];
    for (given, expected) in table {
        assert_eq!(bearer_token(&headers(&[("authorization", given)])), expected, "{given}");
    }
    assert_eq!(bearer_token(&HeaderMap::new()), None);
}

#[test]
fn a_certificate_contains_name_and_groups() {
    let (ca, other) = (Ca::new("ca"), Ca::new("other"));
    let anchors = Anchors { clients: Some(ca.authority.clone()), proxies: None };
    let alice = authenticate_certificate(&anchors, &ca.sign("alice", &["dev"]), today());
    let AuthenticatorResult::Authenticated(alice) = alice else { panic!("{alice:?}") };
    assert_eq!((&*alice.name, &*alice.groups), ("alice", &texts(&["dev"])[..]));
    let id = &alice.extra["authentication.kubernetes.io/credential-id"][0];
    assert!(id.starts_with("X509SHA256=") && id.len() == 11 + 64, "{id}");

    let unnamed = authenticate_certificate(&anchors, &ca.sign("", &["dev"]), today());
    assert_eq!(unnamed, AuthenticatorResult::NoCredentials);
    let of_other_ca = authenticate_certificate(&anchors, &other.sign("alice", &[]), today());
    assert!(matches!(of_other_ca, AuthenticatorResult::Invalid(_)), "{of_other_ca:?}");
    assert_eq!(
        authenticate_certificate(&Anchors::default(), &ca.sign("a", &[]), today()),
        AuthenticatorResult::NoCredentials
    );
    assert_eq!(
        authenticate_certificate(&anchors, &[], today()),
        AuthenticatorResult::NoCredentials
    );
    let late = UnixTime::since_unix_epoch(Duration::from_secs(90_000_000_000));
    let late = authenticate_certificate(&anchors, &ca.sign("alice", &[]), late);
    assert!(matches!(late, AuthenticatorResult::Invalid(_)), "{late:?}");
}

#[test]
fn a_proxy_is_trusted_by_its_certificate() {
    let (front, other) = (Ca::new("front"), Ca::new("other"));
    let anchors = |allowed: &[&str]| Anchors {
        clients: None,
        proxies: Some((front.authority.clone(), proxy_headers(allowed))),
    };
    let forwarded = headers(&[
        ("x-remote-user", ""),
        ("x-user", "bob"),
        ("x-remote-group", "a"),
        ("x-remote-group", "b"),
        ("x-remote-uid", "7"),
        ("x-remote-extra-scopes%2fall", "one"),
        ("x-remote-extra-scopes%2fall", "two"),
    ]);
    let bob =
        authenticate_proxy(&anchors(&["proxy"]), &forwarded, &front.sign("proxy", &[]), today());
    let AuthenticatorResult::Authenticated(bob) = bob else { panic!("{bob:?}") };
    assert_eq!((&*bob.name, &*bob.uid, &*bob.groups), ("bob", "7", &texts(&["a", "b"])[..]));
    assert_eq!(bob.extra["scopes/all"], ["one", "two"]);

    let anyone =
        authenticate_proxy(&anchors(&[]), &forwarded, &front.sign("whoever", &[]), today());
    assert!(matches!(anyone, AuthenticatorResult::Authenticated(_)), "{anyone:?}");
    let without_headers =
        authenticate_proxy(&anchors(&[]), &HeaderMap::new(), &front.sign("x", &[]), today());
    assert_eq!(without_headers, AuthenticatorResult::NoCredentials);
    for chain in [front.sign("stranger", &[]), other.sign("proxy", &[])] {
        let refused = authenticate_proxy(&anchors(&["proxy"]), &forwarded, &chain, today());
        assert!(matches!(refused, AuthenticatorResult::Invalid(_)), "{refused:?}");
    }
    assert_eq!(
        authenticate_proxy(&anchors(&["proxy"]), &forwarded, &[], today()),
        AuthenticatorResult::NoCredentials
    );
}

#[tokio::test]
async fn one_valid_credential_is_enough() {
    let (ca, front, other) = (Ca::new("ca"), Ca::new("front"), Ca::new("other"));
    let trust = Trust::default();
    trust.change(|anchors| {
        anchors.clients = Some(ca.authority.clone());
        anchors.proxies = Some((front.authority.clone(), proxy_headers(&["proxy"])));
    });
    let authenticator =
        DelegatingAuthenticator { trust, tokens: None, clock: Clock::system(), metrics: None };
    let authenticate = async |pairs: &[(&'static str, &'static str)],
                              chain: &[CertificateDer<'static>]| {
        authenticator
            .authenticate_request(&headers(pairs), chain)
            .await
            .map(|user| (user.name, user.groups))
    };
    let alice = ca.sign("alice", &["dev"]);
    let proxy_user = [("x-remote-user", "bob")];
    let user = |name: &str, groups: &[&str]| Ok((name.to_owned(), texts(groups)));
    // The certificate is not a proxy's, but it still identifies the client.
    assert_eq!(
        authenticate(&proxy_user, &alice).await,
        user("alice", &["dev", "system:authenticated"])
    );
    assert_eq!(
        authenticate(&proxy_user, &front.sign("proxy", &[])).await,
        user("bob", &["system:authenticated"])
    );
    assert_eq!(
        authenticate(&proxy_user, &[]).await,
        user("system:anonymous", &["system:unauthenticated"])
    );
    assert_eq!(
        authenticate(&[("authorization", "Bearer x")], &[]).await,
        user("system:anonymous", &["system:unauthenticated"])
    );
    assert!(authenticate(&proxy_user, &other.sign("mallory", &[])).await.is_err());
    assert!(authenticate(&[], &front.sign("proxy", &[])).await.is_err(), "a proxy is not a client");
    let anonymous_certificate = ca.sign("system:anonymous", &[]);
    assert_eq!(authenticate(&[], &anonymous_certificate).await, user("system:anonymous", &[]));
}
