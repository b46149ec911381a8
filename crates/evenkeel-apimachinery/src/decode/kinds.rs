//! Which kind a body says it is, and what is said when that is not the kind of its path.

use super::json::Json;
use crate::group_version::GroupVersionKind;
use crate::schema::Schema;

/// Kinds that upstream still knows at versions that it no longer serves: group, version, kinds.
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

/// The kind that a body names; what it leaves out is taken from `expected`.
pub(crate) fn given(
    body: &Json<'_>,
    expected: &GroupVersionKind,
) -> Result<GroupVersionKind, String> {
    let prefix = "couldn't get version/kind; json parse error: json: cannot unmarshal";
    if !matches!(body, Json::Object(_) | Json::Null) {
        return Err(format!(
            "{prefix} {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            body.form()
        ));
    }
    let text = |name: &str| match body.get(name) {
        None | Some(Json::Null) => Ok(""),
        Some(Json::String(text)) => Ok(&**text),
        Some(other) => {
            Err(format!("{prefix} {} into Go struct field .{name} of type string", other.form()))
        }
    };
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    let (group, version) = match api_version.split_once('/') {
        None => ("", api_version),
        Some((_, rest)) if rest.contains('/') => {
            return Err(format!("unexpected GroupVersion string: {api_version}"));
        }
        Some((group, version)) => (group, version),
    };
    let mut given =
        GroupVersionKind { group: group.into(), version: version.into(), kind: kind.into() };
    if kind.is_empty() {
        given.kind = expected.kind.clone();
    }
    if version.is_empty() && (group.is_empty() || *group == *expected.group) {
        given.group = expected.group.clone();
        given.version = expected.version.clone();
    }
    Ok(given)
}

/// Why an object of one kind cannot stand where another is expected.
pub(crate) fn mismatch(given: &GroupVersionKind, expected: &GroupVersionKind) -> String {
    if !is_known(given) {
        return not_registered(given);
    }
    let (version, kind) = (&given.version, &given.kind);
    let group = match &*expected.group {
        "" => "core",
        group => group.split('.').next().unwrap_or(group),
    };
    format!("converting ({version}.{kind}) to ({group}.{}): unknown conversion", expected.kind)
}

/// The same kind at another version: `Ok` is an error of decoding, `Err` the one of a version that the path is not for.
pub(crate) fn other_version(
    given: &GroupVersionKind,
    expected: &GroupVersionKind,
) -> Result<String, String> {
    if !is_known(given) {
        return Ok(not_registered(given));
    }
    Err(format!(
        "the API version in the data ({}) does not match the expected API version ({})",
        given.api_version(),
        expected.api_version()
    ))
}

fn not_registered(given: &GroupVersionKind) -> String {
    format!(
        "no kind \"{}\" is registered for version \"{}\" in scheme \"pkg/runtime/scheme.go:111\"",
        given.kind,
        given.api_version()
    )
}

fn is_known(kind: &GroupVersionKind) -> bool {
    let unserved = UNSERVED.iter().any(|(g, v, kinds)| {
        *g == &*kind.group && *v == &*kind.version && kinds.contains(&&*kind.kind)
    });
    unserved || Schema::of(kind).is_some()
}
