//! Service account tokens: the server signs them as JSON web tokens (ES256) and validates them.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use jiff::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
    UnparsedPublicKey,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::User;
use crate::store::Store;

/// Issuer of the tokens, and their default audience.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc";

/// Signs and validates service account tokens with one P-256 key.
pub(crate) struct Accounts {
    key: EcdsaKeyPair,
    chance: SystemRandom,
    id: String,
}

/// Contents of a token to sign.
pub(crate) struct Grant<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
    /// Kind, name and uid of the object that the token is bound to; the token is invalid once that object is deleted.
    pub(crate) bound: Option<(&'a str, &'a str, &'a str)>,
    pub(crate) audiences: &'a [String],
    /// Id of the token.
    pub(crate) id: &'a str,
    pub(crate) issued: Timestamp,
    pub(crate) seconds: i64,
}

#[derive(Serialize, Deserialize)]
struct Claims {
    #[serde(default)]
    aud: Vec<String>,
    exp: i64,
    nbf: i64,
    #[serde(default)]
    jti: String,
    iss: String,
    #[serde(rename = "kubernetes.io")]
    private: Private,
}

#[derive(Serialize, Deserialize)]
struct Private {
    namespace: String,
    serviceaccount: Named,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pod: Option<Named>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<Named>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<Named>,
}

#[derive(Serialize, Deserialize)]
struct Named {
    name: String,
    uid: String,
}

impl Accounts {
    /// Creates an issuer from a P-256 key in PKCS#8.
    pub(crate) fn new(pkcs8: &[u8]) -> Result<Self, String> {
        let chance = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &chance)
            .map_err(|error| error.to_string())?;
        let digest = ring::digest::digest(&ring::digest::SHA256, key.public_key().as_ref());
        Ok(Self { id: BASE64.encode(digest), key, chance })
    }

    /// Returns a signed token; `None` if the random number generator fails.
    pub(crate) fn sign(&self, grant: &Grant<'_>) -> Option<String> {
        let header = json!({"alg": "ES256", "kid": self.id, "typ": "JWT"});
        let issued = grant.issued.as_second();
        let mut claims = json!({
            "aud": grant.audiences,
            "exp": issued + grant.seconds,
            "iat": issued,
            "iss": ISSUER,
            "jti": grant.id,
            "kubernetes.io": {
                "namespace": grant.namespace,
                "serviceaccount": {"name": grant.name, "uid": grant.uid},
            },
            "nbf": issued,
            "sub": format!("system:serviceaccount:{}:{}", grant.namespace, grant.name),
        });
        if let Some((kind, name, uid)) = grant.bound {
            claims["kubernetes.io"][kind.to_lowercase()] = json!({"name": name, "uid": uid});
        }
        let part = |value: &Value| BASE64.encode(value.to_string());
        let message = format!("{}.{}", part(&header), part(&claims));
        let signature = self.key.sign(&self.chance, message.as_bytes()).ok()?;
        Some(format!("{message}.{}", BASE64.encode(signature)))
    }

    /// Validates a token and returns its user and those of the wanted audiences that it lists; no wanted audience means the
    /// server's own. `None` if the token is invalid or an object that it is bound to was deleted.
    pub(crate) fn user(
        &self,
        store: &Store,
        now: Timestamp,
        token: &str,
        wanted: &[String],
    ) -> Option<(Arc<User>, Vec<String>)> {
        let (message, signature) = token.rsplit_once('.')?;
        let (_, claims) = message.split_once('.')?;
        let signature = BASE64.decode(signature).ok()?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref())
            .verify(message.as_bytes(), &signature)
            .ok()?;
        let claims: Claims = serde_json::from_slice(&BASE64.decode(claims).ok()?).ok()?;
        let own = [ISSUER.to_owned()];
        let wanted = if wanted.is_empty() { &own[..] } else { wanted };
        let audiences: Vec<String> =
            claims.aud.iter().filter(|a| wanted.contains(a)).cloned().collect();
        let second = now.as_second();
        if claims.iss != ISSUER
            || audiences.is_empty()
            || second >= claims.exp
            || second < claims.nbf
        {
            return None;
        }
        let Private { namespace, serviceaccount, pod, secret, node } = claims.private;
        let there = |resource_prefix: &str, key: &str, uid: &str| {
            let uid_there = store
                .peek(resource_prefix, key)?
                .decode()
                .ok()?
                .pointer("/metadata/uid")?
                .as_str()?
                == uid;
            uid_there.then_some(())
        };
        there(
            "/serviceaccounts",
            &format!("{namespace}/{}", serviceaccount.name),
            &serviceaccount.uid,
        )?;
        let mut extra: Vec<super::Extra> = Vec::new();
        let mut say = |key: &str, value: &str| extra.push((key.into(), [value.into()].into()));
        if !claims.jti.is_empty() {
            say("authentication.kubernetes.io/credential-id", &format!("JTI={}", claims.jti));
        }
        if let Some(pod) = &pod {
            there("/pods", &format!("{namespace}/{}", pod.name), &pod.uid)?;
            say("authentication.kubernetes.io/pod-name", &pod.name);
            say("authentication.kubernetes.io/pod-uid", &pod.uid);
        }
        if let Some(secret) = &secret {
            there("/secrets", &format!("{namespace}/{}", secret.name), &secret.uid)?;
        }
        if let Some(node) = &node {
            // A pod's token only names the node. A node's token is bound to it and ends with it.
            if pod.is_none() {
                there("/nodes", &node.name, &node.uid)?;
            }
            say("authentication.kubernetes.io/node-name", &node.name);
            say("authentication.kubernetes.io/node-uid", &node.uid);
        }
        let mut user = User::authenticated(
            &format!("system:serviceaccount:{namespace}:{}", serviceaccount.name),
            ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}")],
        );
        user.uid = serviceaccount.uid.into();
        user.extra = extra.into();
        Some((Arc::new(user), audiences))
    }
}
