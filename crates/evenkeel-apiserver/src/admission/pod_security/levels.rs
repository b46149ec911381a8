//! Levels and versions of the Pod Security Standards in labels of namespaces.

/// Levels of the Pod Security Standards, beginning with the most permissive one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// Permits every pod.
    Privileged,
    /// Refuses known ways to escalate privileges.
    Baseline,
    /// Permits hardened pods only.
    Restricted,
}

/// Minor version of Kubernetes whose checks a standard uses.
pub(super) type Version = u32;

/// Version `latest`: all checks apply.
pub(super) const LATEST: Version = Version::MAX;

impl Level {
    /// Returns the level as labels spell it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }

    /// Parses the level of a label.
    ///
    /// Upstream: `ParseLevel`.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let levels = [Self::Privileged, Self::Baseline, Self::Restricted];
        let found = levels.into_iter().find(|level| level.name() == text);
        found.ok_or("must be one of privileged, baseline, restricted")
    }
}

/// Parses a version, `latest` or `v1.N`. N has no leading zeros.
///
/// Upstream: `ParseVersion`.
pub(super) fn parse_version(text: &str) -> Result<Version, &'static str> {
    if text == "latest" {
        return Ok(LATEST);
    }
    let minor = text.strip_prefix("v1.").filter(|minor| {
        let has_leading_zero = *minor != "0" && minor.starts_with('0');
        minor.bytes().all(|byte| byte.is_ascii_digit()) && !has_leading_zero
    });
    minor.and_then(|minor| minor.parse().ok()).ok_or("must be \"latest\" or \"v1.x\"")
}
