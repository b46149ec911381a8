//! Kind in a request body, and the errors of a body of another kind than the path's.

use super::json::Json;
use crate::group_version::GroupVersionKind;
use crate::schema::Schema;

/// Kinds at versions that upstream no longer serves but still registers in its scheme: group, version, kinds.
const UNSERVED: [(&str, &str, &[&str]); 5] = [
    ("apps", "v1beta1", &["ControllerRevision", "Deployment", "Scale", "StatefulSet"]),
    (
        "apps",
        "v1beta2",
        &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "Scale", "StatefulSet"],
    ),
    ("batch", "v1beta1", &["CronJob"]),
    (
        "extensions",
        "v1beta1",
        &["DaemonSet", "Deployment", "Ingress", "NetworkPolicy", "ReplicaSet", "Scale"],
    ),
    ("policy", "v1beta1", &["Eviction", "PodDisruptionBudget"]),
];

/// Returns the kind in a body. Absent parts are taken from `expected`.
///
/// Upstream: `gvkWithDefaults`.
pub(crate) fn body_kind(
    body: &Json<'_>,
    expected: &GroupVersionKind,
) -> Result<GroupVersionKind, String> {
    let prefix = "couldn't get version/kind; json parse error: json: cannot unmarshal";
    if !matches!(body, Json::Object(_) | Json::Null) {
        return Err(format!(
            "{prefix} {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            body.json_type()
        ));
    }
    let text = |name: &str| match body.get(name) {
        None | Some(Json::Null) => Ok(""),
        Some(Json::String(text)) => Ok(&**text),
        Some(other) => Err(format!(
            "{prefix} {} into Go struct field .{name} of type string",
            other.json_type()
        )),
    };
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    let (group, version) = match api_version.split_once('/') {
        None => ("", api_version),
        Some((_, rest)) if rest.contains('/') => {
            return Err(format!("unexpected GroupVersion string: {api_version}"));
        }
        Some((group, version)) => (group, version),
    };
    let mut actual =
        GroupVersionKind { group: group.into(), version: version.into(), kind: kind.into() };
    if kind.is_empty() {
        actual.kind = expected.kind.clone();
    }
    if version.is_empty() && (group.is_empty() || *group == *expected.group) {
        actual.group = expected.group.clone();
        actual.version = expected.version.clone();
    }
    Ok(actual)
}

/// Returns whether a body contains a version.
pub(crate) fn has_version(body: &Json<'_>) -> bool {
    let version = |text: &str| text.rsplit('/').next().is_some_and(|version| !version.is_empty());
    matches!(body.get("apiVersion"), Some(Json::String(text)) if version(text))
}

/// Returns the error for an object without a version whose group does not have the kind.
pub(crate) fn not_registered_internally(actual: &GroupVersionKind) -> String {
    format!(
        "no kind \"{}\" is registered for the internal version of group \"{}\" in scheme \"pkg/runtime/scheme.go:111\"",
        actual.kind, actual.group
    )
}

/// Returns the error for an object of one kind where another is expected.
pub(crate) fn conversion_error(actual: &GroupVersionKind, expected: &GroupVersionKind) -> String {
    if !is_known(actual) {
        return not_registered(actual);
    }
    let (version, kind) = (&actual.version, &actual.kind);
    let group = match &*expected.group {
        "" => "core",
        group => group.split('.').next().unwrap_or(group),
    };
    format!("converting ({version}.{kind}) to ({group}.{}): unknown conversion", expected.kind)
}

/// Returns the error for the expected kind at another version: `Ok` with a decoding error, or `Err` with an error
/// about the path's version.
pub(crate) fn version_error(
    actual: &GroupVersionKind,
    expected: &GroupVersionKind,
) -> Result<String, String> {
    if !is_known(actual) {
        return Ok(not_registered(actual));
    }
    Err(format!(
        "the API version in the data ({}) does not match the expected API version ({})",
        actual.api_version(),
        expected.api_version()
    ))
}

/// Returns whether a kind is the eviction of a version that is no longer served but that the decoder still accepts.
///
/// Upstream: `EvictionREST.AcceptsGroupVersion`.
pub(crate) fn is_old_eviction(kind: &GroupVersionKind) -> bool {
    (&*kind.group, &*kind.version, &*kind.kind) == ("policy", "v1beta1", "Eviction")
}

fn not_registered(actual: &GroupVersionKind) -> String {
    format!(
        "no kind \"{}\" is registered for version \"{}\" in scheme \"pkg/runtime/scheme.go:111\"",
        actual.kind,
        actual.api_version()
    )
}

fn is_known(kind: &GroupVersionKind) -> bool {
    let unserved = UNSERVED.iter().any(|(g, v, kinds)| {
        *g == &*kind.group && *v == &*kind.version && kinds.contains(&&*kind.kind)
    });
    unserved || Schema::of(kind).is_some()
}
