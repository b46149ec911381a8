//! Attributes of a request for admission plug-ins, policies and webhooks.

use evenkeel_apimachinery::value::is_blank;
use serde_json::{Value, json};

use crate::api::{Context, Options};
use crate::resource::ResourceType;
use evenkeel_apimachinery::group_version::GroupVersionKind;
use evenkeel_kinds::warnings::is_excluded_from_admission;

/// API group of policies and webhook configurations, which are not called for writes to their own group.
pub(crate) const GROUP: &str = "admissionregistration.k8s.io";

/// Operation of a request for admission.
///
/// Upstream: `Operation` of `admission`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    /// Returns the operation in upper case, as in an AdmissionReview.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// Attributes of a request that admission plug-ins, policies and webhooks read.
///
/// Upstream: `Attributes` of `admission`.
pub(crate) struct Attributes<'a> {
    pub(crate) cx: &'a Context<'a>,
    pub(crate) operation: Operation,
    /// Object after the request; null for a deletion.
    pub(crate) object: &'a Value,
    /// Object before the request; null for a creation.
    pub(crate) old: &'a Value,
    /// Resource in the group and version of `object` and `old`.
    version: &'a ResourceType,
}

impl<'a> Attributes<'a> {
    /// Creates the attributes with both objects in the stored version.
    pub(crate) fn new(
        cx: &'a Context<'a>,
        operation: Operation,
        object: &'a Value,
        old: &'a Value,
    ) -> Self {
        Self { cx, operation, object, old, version: cx.resource }
    }

    /// Creates the attributes of the same request with its objects in another version.
    pub(super) fn in_version(
        &self,
        object: &'a Value,
        old: &'a Value,
        version: &'a ResourceType,
    ) -> Self {
        Self { object, old, version, ..*self }
    }

    /// Returns the resource in the group and version of `object` and `old`.
    pub(super) fn version(&self) -> &'a ResourceType {
        self.version
    }

    /// Returns the kind of `object` and `old`.
    pub(crate) fn kind(&self) -> &GroupVersionKind {
        if self.is_of_other_kind() { self.cx.object_kind() } else { &self.version.gvk }
    }

    /// Returns whether the object is of another kind than the resource, such as a Binding that is posted to the
    /// subresource `binding` of a pod. Such an object is not stored.
    pub(super) fn is_of_other_kind(&self) -> bool {
        *self.cx.object_kind() != self.cx.resource.gvk
    }
}

/// Returns whether the resource is exempt from policies and webhooks, because it configures them.
///
/// Upstream: `IsExemptAdmissionConfigurationResource`.
pub(crate) fn is_exempt(cx: &Context<'_>) -> bool {
    cx.resource.group() == GROUP
}

/// Returns whether the resource is excluded from policies and webhooks. A policy or webhook that denies reviews of
/// tokens or access would break the cluster.
///
/// Upstream: `Excluded` of `admission/exclusion`.
pub(crate) fn is_excluded(cx: &Context<'_>) -> bool {
    is_excluded_from_admission(cx.resource.group(), cx.resource.plural())
}

/// Returns the AdmissionRequest for webhooks and CEL expressions. Empty fields are absent, as in upstream's JSON.
///
/// Upstream: `AdmissionRequest`, `CreateAdmissionRequest`.
pub(crate) fn admission_request(request: &Attributes<'_>) -> Value {
    let cx = request.cx;
    let kind = |kind: &GroupVersionKind| json!({"group": &*kind.group, "version": &*kind.version, "kind": &*kind.kind});
    let resource = |resource: &ResourceType| json!({"group": resource.group(), "version": resource.version(), "resource": resource.plural()});
    let requested_kind =
        if request.is_of_other_kind() { cx.object_kind() } else { &cx.requested.gvk };
    let groups: Vec<&str> = cx.user.groups.iter().map(|group| &**group).collect();
    let extra: serde_json::Map<String, Value> = cx
        .user
        .extra
        .iter()
        .map(|(key, values)| {
            (key.to_string(), values.iter().map(|value| Value::from(&**value)).collect())
        })
        .collect();
    let mut user =
        json!({"username": &*cx.user.name, "uid": &*cx.user.uid, "groups": groups, "extra": extra});
    drop_empty(&mut user);
    let mut admission_request = json!({"subResource": cx.subresource, "requestSubResource": cx.subresource,
        "name": cx.name, "namespace": cx.namespace});
    drop_empty(&mut admission_request);
    for (field, value) in [
        ("kind", kind(request.kind())),
        ("resource", resource(request.version)),
        ("requestKind", kind(requested_kind)),
        ("requestResource", resource(cx.requested)),
        ("operation", json!(request.operation.as_str())),
        ("userInfo", user),
        ("dryRun", json!(cx.dry_run)),
        ("options", options(request)),
    ] {
        admission_request[field] = value;
    }
    admission_request
}

/// Returns the request's options with their kind; null for a connection.
///
/// Upstream: `ConnectResource` passes no options.
fn options(request: &Attributes<'_>) -> Value {
    match (request.cx.options, request.operation) {
        (Options::Delete(options), _) => options.clone(),
        (Options::Write(options), Operation::Create) => options.to_value("CreateOptions"),
        (Options::Write(options), Operation::Update) => options.to_value("UpdateOptions"),
        (Options::Write(_), Operation::Delete | Operation::Connect) => Value::Null,
    }
}

/// Removes fields with empty values.
fn drop_empty(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !is_blank(value));
    }
}
