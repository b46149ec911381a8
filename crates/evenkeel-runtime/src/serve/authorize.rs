//! Decides what who asks may do: masters may do everything, some paths are open to all, the rest is the cluster's word.

use super::{reviews::Reviews, user::User};

/// Paths that anyone may ask for: exact ones, and prefixes that end in `*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenPaths {
    exact: Vec<String>,
    prefixes: Vec<String>,
}

/// An open path with a `*` elsewhere than at its end.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("only trailing * allowed in {0:?}")]
pub struct OpenPathError(String);

impl OpenPaths {
    /// As `--authorization-always-allow-paths` has them.
    ///
    /// # Errors
    /// When a `*` is elsewhere than at the end.
    pub fn new(paths: &[String]) -> Result<Self, OpenPathError> {
        let mut open = Self::default();
        for path in paths {
            let path = path.strip_prefix('/').unwrap_or(path);
            match path.strip_suffix('*') {
                Some(prefix) if !prefix.contains('*') => open.prefixes.push(prefix.to_owned()),
                None if !path.contains('*') => open.exact.push(path.to_owned()),
                _ => return Err(OpenPathError(path.to_owned())),
            }
        }
        Ok(open)
    }

    fn cover(&self, path: &str) -> bool {
        let path = path.strip_prefix('/').unwrap_or(path);
        self.exact.iter().any(|exact| exact == path)
            || self.prefixes.iter().any(|prefix| path.starts_with(prefix))
    }
}

/// Whether a request may go on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ruling {
    Allowed,
    /// With what the cluster says of why, which may be nothing.
    Denied(String),
    /// The cluster could not be asked.
    Failed(String),
}

/// Decides what who asks may do.
pub(super) struct Authorizer {
    pub(super) open: OpenPaths,
    pub(super) reviews: Option<Reviews>,
}

impl Authorizer {
    pub(super) async fn rule(&self, user: &User, verb: &str, path: &str) -> Ruling {
        if user.is_master() || self.open.cover(path) {
            return Ruling::Allowed;
        }
        let Some(reviews) = &self.reviews else { return Ruling::Denied(String::new()) };
        match reviews.may(user, verb, path).await {
            Ok(answer) if answer.allowed && answer.denied => {
                Ruling::Failed("the access review was both granted and denied".to_owned())
            }
            Ok(answer) if answer.allowed => Ruling::Allowed,
            Ok(answer) => Ruling::Denied(answer.reason),
            Err(error) => Ruling::Failed(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(paths: &[&str]) -> Result<OpenPaths, OpenPathError> {
        OpenPaths::new(&paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn open_paths() {
        let paths = open(&["/healthz", "livez", "/open/*", "/"]).unwrap();
        let table = [
            ("/healthz", true),
            ("healthz", true),
            ("/healthz/", false),
            ("/healthz/x", false),
            ("/livez", true),
            ("/open/", true),
            ("/open/door/x", true),
            ("/open", false),
            ("/opener", false),
            ("/", true),
            ("/metrics", false),
        ];
        for (path, wanted) in table {
            assert_eq!(paths.cover(path), wanted, "{path}");
        }
        assert!(open(&["*"]).unwrap().cover("/anything"));
        assert_eq!(open(&["/a*b"]).unwrap_err().to_string(), "only trailing * allowed in \"a*b\"");
        assert!(open(&["/a**"]).is_err());
    }

    #[tokio::test]
    async fn without_a_cluster_to_ask_only_open_paths_and_masters_pass() {
        let authorizer = Authorizer { open: open(&["/healthz"]).unwrap(), reviews: None };
        let master = User {
            name: "root".to_owned(),
            groups: vec!["system:masters".to_owned()],
            ..User::default()
        };
        let denied = Ruling::Denied(String::new());
        assert_eq!(authorizer.rule(&User::anonymous(), "get", "/healthz").await, Ruling::Allowed);
        assert_eq!(authorizer.rule(&User::anonymous(), "get", "/metrics").await, denied);
        assert_eq!(authorizer.rule(&master, "delete", "/metrics").await, Ruling::Allowed);
    }
}
