//! Validation of security contexts: users, and the profiles of seccomp and AppArmor.

use super::volume::descending_path;
use super::{names, pod_sysctls};
use crate::internal::quoted;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{flag, get, int, list, text};
use serde_json::Value;

/// Maximum length of the name of an AppArmor profile, in bytes.
const MAX_PROFILE_LENGTH: usize = 4095;
/// Maximum length of the specification of a group managed service account, in bytes.
const MAX_CREDENTIAL_SPEC: usize = 64 * 1024;
/// Exclusive maximum length of the domain of a Windows user, in bytes.
const MAX_WINDOWS_DOMAIN: usize = 256;
/// Maximum length of the name of a Windows user, in bytes.
const MAX_WINDOWS_USER: usize = 104;
/// Types of the profiles of seccomp and AppArmor.
const PROFILES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

/// Validates the security context of a container. `host_users` is whether its pod uses the host's user namespace.
///
/// Upstream: `ValidateSecurityContext`.
pub(super) fn of_container(
    context: &Value,
    host_users: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    ids(context, &["runAsUser", "runAsGroup"], path, errors);
    let proc_mount = get(context, "procMount");
    errors.one_of_if_set(&path.field("procMount"), proc_mount, &["Default", "Unmasked"]);
    if host_users && proc_mount.and_then(Value::as_str) == Some("Unmasked") {
        let detail = "`hostUsers` must be false to use `Unmasked`";
        errors.invalid(&path.field("procMount"), "Unmasked", detail);
    }
    seccomp_profile(context, path, errors);
    if get(context, "allowPrivilegeEscalation") == Some(&Value::Bool(false)) {
        let shown = || quoted("*core.SecurityContext", Some(context));
        if flag(context, "privileged") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.invalid_large(path, shown, detail);
        }
        let added = list(context, "capabilities.add").iter();
        for _ in added.filter(|capability| *capability == "CAP_SYS_ADMIN") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.invalid_large(path, shown, detail);
        }
    }
    windows_options(context, path, errors);
    app_armor_profile(context, path, errors);
}

/// Validates the security context of a pod.
///
/// Upstream: `validatePodSpecSecurityContext`.
pub(super) fn of_pod(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(context) = get(spec, "securityContext") else { return };
    let path = path.field("securityContext");
    ids(context, &["fsGroup", "runAsUser", "runAsGroup"], &path, errors);
    let groups = path.field("supplementalGroups");
    for (index, group) in list(context, "supplementalGroups").iter().enumerate() {
        errors.in_range(&groups.index(index), group.as_i64(), 0, i64::from(i32::MAX));
    }
    pod_sysctls::sysctls(spec, context, &path.field("sysctls"), errors);
    let policy = |field: &str, policies: &[&str], errors: &mut Errors| {
        errors.one_of_if_set(&path.field(field), get(context, field), policies);
    };
    policy("fsGroupChangePolicy", &["Always", "OnRootMismatch"], errors);
    seccomp_profile(context, &path, errors);
    windows_options(context, &path, errors);
    app_armor_profile(context, &path, errors);
    policy("supplementalGroupsPolicy", &["Merge", "Strict"], errors);
    policy("seLinuxChangePolicy", &["MountOption", "Recursive"], errors);
}

/// Validates the numbers of users and groups.
///
/// Upstream: `IsValidUserID`, `IsValidGroupID`.
fn ids(context: &Value, fields: &[&str], path: &Path<'_>, errors: &mut Errors) {
    for field in fields {
        errors.in_range(&path.field(field), int(context, field), 0, i64::from(i32::MAX));
    }
}

/// Validates the seccomp profile. Only the type `Localhost` has a path, and requires it.
///
/// Upstream: `validateSeccompProfileField`.
fn seccomp_profile(context: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(profile) = get(context, "seccompProfile") else { return };
    let path = path.field("seccompProfile");
    let (type_, type_path) = (text(profile, "type"), path.field("type"));
    match type_ {
        "" => errors.required(&type_path, "type is required when seccompProfile is set"),
        type_ => errors.one_of(&type_path, type_, &PROFILES),
    }
    let file = get(profile, "localhostProfile").and_then(Value::as_str);
    let file_path = path.field("localhostProfile");
    match file {
        None if type_ == "Localhost" => {
            errors.required(&file_path, "must be set when seccomp type is Localhost");
        }
        None => {}
        Some(file) if type_ == "Localhost" => descending_path(file, &file_path, errors),
        Some(_) => {
            let value = quoted("*core.SeccompProfile", Some(profile));
            errors.invalid(&file_path, value, "can only be set when seccomp type is Localhost");
        }
    }
}

/// Validates the options of Windows containers.
///
/// Upstream: `validateWindowsSecurityContextOptions`.
fn windows_options(context: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(options) = get(context, "windowsOptions") else { return };
    let path = path.field("windowsOptions");
    let option = |field: &str| get(options, field).and_then(Value::as_str);
    if let Some(name) = option("gmsaCredentialSpecName") {
        let messages = names::dns_subdomain(name);
        errors.invalid_for_each(&path.field("gmsaCredentialSpecName"), name, &messages);
    }
    if let Some(spec) = option("gmsaCredentialSpec") {
        let path = path.field("gmsaCredentialSpec");
        if spec.is_empty() {
            errors.invalid(&path, spec, "gmsaCredentialSpec cannot be an empty string");
        } else if spec.len() > MAX_CREDENTIAL_SPEC {
            let detail = "gmsaCredentialSpec size must be under 64 KiB";
            errors.invalid_large(&path, || spec, detail);
        }
    }
    if let Some(name) = option("runAsUserName") {
        let messages = windows_user(name).into_iter().map(str::to_owned).collect::<Vec<_>>();
        errors.invalid_for_each(&path.field("runAsUserName"), name, &messages);
    }
}

