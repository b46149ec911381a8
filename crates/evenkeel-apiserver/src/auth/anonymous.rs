//! Configuration of anonymous requests.

/// Configuration of requests without credentials, which the server treats as requests of `system:anonymous`.
///
/// Upstream: `AnonymousAuthConfig`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Anonymous {
    /// Whether the server accepts anonymous requests.
    pub(crate) enabled: bool,
    /// URL paths that are open to anonymous requests; empty for all paths.
    pub(crate) paths: Vec<String>,
}

impl Default for Anonymous {
    fn default() -> Self {
        Self { enabled: true, paths: Vec::new() }
    }
}

impl Anonymous {
    /// Returns whether a request for this path needs no credentials.
    ///
    /// Upstream: `anonymous.Authenticator.AuthenticateRequest`.
    pub(crate) fn allows(&self, path: &str) -> bool {
        self.enabled && (self.paths.is_empty() || self.paths.iter().any(|allowed| allowed == path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anonymous_request_needs_exactly_a_listed_path() {
        let config = |enabled, paths: &[&str]| Anonymous {
            enabled,
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        };
        for (anonymous, path, allowed) in [
            (Anonymous::default(), "/api", true),
            (config(false, &[]), "/livez", false),
            (config(true, &["/livez", "/readyz"]), "/readyz", true),
            (config(true, &["/livez", "/readyz"]), "/readyz/ping", false),
            (config(true, &["/livez", "/readyz"]), "/api", false),
        ] {
            assert_eq!(anonymous.allows(path), allowed, "{anonymous:?} {path}");
        }
    }
}
