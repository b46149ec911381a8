//! Validation of a pod's operating system, and of the namespaces that it shares with its host.

use super::containers::each_container;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{flag, get, is_empty, text};
use serde_json::Value;

/// Fields of a pod's security context that Windows does not have, in upstream's order.
const NOT_FOR_WINDOWS_PODS: [&str; 11] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
];

/// Fields of a container's security context that Windows does not have, in upstream's order.
const NOT_FOR_WINDOWS_CONTAINERS: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

/// Text of the errors about fields that Windows does not have.
const NOT_FOR_WINDOWS: &str = "cannot be set for a windows pod";

/// Validates `spec.os`, and rejects fields that the pod's operating system does not support.
///
/// Upstream: `validateOS`, `validateLinux`, `validateWindows`.
pub(super) fn operating_system(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(os) = get(spec, "os") else { return };
    match text(os, "name") {
        "" => errors.required(&path.field("os").field("name"), ""),
        "linux" => linux(spec, path, errors),
        "windows" => windows(spec, path, errors),
        other => errors.not_supported(&path.field("os"), other, &["linux", "windows"]),
    }
}

fn linux(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut reject_windows_options = |owner: &Value, path: &Path<'_>| {
        if get(owner, "securityContext.windowsOptions").is_some() {
            let path = path.field("securityContext.windowsOptions");
            errors.forbidden(&path, "windows options cannot be set for a linux pod");
        }
    };
    reject_windows_options(spec, path);
    each_container(spec, path, reject_windows_options);
}

fn windows(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    reject_fields(spec, &NOT_FOR_WINDOWS_PODS, path, errors);
    for (field, is_set) in [
        ("hostUsers", get(spec, "hostUsers").is_some()),
        ("hostPID", flag(spec, "hostPID")),
        ("hostIPC", flag(spec, "hostIPC")),
        ("shareProcessNamespace", get(spec, "shareProcessNamespace").is_some()),
    ] {
        if is_set {
            errors.forbidden(&path.field(field), NOT_FOR_WINDOWS);
        }
    }
    each_container(spec, path, |container, path| {
        reject_fields(container, &NOT_FOR_WINDOWS_CONTAINERS, path, errors);
    });
}

/// Rejects `fields` in the security context of `owner`, a pod's spec or a container.
fn reject_fields(owner: &Value, fields: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let path = path.field("securityContext");
    for field in fields {
        if get(owner, &format!("securityContext.{field}")).is_some() {
            errors.forbidden(&path.field(field), NOT_FOR_WINDOWS);
        }
    }
}

/// Requires that either all or none of the containers are processes of a Windows host, and then its network.
///
/// Upstream: `validateWindowsHostProcessPod`.
pub(super) fn host_processes(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const FIELD: &str = "securityContext.windowsOptions.hostProcess";
    let value = |owner: &Value| get(owner, FIELD).and_then(Value::as_bool);
    let of_pod = value(spec);
    let (mut n_containers, mut n_host_processes) = (0, 0);
    each_container(spec, path, |container, path| {
        n_containers += 1;
        let own = value(container);
        if let (Some(of_pod), Some(own)) = (of_pod, own)
            && of_pod != own
        {
            let detail = format!(
                "pod hostProcess value must be identical if both are specified, was {of_pod}"
            );
            errors.invalid(&path.field(FIELD), own, &detail);
        }
        n_host_processes += usize::from(own.or(of_pod) == Some(true));
    });
    if n_host_processes == 0 {
        return;
    }
    if n_host_processes != n_containers {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.invalid(path, "", detail);
    }
    if !flag(spec, "hostNetwork") {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.invalid(&path.field("hostNetwork"), false, detail);
    }
}

/// Rejects a pod that has its own user namespace, but shares other namespaces with the host or uses block devices.
///
/// Upstream: `validateHostUsers`.
pub(super) fn host_users(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const WORDS: &str = "when `hostUsers` is false";
    if get(spec, "hostUsers") != Some(&Value::Bool(false)) {
        return;
    }
    // Upstream's paths have these spellings.
    for (field, name) in
        [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")]
    {
        if flag(spec, field) {
            errors.forbidden(&path.field(name), WORDS);
        }
    }
    each_container(spec, path, |container, path| {
        if !is_empty(container, "volumeDevices") {
            errors.forbidden(&path.field("volumeDevices"), WORDS);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(check: impl Fn(&Value, &Path<'_>, &mut Errors), spec: &Value) -> Vec<String> {
        let mut errors = Errors::default();
        check(spec, &Path::new("s"), &mut errors);
        errors.into_vec().into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn a_system_lacks_the_fields_of_others() {
        let options = json!({"windowsOptions": {"runAsUserName": "a"}});
        let cases: [(Value, &[&str]); 5] = [
            (json!({"securityContext": options}), &[]),
            (json!({"os": {"name": ""}}), &["s.os.name"]),
            (json!({"os": {"name": "plan9"}, "hostPID": true}), &["s.os"]),
            (
                json!({"os": {"name": "linux"}, "securityContext": options,
                    "initContainers": [{"securityContext": options}], "containers": [{}]}),
                &[
                    "s.securityContext.windowsOptions",
                    "s.initContainers[0].securityContext.windowsOptions",
                ],
            ),
            (
                json!({"os": {"name": "windows"}, "hostUsers": true, "hostPID": true, "hostIPC": false,
                    "securityContext": {"fsGroup": 1, "windowsOptions": {}},
                    "containers": [{"securityContext": {"privileged": false, "runAsNonRoot": true}}]}),
                &[
                    "s.securityContext.fsGroup",
                    "s.hostUsers",
                    "s.hostPID",
                    "s.containers[0].securityContext.privileged",
                ],
            ),
        ];
        for (spec, expected) in cases {
            assert_eq!(fields(operating_system, &spec,), expected, "{spec}");
        }
    }

    #[test]
    fn host_processes_are_all_or_none() {
        let security_context = |value: bool| json!({"windowsOptions": {"hostProcess": value}});
        let field = "securityContext.windowsOptions.hostProcess";
        let cases: [(Value, Vec<String>); 4] = [
            (json!({"containers": [{}]}), vec![]),
            (
                json!({"hostNetwork": true, "securityContext": security_context(true), "containers": [{}]}),
                vec![],
            ),
            (
                json!({"containers": [{"securityContext": security_context(true)}, {}]}),
                vec!["s".to_owned(), "s.hostNetwork".to_owned()],
            ),
            (
                json!({"hostNetwork": true, "securityContext": security_context(true),
                    "containers": [{"securityContext": security_context(false)}, {}]}),
                vec![format!("s.containers[0].{field}"), "s".to_owned()],
            ),
        ];
        for (spec, expected) in cases {
            assert_eq!(fields(host_processes, &spec), expected, "{spec}");
        }
    }

    #[test]
    fn users_of_its_own_exclude_other_namespaces_of_the_host() {
        let spec = json!({"hostUsers": false, "hostPID": true, "hostNetwork": true,
            "containers": [{"volumeDevices": [{"name": "a"}]}]});
        let expected = ["s.hostNetwork", "s.HostPID", "s.containers[0].volumeDevices"];
        assert_eq!(fields(host_users, &spec), expected);
        assert!(fields(host_users, &json!({"hostUsers": true, "hostPID": true})).is_empty());
    }
}
