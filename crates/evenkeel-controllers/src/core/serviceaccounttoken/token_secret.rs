//! Token Secret: the account that it names, its missing data, and the data to fill in.

use evenkeel_api::{View, views::ServiceAccount};
use evenkeel_runtime::cache::Full;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

/// Type of token Secrets. Upstream: `SecretTypeServiceAccountToken`.
pub(crate) const SECRET_TYPE: &str = "kubernetes.io/service-account-token";
/// Annotation with the service account's name. Upstream: `ServiceAccountNameKey`.
const ACCOUNT_NAME_ANNOTATION: &str = "kubernetes.io/service-account.name";
/// Annotation with the service account's uid. Upstream: `ServiceAccountUIDKey`.
const ACCOUNT_UID_ANNOTATION: &str = "kubernetes.io/service-account.uid";

// Keys of the Secret's data. Upstream: `ServiceAccountTokenKey`, `ServiceAccountRootCAKey`,
// `ServiceAccountNamespaceKey`.
/// Key of the token in the Secret's data.
const TOKEN_KEY: &str = "token";
/// Key of the CA certificate in the Secret's data.
const CA_KEY: &str = "ca.crt";
/// Key of the namespace in the Secret's data.
const NAMESPACE_KEY: &str = "namespace";

/// The service account named by a Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AccountRef<'a> {
    pub(crate) account: &'a str,
    /// The account's uid. Empty before the controller fills the Secret.
    pub(crate) uid: &'a str,
}

impl<'a> AccountRef<'a> {
    /// Reads the annotations of a Secret. `None` if it has another type or names no account.
    pub(crate) fn of(secret: &'a Full<Secret>) -> Option<Self> {
        let meta = secret.meta();
        let account =
            meta.annotations.get(ACCOUNT_NAME_ANNOTATION).filter(|name| !name.is_empty())?;
        let is_token = secret.type_.as_deref() == Some(SECRET_TYPE);
        is_token.then(|| Self {
            account,
            uid: meta.annotations.get(ACCOUNT_UID_ANNOTATION).unwrap_or_default(),
        })
    }

    /// Returns whether an account with this name also has the uid. A reference without a uid is for every account of
    /// its name.
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
    Fill(MissingData),
}

/// Missing parts of a token Secret. Upstream: `secretUpdateNeeded`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MissingData {
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
    let missing = MissingData {
        ca: ca.is_some_and(|ca| value(CA_KEY) != Some(ca.as_bytes())),
        namespace: is_empty(NAMESPACE_KEY),
        token: is_empty(TOKEN_KEY),
    };
    if missing == MissingData::default() { Verdict::Nothing } else { Verdict::Fill(missing) }
}

/// Returns the claims of a token without expiry, which is valid while its Secret exists. Upstream: `LegacyClaims`.
pub(super) fn claims(secret: &Full<Secret>, account: &ServiceAccount) -> Value {
    let namespace = &*account.meta.namespace;
    let name = &*account.meta.name;
    json!({
        "iss": "kubernetes/serviceaccount",
        "kubernetes.io/serviceaccount/namespace": namespace,
        "kubernetes.io/serviceaccount/secret.name": &*secret.meta().name,
        "kubernetes.io/serviceaccount/service-account.name": name,
        "kubernetes.io/serviceaccount/service-account.uid": &*account.meta.uid,
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
    })
}

/// Returns the merge patch that adds the missing data and the annotations. `ca` and `token` are plain text; `encode`
/// applies base64. Upstream: `generateTokenIfNeeded`.
pub(super) fn missing_data_patch(
    account: &ServiceAccount,
    missing: MissingData,
    ca: Option<&str>,
    token: Option<&str>,
    encode: impl Fn(&str) -> String,
) -> Value {
    let values = [
        (CA_KEY, ca.filter(|_| missing.ca)),
        (NAMESPACE_KEY, Some(&*account.meta.namespace).filter(|_| missing.namespace)),
        (TOKEN_KEY, token.filter(|_| missing.token)),
    ];
    let data: serde_json::Map<String, Value> = values
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), encode(value?).into())))
        .collect();
    let annotations = json!({ACCOUNT_NAME_ANNOTATION: &*account.meta.name, ACCOUNT_UID_ANNOTATION: &*account.meta.uid});
    json!({"metadata": {"annotations": annotations}, "data": data})
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::{Encoding, Meta};

    fn secret(annotations: &Value, data: &Value) -> Full<Secret> {
        let object = json!({
            "metadata": {"name": "t", "namespace": "ns", "annotations": annotations},
            "type": SECRET_TYPE, "data": data,
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
        let named = secret(&json!({ACCOUNT_NAME_ANNOTATION: "robot"}), &json!({}));
        let reference = AccountRef::of(&named).expect("it names an account");
        assert_eq!((reference.account, reference.uid), ("robot", ""));
        assert!(reference.is_for(&account()));
        assert!(!AccountRef { uid: "u2", ..reference }.is_for(&account()));
        assert_eq!(AccountRef::of(&secret(&json!({}), &json!({}))), None);
    }

    #[test]
    fn only_missing_data_is_filled() {
        // "x" and "ca" in base64.
        let (x, ca) = ("eA==", "Y2E=");
        let all = MissingData { ca: true, namespace: true, token: true };
        // Data of the Secret, the CA certificate if it is known, and the verdict.
        let table = [
            (json!({}), Some("ca"), Verdict::Fill(all)),
            (json!({}), None, Verdict::Fill(MissingData { ca: false, ..all })),
            (json!({"token": x, "namespace": x, "ca.crt": ca}), Some("ca"), Verdict::Nothing),
            (json!({"token": x, "namespace": x}), None, Verdict::Nothing),
            (
                json!({"token": x, "namespace": x, "ca.crt": x}),
                Some("ca"),
                Verdict::Fill(MissingData { ca: true, ..MissingData::default() }),
            ),
            (
                json!({"token": "", "namespace": x, "ca.crt": ca}),
                Some("ca"),
                Verdict::Fill(MissingData { token: true, ..MissingData::default() }),
            ),
        ];
        for (data, ca, wanted) in table {
            let secret = secret(&json!({ACCOUNT_NAME_ANNOTATION: "robot"}), &data);
            assert_eq!(verdict(&secret, Some(&account()), ca), wanted, "{data}");
            assert_eq!(verdict(&secret, None, ca), Verdict::Delete);
        }
        let missing = MissingData { token: true, ..MissingData::default() };
        let patch =
            missing_data_patch(&account(), missing, Some("ca"), Some("t"), str::to_uppercase);
        assert_eq!(
            patch,
            json!({"metadata": {"annotations": {ACCOUNT_NAME_ANNOTATION: "robot", ACCOUNT_UID_ANNOTATION: "u1"}}, "data": {"token": "T"}})
        );
    }
}
