//! Versions to emulate and to be compatible with.

use std::fmt;

/// The Kubernetes version that this program follows.
pub const BINARY: Version = Version { major: 1, minor: 37 };
/// The oldest version that may be asked for.
const OLDEST: Version = Version { major: 1, minor: 34 };

/// A version without its patch.
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

    /// The version before the one that this program follows.
    pub(crate) fn before_binary() -> Self {
        BINARY.before()
    }

    fn before(self) -> Self {
        Self { minor: self.minor.saturating_sub(1), ..self }
    }
}

/// The versions that features depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// `--emulated-version`: features are as this version had them.
    pub emulated: Version,
    /// `--min-compatibility-version`: the oldest other part of the control plane to get along with.
    pub min_compatibility: Version,
}

impl Default for Versions {
    fn default() -> Self {
        Self { emulated: BINARY, min_compatibility: BINARY.before() }
    }
}

impl Versions {
    /// From the values of the two flags. Ranges are checked by [`Versions::problems`].
    ///
    /// # Errors
    /// When a value is no version, or not of this component.
    pub(super) fn read(emulated: &[String], min_compatibility: &[String]) -> Result<Self, String> {
        let mut versions = Self::default();
        if let Some(version) = of_kube(emulated)? {
            versions.emulated = version;
            versions.min_compatibility = version.before().max(OLDEST);
        }
        if let Some(version) = of_kube(min_compatibility)? {
            versions.min_compatibility = version;
        }
        Ok(versions)
    }

    /// Returns errors about versions that are out of range.
    pub(super) fn problems(self) -> Vec<String> {
        let mut problems = Vec::new();
        let Self { emulated, min_compatibility } = self;
        if emulated > BINARY || emulated < OLDEST {
            problems.push(format!(
                "emulation version {emulated} is not between [{OLDEST}, {BINARY}.0]"
            ));
        }
        if min_compatibility > emulated || min_compatibility < OLDEST {
            problems.push(format!(
                "minCompatibilityVersion version {min_compatibility} is not between [{OLDEST}, {emulated}]"
            ));
        }
        problems
    }

    /// Returns help texts of the two flags: the values that they take.
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

/// The version given for this component, which `kube=1.36` and `1.36` name.
fn of_kube(given: &[String]) -> Result<Option<Version>, String> {
    let mut found: Option<Version> = None;
    for text in given {
        let (component, text) = text
            .split_once('=')
            .map_or(("kube", text.as_str()), |(name, text)| (name.trim(), text.trim()));
        let bare = text.strip_prefix('v').unwrap_or(text);
        let (short, patch) = match bare.match_indices('.').nth(1) {
            Some((at, _)) => (&bare[..at], Some(&bare[at + 1..])),
            None => (bare, None),
        };
        let invalid = || format!("could not parse {text:?} as version");
        let version = Version::parse(short).ok_or_else(invalid)?;
        if patch.is_some_and(|patch| patch != "0") {
            return Err(format!("patch version not allowed, got: {component}={bare}"));
        }
        if component != "kube" {
            return Err(format!("component not registered: {component}"));
        }
        if let Some(before) = found {
            return Err(format!("duplicate version flag, kube={before} and kube={version}"));
        }
        found = Some(version);
    }
    Ok(found)
}
