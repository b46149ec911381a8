//! Validation of security contexts: users, and the profiles of seccomp and AppArmor.

use super::volume::descending_path;
use crate::internal::quoted;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, int, list, text};
use serde_json::Value;

/// Maximum length of the name of an AppArmor profile, in bytes.
const MAX_PROFILE_LENGTH: usize = 4095;

/// Validates the user, the group and the seccomp profile of a security context.
pub(super) fn user_and_seccomp_profile(context: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["runAsUser", "runAsGroup"] {
        errors.in_range(&path.field(field), int(context, field), 0, i64::from(i32::MAX));
    }
    if let Some(profile) = get(context, "appArmorProfile") {
        app_armor_profile(profile, &path.field("appArmorProfile"), errors);
    }
    if let Some(profile) = get(context, "seccompProfile") {
        let path = path.field("seccompProfile");
        match text(profile, "type") {
            "" => {
                errors.required(&path.field("type"), "type is required when seccompProfile is set");
            }
            "Localhost" if text(profile, "localhostProfile").is_empty() => {
                let words = "must be set when seccomp type is Localhost";
                errors.required(&path.field("localhostProfile"), words);
            }
            "Localhost" => {
                let file = text(profile, "localhostProfile");
                descending_path(file, &path.field("localhostProfile"), errors);
            }
            "RuntimeDefault" | "Unconfined" => {}
            other => errors.not_supported(
                &path.field("type"),
                other,
                &["Localhost", "RuntimeDefault", "Unconfined"],
            ),
        }
        if text(profile, "type") != "Localhost" && get(profile, "localhostProfile").is_some() {
            let value = quoted("*core.SeccompProfile", Some(profile));
            let detail = "can only be set when seccomp type is Localhost";
            errors.invalid(&path.field("localhostProfile"), value, detail);
        }
    }
}

/// Validates the AppArmor profile of a security context.
///
/// Upstream: `ValidateAppArmorProfileField`.
fn app_armor_profile(profile: &Value, path: &Path<'_>, errors: &mut Errors) {
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
            let known = ["Localhost", "RuntimeDefault", "Unconfined"];
            errors.not_supported(&path.field("type"), other, &known);
        }
    }
}

/// Refuses the options of Windows containers in a pod for Linux.
///
/// Upstream: `validateLinux`.
pub(super) fn no_windows_options(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["initContainers", "containers", "ephemeralContainers"] {
        let all = path.field(field);
        for (index, container) in list(spec, field).iter().enumerate() {
            if get(container, "securityContext.windowsOptions").is_some() {
                let path = all.index(index);
                let path = path.field("securityContext.windowsOptions");
                errors.forbidden(&path, "windows options cannot be set for a linux pod");
            }
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
            user_and_seccomp_profile(&context, &Path::new("c"), &mut errors);
            let fields: Vec<String> = errors.into_vec().into_iter().map(|one| one.field).collect();
            assert_eq!(fields, expected, "{context}");
        }
    }
}
