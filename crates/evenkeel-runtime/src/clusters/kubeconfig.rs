//! Kubeconfigs in the data of Secrets.
//!
//! A writer of such a Secret must not gain access to the operator's files or process. So a kubeconfig must be self-contained:
//! it may not name a file or a command.

use k8s_openapi::api::core::v1::Secret;
use kube::config::{AuthInfo, Kubeconfig};

/// Reason why a kubeconfig is not used. Its message contains only names from the kubeconfig, never credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigError {
    /// The Secret lacks the key.
    #[error("the Secret has no key {0:?}: its value is a kubeconfig")]
    NoKey(String),
    /// The value is not a kubeconfig.
    #[error("the value of {0:?} is not a kubeconfig in YAML")]
    Invalid(String),
    /// A field is refused: it names a file or a command.
    #[error(
        "the kubeconfig of a Secret may not use {field} ({owner:?}): put the data itself there"
    )]
    Refused {
        /// Path of the field, such as `users[].user.exec`.
        field: &'static str,
        /// Name of the user or the cluster that has the field.
        owner: String,
    },
}

/// Returns the bytes of the kubeconfig under a key of a Secret, and the kubeconfig.
///
/// # Errors
/// Fails if the Secret has no kubeconfig under the key, or the kubeconfig is rejected.
pub(super) fn of_secret<'s>(
    secret: &'s Secret,
    key: &str,
) -> Result<(&'s [u8], Kubeconfig), KubeconfigError> {
    let value = secret.data.as_ref().and_then(|data| data.get(key));
    let bytes = value.ok_or_else(|| KubeconfigError::NoKey(key.to_owned()))?;
    // The message of a parser's error may quote a credential.
    let invalid = || KubeconfigError::Invalid(key.to_owned());
    let text = std::str::from_utf8(&bytes.0).map_err(|_| invalid())?;
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|_| invalid())?;
    check(&kubeconfig)?;
    Ok((&bytes.0, kubeconfig))
}

/// Refuses a kubeconfig that names a file or a command.
fn check(kubeconfig: &Kubeconfig) -> Result<(), KubeconfigError> {
    for named in &kubeconfig.clusters {
        let cluster = named.cluster.as_ref();
        if cluster.is_some_and(|cluster| cluster.certificate_authority.is_some()) {
            let (field, owner) = ("clusters[].cluster.certificate-authority", named.name.clone());
            return Err(KubeconfigError::Refused { field, owner });
        }
    }
    for named in &kubeconfig.auth_infos {
        if let Some(field) = named.auth_info.as_ref().and_then(refused_field) {
            return Err(KubeconfigError::Refused { field, owner: named.name.clone() });
        }
    }
    Ok(())
}

fn refused_field(user: &AuthInfo) -> Option<&'static str> {
    let fields = [
        ("users[].user.exec", user.exec.is_some()),
        ("users[].user.auth-provider", user.auth_provider.is_some()),
        ("users[].user.tokenFile", user.token_file.is_some()),
        ("users[].user.client-certificate", user.client_certificate.is_some()),
        ("users[].user.client-key", user.client_key.is_some()),
    ];
    fields.into_iter().find_map(|(field, is_set)| is_set.then_some(field))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn secret(key: &str, text: &str) -> Secret {
        let data = [(key.to_owned(), k8s_openapi::ByteString(text.as_bytes().to_vec()))];
        Secret { data: Some(data.into()), ..Secret::default() }
    }

    fn kubeconfig(cluster: &Value, user: &Value) -> String {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "prod", "cluster": cluster}],
            "users": [{"name": "robot", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "prod", "user": "robot"}}],
        })
        .to_string()
    }

    #[test]
    fn a_kubeconfig_names_neither_files_nor_commands() {
        let server = || json!({"server": "https://prod.example.com"});
        let with_file = json!({"server": "https://a", "certificate-authority": "/etc/ca"});
        let exec =
            json!({"exec": {"apiVersion": "v1", "command": "sh", "interactiveMode": "Never"}});
        let table = [
            (server(), json!({"token": "s3cret"}), None),
            (server(), json!({"client-certificate-data": "YQ==", "client-key-data": "YQ=="}), None),
            (
                with_file,
                json!({"token": "s3cret"}),
                Some(("cluster.certificate-authority", "prod")),
            ),
            (server(), exec, Some(("user.exec", "robot"))),
            (server(), json!({"tokenFile": "/token"}), Some(("user.tokenFile", "robot"))),
            (server(), json!({"client-key": "/key"}), Some(("user.client-key", "robot"))),
            (
                server(),
                json!({"client-certificate": "/crt"}),
                Some(("user.client-certificate", "robot")),
            ),
            (
                server(),
                json!({"auth-provider": {"name": "gcp", "config": {}}}),
                Some(("user.auth-provider", "robot")),
            ),
        ];
        for (cluster, user, wanted) in table {
            let text = kubeconfig(&cluster, &user);
            let secret = secret("kubeconfig", &text);
            let refused = match of_secret(&secret, "kubeconfig") {
                Ok((bytes, _)) => {
                    assert_eq!(bytes, text.as_bytes());
                    None
                }
                Err(KubeconfigError::Refused { field, owner }) => Some((field, owner)),
                Err(error) => panic!("{text}: {error}"),
            };
            let refused = refused.as_ref().map(|(field, owner)| (*field, &**owner));
            let is_wanted = match (refused, wanted) {
                (None, None) => true,
                (Some((field, owner)), Some((end, name))) => field.ends_with(end) && owner == name,
                _ => false,
            };
            assert!(is_wanted, "{text}: {refused:?}");
        }
    }

    #[test]
    fn an_error_quotes_no_value() {
        let broken = r#"{"users": "s3cret", "clusters": 7}"#;
        for (secret, wanted) in [
            (secret("kubeconfig", broken), KubeconfigError::Invalid("kubeconfig".to_owned())),
            (secret("kubeconfig", "s3cret: ["), KubeconfigError::Invalid("kubeconfig".to_owned())),
            (secret("value", "s3cret"), KubeconfigError::NoKey("kubeconfig".to_owned())),
            (Secret::default(), KubeconfigError::NoKey("kubeconfig".to_owned())),
        ] {
            let error = of_secret(&secret, "kubeconfig").unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
            assert_eq!(error, wanted);
        }
    }
}
