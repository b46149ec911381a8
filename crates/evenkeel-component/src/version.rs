//! Reported version of the program: `--version`, `kubernetes_build_info`, `/statusz`.

use std::sync::OnceLock;

/// The Kubernetes release whose behaviour the program has, and behind the plus sign which program it is, so that what
/// compares versions finds what it looks for and what shows them shows the truth.
pub const GIT_VERSION: &str = concat!("v1.37.1+evenkeel.", env!("CARGO_PKG_VERSION"));
/// The release alone.
pub(crate) const RELEASE: &str = "v1.37.1";

/// The version that `--version=v…` sets, in place of the program's own.
static GIVEN: OnceLock<String> = OnceLock::new();

/// Sets the reported version, once: a vendor's name for the same release, [checked](check).
pub(crate) fn report(version: &str) {
    let _ = GIVEN.set(version.to_owned());
}

/// The version that this process reports: [`GIT_VERSION`], unless it was set to another.
pub fn reported() -> &'static str {
    GIVEN.get().map_or(GIT_VERSION, String::as_str)
}

/// Returns the text of `--version`.
pub fn short() -> String {
    format!("Kubernetes {GIT_VERSION}")
}

/// Returns the text of `--version=raw`: the fields of upstream's `version.Info`, without those of Go.
pub fn raw() -> String {
    let platform = platform();
    format!(
        "version.Info{{Major:\"1\", Minor:\"37\", GitVersion:{GIT_VERSION:?}, Compiler:\"rustc\", Platform:\"{platform}\"}}"
    )
}

/// System and architecture, as Go names them.
pub(crate) fn platform() -> String {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let arch = match arch {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{os}/{arch}")
}

/// Checks a version that is to be reported instead, `--version=v1.37.1-vendor.1`.
///
/// # Errors
/// When it is no version, or of another release.
pub fn check(version: &str) -> Result<(), String> {
    let numbers = version.strip_prefix('v').unwrap_or(version);
    let numbers = numbers.split(['-', '+']).next().unwrap_or_default();
    let parts: Option<Vec<u32>> = numbers.split('.').map(|part| part.parse().ok()).collect();
    if parts.is_none_or(|parts| parts.len() != 3) {
        return Err(format!("illegal version string {version:?}"));
    }
    if format!("v{numbers}") != RELEASE {
        return Err(format!(
            "version {version:?} must match major/minor/patch of default version {RELEASE:?}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vendors_version_is_of_the_same_release() {
        assert_eq!(check("v1.37.1-vendor.1"), Ok(()));
        assert_eq!(check(GIT_VERSION), Ok(()));
        assert_eq!(check("v9.9"), Err("illegal version string \"v9.9\"".to_owned()));
        assert!(
            check("v1.36.0").is_err_and(|error| error.contains("must match major/minor/patch"))
        );
        assert!(raw().starts_with("version.Info{Major:\"1\", Minor:\"37\", "));
    }
}
