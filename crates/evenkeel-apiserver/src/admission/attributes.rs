//! Attributes of a request for admission plug-ins, policies and webhooks.

use serde_json::{Value, json};

use crate::api::Context;
use evenkeel_apimachinery::group_version::GroupVersionKind;

/// The group whose objects policies and webhooks never see: their own.
pub(crate) const GROUP: &str = "admissionregistration.k8s.io";

/// What a request does to the object.
///
/// Upstream: `Operation` of `admission`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    /// In capitals, as reviews have it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// A request as admission sees it.
///
/// Upstream: `Attributes` of `admission`.
pub(crate) struct Attributes<'a> {
    pub(crate) cx: &'a Context<'a>,
    pub(crate) operation: Operation,
    /// The object as it is to be; null when it goes.
    pub(crate) object: &'a Value,
    /// As it was; null when it is new.
    pub(crate) old: &'a Value,
}

/// Whether a resource is one that policies and webhooks never see: themselves.
///
/// Upstream: `IsExemptAdmissionConfigurationResource`.
pub(crate) fn is_exempt(cx: &Context<'_>) -> bool {
    cx.resource.group() == GROUP
}

/// Whether a resource is one that policies never see, since the cluster would break: reviews. Webhooks see them.
///
/// Upstream: `Excluded` of `admission/exclusion`.
pub(crate) fn is_excluded(cx: &Context<'_>) -> bool {
    matches!(
        (cx.resource.group(), cx.resource.plural()),
        ("authentication.k8s.io", "selfsubjectreviews" | "tokenreviews")
            | (
                "authorization.k8s.io",
                "localsubjectaccessreviews"
                    | "selfsubjectaccessreviews"
                    | "selfsubjectrulesreviews"
                    | "subjectaccessreviews"
            )
    )
}

/// The request as expressions see it.
pub(crate) fn described(request: &Attributes<'_>) -> Value {
    let cx = request.cx;
    let GroupVersionKind { group, version, kind } = cx.object_kind();
    let kind = json!({"group": &**group, "version": &**version, "kind": &**kind});
    let resource = json!({"group": cx.resource.group(), "version": cx.resource.version(), "resource": cx.resource.plural()});
    let groups: Vec<&str> = cx.user.groups.iter().map(|g| &**g).collect();
    let extra: serde_json::Map<String, Value> = cx
        .user
        .extra
        .iter()
        .map(|(key, values)| (key.to_string(), values.iter().map(|v| Value::from(&**v)).collect()))
        .collect();
    let user =
        json!({"username": &*cx.user.name, "uid": &*cx.user.uid, "groups": groups, "extra": extra});
    json!({"kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
        "subResource": cx.subresource, "requestSubResource": cx.subresource, "name": cx.name, "namespace": cx.namespace,
        "operation": request.operation.as_str(), "userInfo": user, "dryRun": cx.dry_run, "options": {}})
}
