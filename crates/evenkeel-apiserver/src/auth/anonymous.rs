//! Configuration of anonymous requests.

/// Requests without credentials that are served as `system:anonymous`.
///
/// Upstream: `AnonymousAuthConfig`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Anonymous {
    /// Whether any of them are served.
    pub(crate) enabled: bool,
    /// Paths that may be requested; an empty list allows all paths.
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
    fn paths_are_allowed_one_by_one() {
        let of = |enabled, paths: &[&str]| Anonymous {
            enabled,
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        };
        for (anonymous, path, allowed) in [
            (Anonymous::default(), "/api", true),
            (of(false, &[]), "/livez", false),
            (of(true, &["/livez", "/readyz"]), "/readyz", true),
            (of(true, &["/livez", "/readyz"]), "/readyz/ping", false),
            (of(true, &["/livez", "/readyz"]), "/api", false),
        ] {
            assert_eq!(anonymous.allows(path), allowed, "{anonymous:?} {path}");
        }
    }
}
