//! Validation of a pod's sysctls.

use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{flag, list, text};
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum length of a sysctl's name in bytes.
const MAX_SYSCTL: usize = 253;

/// Validates the names of sysctls, rejects duplicates, and rejects sysctls of a namespace that the pod shares with the
/// host.
///
/// Upstream: `validateSysctls`, `ValidateHostSysctl`.
pub(super) fn sysctls(spec: &Value, context: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, sysctl) in list(context, "sysctls").iter().enumerate() {
        let path = path.index(index);
        let (path, name) = (path.field("name"), text(sysctl, "name"));
        if name.is_empty() {
            errors.required(&path, "");
        } else if !is_sysctl(name) {
            let detail = format!(
                "must have at most {MAX_SYSCTL} characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
            );
            errors.invalid(&path, name, &detail);
        } else if seen.contains(name) {
            errors.duplicate(&path, name);
        }
        seen.insert(name);
        let normal = name.replace('/', ".");
        let is_net = normal.starts_with("net.");
        let is_ipc = ["kernel.shm", "kernel.msg"].iter().any(|prefix| normal.starts_with(prefix))
            || normal == "kernel.sem"
            || normal.split('.').nth(1) == Some("mqueue");
        if is_net && flag(spec, "hostNetwork") {
            errors.invalid(&path, name, "may not be specified when 'hostNetwork' is true");
        } else if is_ipc && flag(spec, "hostIPC") {
            errors.invalid(&path, name, "may not be specified when 'hostIPC' is true");
        }
    }
}

/// Returns whether a string is the name of a sysctl: words that are separated by dots or slashes.
///
/// Upstream: `IsValidSysctlName`.
fn is_sysctl(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_word = |word: &str| {
        let ends = [word.bytes().next(), word.bytes().next_back()];
        ends.into_iter().all(|end| end.is_some_and(is_letter))
            && word.bytes().all(|byte| is_letter(byte) || b"-_".contains(&byte))
    };
    name.len() <= MAX_SYSCTL && name.split(['.', '/']).all(is_word)
}
