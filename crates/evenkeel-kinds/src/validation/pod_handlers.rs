//! Validation of the probes and the lifecycle hooks of containers.

use super::names;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, int, list, text};
use serde_json::Value;

/// Validates the lifecycle hooks of a container. A sleep must not exceed `grace`, the pod's grace period in seconds.
///
/// Upstream: `validateLifecycle`.
pub(super) fn lifecycle(
    container: &Value,
    grace: Option<i64>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let path = path.field("lifecycle");
    for field in ["postStart", "preStop"] {
        if let Some(handler) = get(container, &format!("lifecycle.{field}")) {
            let types = ["exec", "httpGet", "tcpSocket", "sleep"];
            self::handler(handler, &types, grace, &path.field(field), errors);
        }
    }
}

/// Validates the probes of a container.
///
/// Upstream: `validateLivenessProbe`, `validateReadinessProbe`, `validateStartupProbe`.
pub(super) fn probes(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = get(container, field) else { continue };
        let path = path.field(field);
        self::probe(probe, &path, errors);
        if field == "readinessProbe" {
            let grace = int(probe, "terminationGracePeriodSeconds");
            if grace.is_some() {
                let detail = "must not be set for readinessProbes";
                errors.invalid(&path.field("terminationGracePeriodSeconds"), grace, detail);
            }
        } else {
            let successes = int(probe, "successThreshold").unwrap_or_default();
            if successes != 1 {
                errors.invalid(&path.field("successThreshold"), successes, "must be 1");
            }
        }
    }
}

/// Validates the handler of a probe, and its times and thresholds.
///
/// Upstream: `validateProbe`.
fn probe(probe: &Value, path: &Path<'_>, errors: &mut Errors) {
    handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], None, path, errors);
    for field in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        errors.non_negative(&path.field(field), int(probe, field));
    }
    let grace = int(probe, "terminationGracePeriodSeconds");
    if let Some(seconds) = grace.filter(|seconds| *seconds <= 0) {
        let path = path.field("terminationGracePeriodSeconds");
        errors.invalid(&path, seconds, "must be greater than 0");
    }
}

/// Validates the one handler of a probe or a hook.
///
/// Upstream: `validateHandler`.
fn handler(
    handler: &Value,
    types: &[&str],
    grace: Option<i64>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let mut found = types.iter().filter_map(|type_| Some((*type_, get(handler, type_)?)));
    let Some((type_, action)) = found.next() else {
        return errors.required(path, "must specify a handler type");
    };
    self::action(type_, action, grace, &path.field(type_), errors);
    for (type_, _) in found {
        errors.forbidden(&path.field(type_), "may not specify more than 1 handler type");
    }
}

fn action(type_: &str, action: &Value, grace: Option<i64>, path: &Path<'_>, errors: &mut Errors) {
    match type_ {
        "exec" if list(action, "command").is_empty() => {
            errors.required(&path.field("command"), "");
        }
        "httpGet" => {
            if text(action, "path").is_empty() {
                errors.required(&path.field("path"), "");
            }
            port_number_or_name(get(action, "port"), &path.field("port"), errors);
            errors.one_of(&path.field("scheme"), text(action, "scheme"), &["HTTP", "HTTPS"]);
            let headers = path.field("httpHeaders");
            for header in list(action, "httpHeaders") {
                let name = text(header, "name");
                errors.invalid_for_each(&headers, name, &names::http_header(name));
            }
        }
        "tcpSocket" => port_number_or_name(get(action, "port"), &path.field("port"), errors),
        "grpc" => {
            let port = int(action, "port").unwrap_or_default();
            errors.in_range(&path.field("port"), Some(port), 1, 65535);
        }
        "sleep" => {
            let seconds = int(action, "seconds").unwrap_or_default();
            if let Some(grace) = grace.filter(|grace| !(0..=*grace).contains(&seconds)) {
                let detail = format!(
                    "must be non-negative and less than terminationGracePeriodSeconds ({grace})"
                );
                errors.invalid(path, seconds, &detail);
            }
        }
        _ => {}
    }
}

/// Validates a port number or a port name.
///
/// Upstream: `ValidatePortNumOrName`.
pub(super) fn port_number_or_name(port: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    match port {
        Some(Value::String(name)) => errors.invalid_for_each(path, name, &names::port_name(name)),
        Some(Value::Number(number)) => errors.in_range(path, number.as_i64(), 1, 65535),
        _ => errors.in_range(path, Some(0), 1, 65535),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_handler_has_one_type() {
        let get = json!({"path": "/", "port": 80, "scheme": "HTTP"});
        let cases: [(Value, &[&str]); 6] = [
            (json!({"livenessProbe": {"httpGet": get, "successThreshold": 1}}), &[]),
            (
                json!({"livenessProbe": {"httpGet": get, "grpc": {"port": 0}}}),
                &["c.livenessProbe.grpc", "c.livenessProbe.successThreshold"],
            ),
            (json!({"readinessProbe": {"successThreshold": 2}}), &["c.readinessProbe"]),
            (
                json!({"readinessProbe": {"exec": {"command": ["a"]}, "terminationGracePeriodSeconds": 0}}),
                &["c.readinessProbe.terminationGracePeriodSeconds"; 2],
            ),
            (json!({"lifecycle": {"preStop": {"sleep": {"seconds": 30}}}}), &[]),
            (
                json!({"lifecycle": {"postStart": {}, "preStop": {"sleep": {"seconds": 31}}}}),
                &["c.lifecycle.postStart", "c.lifecycle.preStop.sleep"],
            ),
        ];
        for (container, expected) in cases {
            let mut errors = Errors::default();
            lifecycle(&container, Some(30), &Path::new("c"), &mut errors);
            probes(&container, &Path::new("c"), &mut errors);
            let fields: Vec<String> = errors.into_vec().into_iter().map(|one| one.field).collect();
            assert_eq!(fields, expected, "{container}");
        }
    }
}
