//! Users of service accounts.

use std::sync::Arc;

use evenkeel_api::forms::dns_label;
use evenkeel_apimachinery::user::{Extra, User};

/// Key in `extra` of the node that a service account token names.
///
/// Upstream: `serviceaccount.NodeNameKey`.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// Prefix of the keys in `extra` that Kubernetes sets.
const EXTRA_PREFIX: &str = "authentication.kubernetes.io/";

/// Service account of a token, and the objects that the token is bound to. Absent strings are empty.
///
/// Upstream: `ServiceAccountInfo`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServiceAccountInfo {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) pod: Option<Reference>,
    pub(crate) node: Option<Reference>,
    /// ID of the token: `JTI=…`.
    pub(crate) credential_id: String,
}

/// Name and UID of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
pub(crate) struct Reference {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) uid: String,
}

impl ServiceAccountInfo {
    /// Returns the service account's user.
    ///
    /// Upstream: `UserInfo`.
    pub(crate) fn user(&self) -> Arc<User> {
        let mut extra: Vec<Extra> = Vec::new();
        let mut add = |key: &str, value: &str| {
            if !value.is_empty() {
                extra.push((format!("{EXTRA_PREFIX}{key}").into(), [value.into()].into()));
            }
        };
        add("credential-id", &self.credential_id);
        if let Some(node) = &self.node
            && !node.name.is_empty()
        {
            add("node-name", &node.name);
            add("node-uid", &node.uid);
        }
        if let Some(pod) = &self.pod
            && !pod.name.is_empty()
            && !pod.uid.is_empty()
        {
            add("pod-name", &pod.name);
            add("pod-uid", &pod.uid);
        }
        let namespace = &self.namespace;
        let mut user = User::authenticated(
            &username(namespace, &self.name),
            ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}")],
        );
        user.uid = self.uid.as_str().into();
        user.extra = extra.into();
        Arc::new(user)
    }
}

/// Returns the user of a service account, for callers that only have its namespace and name. Unlike the user of a
/// token, this user is not in the group `system:authenticated`.
///
/// Upstream: `MakeUsername`, `MakeGroupNames`.
pub(crate) fn user_of(namespace: &str, name: &str) -> User {
    let groups =
        ["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}").into()];
    User { name: username(namespace, name).into(), groups: groups.into(), ..User::default() }
}

/// Returns the user name of a service account.
///
/// Upstream: `MakeUsername`.
pub(crate) fn username(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// Splits the user name of a service account into namespace and name. Returns `None` for other user names.
///
/// Upstream: `SplitUsername`.
pub(crate) fn split_username(name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = name.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let is_valid =
        dns_label(namespace).is_empty() && name.split('.').all(|part| dns_label(part).is_empty());
    is_valid.then_some((namespace, name))
}

/// Returns the name of the node that the user's token names; `None` if it names none.
pub(crate) fn node_name(user: &User) -> Option<&str> {
    let (_, values) = user.extra.iter().find(|(key, _)| **key == *NODE_NAME)?;
    match &**values {
        [node] => Some(node),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_user_names_of_service_accounts_are_split() {
        for (name, want) in [
            ("system:serviceaccount:a:web", Some(("a", "web"))),
            ("system:serviceaccount:a:web.v2", Some(("a", "web.v2"))),
            ("system:serviceaccount:a:web:more", None),
            ("system:serviceaccount:a:", None),
            ("system:serviceaccount::web", None),
            ("system:serviceaccount:a", None),
            ("ann", None),
        ] {
            assert_eq!(split_username(name), want, "{name}");
        }
    }
}
