//! Reported version of the program: `--version`, `kubernetes_build_info`, `/statusz`.

use std::sync::OnceLock;

/// The Kubernetes release whose behavior the program has. Other programs compare only the part before the plus sign; the part
/// after it names this program.
pub const GIT_VERSION: &str = concat!("v1.37.1+evenkeel.", env!("CARGO_PKG_VERSION"));
/// The release without this program's own version.
pub(crate) const RELEASE: &str = "v1.37.1";

/// Version from `--version=v…`, which replaces the program's own.
static VENDOR_VERSION: OnceLock<String> = OnceLock::new();

/// Sets the reported version, once: a vendor's name of the same release, which [`check`] has validated.
pub(crate) fn set_reported(version: &str) {
    let _ = VENDOR_VERSION.set(version.to_owned());
}

/// Returns the version that this process reports: [`GIT_VERSION`], unless another one was set.
pub fn reported() -> &'static str {
    VENDOR_VERSION.get().map_or(GIT_VERSION, String::as_str)
}

/// Returns the output of `--version`.
pub fn short() -> String {
    format!("Kubernetes {GIT_VERSION}")
}

/// Returns the output of `--version=raw`: the fields of upstream's `version.Info` that do not concern Go.
pub fn raw() -> String {
    let platform = platform();
    format!(
        "version.Info{{Major:\"1\", Minor:\"37\", GitVersion:{GIT_VERSION:?}, Compiler:\"rustc\", Platform:\"{platform}\"}}"
    )
}

/// Returns system and architecture with Go's names.
pub(crate) fn platform() -> String {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let arch = match arch {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{os}/{arch}")
}

/// Validates a version to report instead, such as `v1.37.1-vendor.1`.
///
/// # Errors
/// Fails if the string is not a version, or is a version of another release.
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
    fn vendor_version_must_be_of_the_same_release() {
        assert_eq!(check("v1.37.1-vendor.1"), Ok(()));
        assert_eq!(check(GIT_VERSION), Ok(()));
        assert_eq!(check("v9.9"), Err("illegal version string \"v9.9\"".to_owned()));
        assert!(
            check("v1.36.0").is_err_and(|error| error.contains("must match major/minor/patch"))
        );
        assert!(raw().starts_with("version.Info{Major:\"1\", Minor:\"37\", "));
    }
}
