//! Token Secret: the account that it names, its missing data, and the data to fill in.

use evenkeel_api::{View, views::ServiceAccount};
use evenkeel_runtime::cache::Full;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

/// Type of token Secrets. Upstream: `SecretTypeServiceAccountToken`.
pub(crate) const TYPE: &str = "kubernetes.io/service-account-token";
/// Annotation with the service account's name. Upstream: `ServiceAccountNameKey`.
const ACCOUNT: &str = "kubernetes.io/service-account.name";
/// Annotation with the service account's uid. Upstream: `ServiceAccountUIDKey`.
const UID: &str = "kubernetes.io/service-account.uid";

const TOKEN: &str = "token";
const CA: &str = "ca.crt";
const NAMESPACE: &str = "namespace";

/// The service account named by a Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim<'a> {
    pub(crate) account: &'a str,
    /// The uid; empty before the controller fills the Secret.
    pub(crate) uid: &'a str,
}

impl<'a> Claim<'a> {
    /// Reads the annotations of a Secret; `None` if it has another type or names no account.
    pub(crate) fn of(secret: &'a Full<Secret>) -> Option<Self> {
        let meta = secret.meta();
        let account = meta.annotations.get(ACCOUNT).filter(|name| !name.is_empty())?;
        let is_token = secret.type_.as_deref() == Some(TYPE);
        is_token.then(|| Self { account, uid: meta.annotations.get(UID).unwrap_or_default() })
    }

    /// Whether an account with this name is the one that the Secret names. Without a uid in the Secret, every such
    /// account is.
    pub(crate) fn is_for(&self, account: &ServiceAccount) -> bool {
        self.uid.is_empty() || *self.uid == *account.meta.uid
    }
}

/// Decision about a token Secret.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The Secret is complete.
    Nothing,
    /// The service account does not exist.
    Delete,
    /// The Secret is incomplete.
    Fill(Lacks),
}

/// Missing parts of a token Secret. Upstream: `secretUpdateNeeded`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lacks {
    pub(super) ca: bool,
    pub(super) namespace: bool,
    pub(super) token: bool,
}

/// Decides about a token Secret and its service account. Upstream: `syncSecret`, `secretUpdateNeeded`.
pub(super) fn verdict(
    secret: &Full<Secret>,
    account: Option<&ServiceAccount>,
    ca: Option<&str>,
) -> Verdict {
    if account.is_none() {
        return Verdict::Delete;
    }
    let value = |key| secret.data.as_ref().and_then(|data| data.get(key)).map(|value| &*value.0);
    let is_empty = |key| value(key).is_none_or(<[u8]>::is_empty);
    let ca = ca.filter(|ca| !ca.is_empty());
    let lacks = Lacks {
        ca: ca.is_some_and(|ca| value(CA) != Some(ca.as_bytes())),
        namespace: is_empty(NAMESPACE),
        token: is_empty(TOKEN),
    };
    if lacks == Lacks::default() { Verdict::Nothing } else { Verdict::Fill(lacks) }
}

/// Returns the claims of a token without expiry, which is valid while its Secret exists. Upstream: `LegacyClaims`.
pub(super) fn claims(secret: &Full<Secret>, account: &ServiceAccount) -> Value {
    let (namespace, name) = (&*account.meta.namespace, &*account.meta.name);
    json!({
        "iss": "kubernetes/serviceaccount",
        "kubernetes.io/serviceaccount/namespace": namespace,
        "kubernetes.io/serviceaccount/secret.name": &*secret.meta().name,
        "kubernetes.io/serviceaccount/service-account.name": name,
        "kubernetes.io/serviceaccount/service-account.uid": &*account.meta.uid,
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
    })
}

/// Returns the change that fills in what `lacks` names. `ca` and `token` are plain text; `encode` applies base64.
/// Upstream: `generateTokenIfNeeded`.
pub(super) fn change(
    account: &ServiceAccount,
    lacks: Lacks,
    ca: Option<&str>,
    token: Option<&str>,
    encode: impl Fn(&str) -> String,
) -> Value {
    let values = [
        (CA, ca.filter(|_| lacks.ca)),
        (NAMESPACE, Some(&*account.meta.namespace).filter(|_| lacks.namespace)),
        (TOKEN, token.filter(|_| lacks.token)),
    ];
    let data: serde_json::Map<String, Value> = values
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), encode(value?).into())))
        .collect();
    let annotations = json!({ACCOUNT: &*account.meta.name, UID: &*account.meta.uid});
    json!({"metadata": {"annotations": annotations}, "data": data})
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::{Encoding, Meta};

    fn secret(annotations: &Value, data: &Value) -> Full<Secret> {
        let object = json!({
            "metadata": {"name": "t", "namespace": "ns", "annotations": annotations},
            "type": TYPE, "data": data,
        });
        Full::decode(object.to_string().as_bytes(), Encoding::Json).expect("a Secret")
    }

    fn account() -> ServiceAccount {
        let meta = Meta {
            name: "robot".into(),
            namespace: "ns".into(),
            uid: "u1".into(),
            ..Meta::default()
        };
        ServiceAccount { meta, ..ServiceAccount::default() }
    }

    #[test]
    fn claim_matches_service_account_name_and_uid() {
        let named = secret(&json!({ACCOUNT: "robot"}), &json!({}));
        let claim = Claim::of(&named).expect("it names an account");
        assert_eq!((claim.account, claim.uid), ("robot", ""));
        assert!(claim.is_for(&account()));
        assert!(!Claim { uid: "u2", ..claim }.is_for(&account()));
        assert_eq!(Claim::of(&secret(&json!({}), &json!({}))), None);
    }

    #[test]
    fn only_missing_data_is_filled() {
        // "x" and "ca" in base64.
        let (x, ca) = ("eA==", "Y2E=");
        let all = Lacks { ca: true, namespace: true, token: true };
        // Data of the Secret, the CA certificate if it is known, and the verdict.
        let table = [
            (json!({}), Some("ca"), Verdict::Fill(all)),
            (json!({}), None, Verdict::Fill(Lacks { ca: false, ..all })),
            (json!({"token": x, "namespace": x, "ca.crt": ca}), Some("ca"), Verdict::Nothing),
            (json!({"token": x, "namespace": x}), None, Verdict::Nothing),
            (
                json!({"token": x, "namespace": x, "ca.crt": x}),
                Some("ca"),
                Verdict::Fill(Lacks { ca: true, ..Lacks::default() }),
            ),
            (
                json!({"token": "", "namespace": x, "ca.crt": ca}),
                Some("ca"),
                Verdict::Fill(Lacks { token: true, ..Lacks::default() }),
            ),
        ];
        for (data, ca, wanted) in table {
            let secret = secret(&json!({ACCOUNT: "robot"}), &data);
            assert_eq!(verdict(&secret, Some(&account()), ca), wanted, "{data}");
            assert_eq!(verdict(&secret, None, ca), Verdict::Delete);
        }
        let lacks = Lacks { token: true, ..Lacks::default() };
        let change = change(&account(), lacks, Some("ca"), Some("t"), str::to_uppercase);
        assert_eq!(
            change,
            json!({"metadata": {"annotations": {ACCOUNT: "robot", UID: "u1"}}, "data": {"token": "T"}})
        );
    }
}
