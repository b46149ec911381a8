//! Users of a cluster: their tokens, and their kubeconfigs beside the cluster's own.

use super::config::User;
use crate::kubeconfig;
use anyhow::{Context, Result};
use std::{
    fmt::Write as _,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

/// Length of a random token in bytes: 128 bits.
const TOKEN_BYTES: usize = 16;

/// A user with its token.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) user: User,
    pub(super) token: String,
}

/// Returns the users with their tokens. Users without a token in the file get a random one.
///
/// # Errors
/// Fails if the system provides no random numbers.
pub(super) fn with_tokens(users: &[User]) -> Result<Vec<Access>> {
    let with_token = |user: &User| {
        let token = user.token.clone().map_or_else(random_token, Ok)?;
        Ok(Access { user: user.clone(), token })
    };
    users.iter().map(with_token).collect()
}

fn random_token() -> Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes)).context(
        "no token can be made for a user: /dev/urandom cannot be read; set users[].token",
    )?;
    let mut token = String::with_capacity(2 * TOKEN_BYTES);
    for byte in bytes {
        let _ = write!(token, "{byte:02x}");
    }
    Ok(token)
}

/// Returns the path of a user's kubeconfig: beside the cluster's own.
pub(super) fn kubeconfig_path(own: &Path, user: &str) -> PathBuf {
    own.with_file_name(format!("kubeconfig-{user}"))
}

/// Writes the kubeconfigs of the users. `administrator` is the administrator's, `context` the cluster's name in it.
///
/// # Errors
/// Fails if a file cannot be written.
pub(super) fn write_kubeconfigs(
    users: &[Access],
    own: &Path,
    context: &str,
    administrator: &str,
) -> Result<()> {
    for Access { user, token } in users {
        let path = kubeconfig_path(own, &user.name);
        kubeconfig::write_for_user(&path, administrator, (context, &user.name), token)
            .with_context(|| format!("users: {}", user.name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_those_of_the_file_or_random() {
        let users: Vec<User> =
            serde_saphyr::from_str("[{name: a, token: mine}, {name: b}, {name: c}]")
                .expect("users");
        let tokens: Vec<String> =
            with_tokens(&users).expect("tokens").into_iter().map(|access| access.token).collect();
        assert_eq!(tokens[0], "mine");
        assert_eq!((tokens[1].len(), tokens[2].len()), (2 * TOKEN_BYTES, 2 * TOKEN_BYTES));
        assert_ne!(tokens[1], tokens[2]);
    }

    #[test]
    fn a_user_has_a_private_kubeconfig_beside_the_clusters() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().expect("a folder");
        let own = folder.path().join("kubeconfig");
        let users: Vec<User> =
            serde_saphyr::from_str("[{name: ann, token: secret}]").expect("users");
        let users = with_tokens(&users).expect("tokens");
        let administrator = "current-context: evenkeel\nclusters:\n- {name: evenkeel, cluster: {server: \"https://127.0.0.1:1\"}}\n\
            users:\n- {name: evenkeel-admin, user: {client-key-data: a2V5}}\n\
            contexts:\n- {name: evenkeel, context: {cluster: evenkeel, user: evenkeel-admin}}\n";
        write_kubeconfigs(&users, &own, "evenkeel-a", administrator).expect("written");
        let path = folder.path().join("kubeconfig-ann");
        assert_eq!(path.metadata().expect("there").permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&path).expect("read");
        assert!(!text.contains("a2V5"), "the administrator's key is not the user's: {text}");
        let config = kube::config::Kubeconfig::read_from(&path).expect("a kubeconfig");
        assert_eq!(config.current_context.as_deref(), Some("ann@evenkeel-a"));
        assert_eq!((&*config.clusters[0].name, &*config.auth_infos[0].name), ("evenkeel-a", "ann"));
        let context = config.contexts[0].context.as_ref().expect("a context");
        assert_eq!((&*context.cluster, context.user.as_deref()), ("evenkeel-a", Some("ann")));
    }
}