/// Returns the errors of the name of a Windows user, which may begin with a domain.
fn windows_user(name: &str) -> Vec<&'static str> {
    if name.is_empty() {
        return vec!["runAsUserName cannot be an empty string"];
    }
    if name.bytes().any(|byte| byte.is_ascii_control()) {
        return vec!["runAsUserName cannot contain control characters"];
    }
    let (domain, user) = match name.split_once('\\') {
        Some((_, user)) if user.contains('\\') => {
            return vec!["runAsUserName cannot contain more than one backslash"];
        }
        Some((domain, user)) => (Some(domain), user),
        None => (None, name),
    };
    let mut messages = Vec::new();
    if domain.is_some_and(|domain| domain.len() >= MAX_WINDOWS_DOMAIN) {
        messages.push("runAsUserName's Domain length must be under 256 characters");
    }
    if domain.is_some_and(|domain| !is_net_bios(domain) && !is_dns(domain)) {
        messages.push("runAsUserName's Domain doesn't match the NetBios nor the DNS format");
    }
    if user.is_empty() {
        messages.push("runAsUserName's User cannot be empty");
    } else if user.len() > MAX_WINDOWS_USER {
        messages.push("runAsUserName's User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.bytes().all(|byte| b". ".contains(&byte)) {
        messages.push("runAsUserName's User cannot contain only periods or spaces");
    }
    if user
        .contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']'])
    {
        messages.push(
            "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]",
        );
    }
    messages
}

/// Returns whether a string is the NetBIOS name of a domain: 1 to 15 characters, none of them reserved by Windows, and
/// not beginning with a dot.
fn is_net_bios(domain: &str) -> bool {
    const RESERVED: [char; 9] = ['\\', '/', ':', '*', '?', '"', '<', '>', '|'];
    (1..=15).contains(&domain.chars().count())
        && !domain.contains(RESERVED)
        && !domain.starts_with('.')
}

/// Returns whether a string is a DNS name, with letters of either case.
fn is_dns(domain: &str) -> bool {
    domain.split('.').all(|label| names::dns_label(&label.to_ascii_lowercase()).is_empty())
}

/// Validates the AppArmor profile of a security context.
///
/// Upstream: `ValidateAppArmorProfileField`.
pub(crate) fn app_armor_profile(context: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(profile) = get(context, "appArmorProfile") else { return };
    let path = path.field("appArmorProfile");
    let name = get(profile, "localhostProfile").and_then(Value::as_str);
    let name_path = path.field("localhostProfile");
    match (text(profile, "type"), name) {
        ("Localhost", None | Some("")) => {
            errors.required(&name_path, "must be set when AppArmor type is Localhost");
        }
        ("Localhost", Some(name)) => {
            if name.trim() != name {
                errors.invalid(&name_path, name, "must not be padded with whitespace");
            }
            if name.len() > MAX_PROFILE_LENGTH {
                errors.too_long(&name_path, MAX_PROFILE_LENGTH);
            }
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("RuntimeDefault" | "Unconfined", Some(name)) => {
            let detail = "can only be set when AppArmor type is Localhost";
            errors.invalid(&name_path, name, detail);
        }
        ("", _) => {
            let detail = "type is required when appArmorProfile is set";
            errors.required(&path.field("type"), detail);
        }
        (other, _) => {
            errors.not_supported(&path.field("type"), other, &PROFILES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn profiles_have_a_name_only_if_they_are_of_the_node() {
        let cases: [(Value, &[&str]); 7] = [
            (json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": "a"}}), &[]),
            (json!({"appArmorProfile": {"type": "RuntimeDefault"}}), &[]),
            (
                json!({"appArmorProfile": {"type": "Localhost"}}),
                &["c.appArmorProfile.localhostProfile"],
            ),
            (
                json!({"appArmorProfile": {"type": "Unconfined", "localhostProfile": "a"}}),
                &["c.appArmorProfile.localhostProfile"],
            ),
            (json!({"appArmorProfile": {"type": "x"}}), &["c.appArmorProfile.type"]),
            (
                json!({"seccompProfile": {"type": "RuntimeDefault", "localhostProfile": "a"}}),
                &["c.seccompProfile.localhostProfile"],
            ),
            (
                json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "/../a"}}),
                &["c.seccompProfile.localhostProfile"; 2],
            ),
        ];
        for (context, expected) in cases {
            let mut errors = Errors::default();
            of_container(&context, true, &Path::new("c"), &mut errors);
            let fields: Vec<String> = errors.into_vec().into_iter().map(|one| one.field).collect();
            assert_eq!(fields, expected, "{context}");
        }
    }

    #[test]
    fn windows_users_have_at_most_one_domain() {
        for (name, expected) in [
            ("user", vec![]),
            ("DOMAIN\\user", vec![]),
            ("a.Example.com\\user", vec![]),
            ("", vec!["runAsUserName cannot be an empty string"]),
            ("a\\b\\c", vec!["runAsUserName cannot contain more than one backslash"]),
            ("a\n", vec!["runAsUserName cannot contain control characters"]),
            ("a\\", vec!["runAsUserName's User cannot be empty"]),
            ("\\a", vec!["runAsUserName's Domain doesn't match the NetBios nor the DNS format"]),
            (". .", vec!["runAsUserName's User cannot contain only periods or spaces"]),
            (
                "a@b",
                vec![
                    "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]",
                ],
            ),
        ] {
            assert_eq!(windows_user(name), expected, "{name:?}");
        }
    }
}
