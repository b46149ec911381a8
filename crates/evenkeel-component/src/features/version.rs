//! Emulated version and minimum compatibility version.

use std::fmt;

/// The Kubernetes version that this program implements.
pub const BINARY: Version = Version { major: 1, minor: 37 };
/// The oldest version that can be requested.
const OLDEST: Version = Version { major: 1, minor: 34 };

/// Kubernetes version without the patch number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major version, 1 of `1.37`.
    pub major: u32,
    /// Minor version, 37 of `1.37`.
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Version {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }

    /// Returns the version before [`BINARY`].
    pub(crate) fn before_binary() -> Self {
        BINARY.before()
    }

    fn before(self) -> Self {
        Self { minor: self.minor.saturating_sub(1), ..self }
    }
}

/// Versions that features depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// `--emulated-version`: features behave as in this version.
    pub emulated: Version,
    /// `--min-compatibility-version`: the oldest version of other components that this program must be
    /// compatible with.
    pub min_compatibility: Version,
}

impl Default for Versions {
    fn default() -> Self {
        Self { emulated: BINARY, min_compatibility: BINARY.before() }
    }
}

impl Versions {
    /// Parses the values of the two flags. [`Versions::errors`] checks their ranges.
    ///
    /// # Errors
    /// Fails if a value is not a version, or belongs to another component.
    pub(super) fn read(emulated: &[String], min_compatibility: &[String]) -> Result<Self, String> {
        let mut versions = Self::default();
        if let Some(version) = kube_version(emulated)? {
            versions.emulated = version;
            versions.min_compatibility = version.before().max(OLDEST);
        }
        if let Some(version) = kube_version(min_compatibility)? {
            versions.min_compatibility = version;
        }
        Ok(versions)
    }

    /// Returns an error for each version that is out of range.
    pub(super) fn errors(self) -> Vec<String> {
        let mut errors = Vec::new();
        let Self { emulated, min_compatibility } = self;
        if emulated > BINARY || emulated < OLDEST {
            errors.push(format!(
                "emulation version {emulated} is not between [{OLDEST}, {BINARY}.0]"
            ));
        }
        if min_compatibility > emulated || min_compatibility < OLDEST {
            errors.push(format!(
                "minCompatibilityVersion version {min_compatibility} is not between [{OLDEST}, {emulated}]"
            ));
        }
        errors
    }

    /// Returns the help texts of the two flags, with the values that they accept.
    pub fn options() -> [(&'static str, String); 2] {
        let Self { emulated, min_compatibility } = Self::default();
        let range =
            |default: Version| format!("Options are: kube={OLDEST}..{BINARY}(default:{default})");
        [
            ("emulated-version", range(emulated)),
            ("min-compatibility-version", range(min_compatibility)),
        ]
    }
}

/// Returns the version that is set for this component, as `kube=1.36` or `1.36`.
fn kube_version(settings: &[String]) -> Result<Option<Version>, String> {
    let mut found: Option<Version> = None;
    for text in settings {
        let (component, text) = text
            .split_once('=')
            .map_or(("kube", text.as_str()), |(name, text)| (name.trim(), text.trim()));
        let version_text = text.strip_prefix('v').unwrap_or(text);
        let (major_minor, patch) = match version_text.match_indices('.').nth(1) {
            Some((dot, _)) => (&version_text[..dot], Some(&version_text[dot + 1..])),
            None => (version_text, None),
        };
        let invalid = || format!("could not parse {text:?} as version");
        let version = Version::parse(major_minor).ok_or_else(invalid)?;
        if patch.is_some_and(|patch| patch != "0") {
            return Err(format!("patch version not allowed, got: {component}={version_text}"));
        }
        if component != "kube" {
            return Err(format!("component not registered: {component}"));
        }
        if let Some(first) = found {
            return Err(format!("duplicate version flag, kube={first} and kube={version}"));
        }
        found = Some(version);
    }
    Ok(found)
}
