//! Responses to admission requests, and the AdmissionReview around them.

use super::{
    AdmissionRequest, Denied,
    request::{API_VERSION, KIND},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::StatusCode;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Warnings of a response. API servers show the first 256 characters of each warning, and 4,096 characters in total.
///
/// ```
/// use evenkeel_runtime::webhook::Warnings;
///
/// let none: Warnings = ().into();
/// assert!(none.is_empty());
/// let one: Warnings = "spec.port is deprecated".into();
/// let two: Warnings = vec!["a".to_owned(), "b".to_owned()].into();
/// assert_eq!((one.len(), two.len()), (1, 2));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Warnings(Vec<String>);

impl Warnings {
    /// Adds a warning at the end.
    pub fn push(&mut self, warning: impl Into<String>) {
        self.0.push(warning.into());
    }

    /// Adds the warnings of another list at the end.
    pub fn extend(&mut self, warnings: Self) {
        self.0.extend(warnings.0);
    }
}

impl std::ops::Deref for Warnings {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.0
    }
}

impl From<()> for Warnings {
    fn from((): ()) -> Self {
        Self::default()
    }
}

impl From<&str> for Warnings {
    fn from(warning: &str) -> Self {
        Self(vec![warning.to_owned()])
    }
}

impl From<String> for Warnings {
    fn from(warning: String) -> Self {
        Self(vec![warning])
    }
}

impl From<Vec<String>> for Warnings {
    fn from(warnings: Vec<String>) -> Self {
        Self(warnings)
    }
}

impl FromIterator<String> for Warnings {
    fn from_iter<I: IntoIterator<Item = String>>(warnings: I) -> Self {
        Self(warnings.into_iter().collect())
    }
}

/// Answer to an admission request.
///
/// ```
/// use evenkeel_runtime::webhook::AdmissionResponse;
///
/// let allowed = AdmissionResponse::allowed()
///     .with_warnings("spec.port is deprecated")
///     .with_audit_annotation("checked-by", "webapps");
/// let denied = AdmissionResponse::denied("apps are frozen");
/// assert!(allowed.is_allowed() && !denied.is_allowed());
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct AdmissionResponse {
    denied: Option<Denied>,
    patch: json_patch::Patch,
    warnings: Warnings,
    audit_annotations: BTreeMap<String, String>,
}

impl AdmissionResponse {
    /// Returns the response that allows the request.
    pub fn allowed() -> Self {
        Self {
            denied: None,
            patch: json_patch::Patch::default(),
            warnings: Warnings::default(),
            audit_annotations: BTreeMap::new(),
        }
    }

    /// Returns the response that denies the request.
    pub fn denied(denied: impl Into<Denied>) -> Self {
        let mut denied = denied.into();
        let warnings = std::mem::take(&mut denied.warnings);
        Self { denied: Some(denied), warnings, ..Self::allowed() }
    }

    /// Returns the response that allows the request with the changes that lead from one object to the other, as a JSON patch.
    /// `before` is the object of the request.
    ///
    /// ```
    /// use evenkeel_runtime::webhook::AdmissionResponse;
    /// use serde_json::json;
    ///
    /// let (before, after) = (json!({"spec": {}}), json!({"spec": {"replicas": 1}}));
    /// assert!(AdmissionResponse::changed(&before, &after).is_allowed());
    /// ```
    ///
    /// Upstream: `PatchResponseFromRaw`.
    pub fn changed(before: &Value, after: &Value) -> Self {
        Self { patch: json_patch::diff(before, after), ..Self::allowed() }
    }

    /// Adds warnings, which the client receives.
    #[must_use]
    pub fn with_warnings(mut self, warnings: impl Into<Warnings>) -> Self {
        self.warnings.extend(warnings.into());
        self
    }

    /// Adds an annotation to the request's audit event. The server prefixes the key with the webhook's name.
    #[must_use]
    pub fn with_audit_annotation(mut self, key: &str, value: &str) -> Self {
        self.audit_annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Returns whether the response allows the request.
    pub fn is_allowed(&self) -> bool {
        self.denied.is_none()
    }

    /// Returns the response to a review that cannot be decoded. It is a denial without a reason, as in controller-runtime.
    ///
    /// Upstream: `admission.Errored`.
    pub(super) fn errored(code: StatusCode, message: &str) -> Self {
        Self::denied(Denied::with_code(code, "", message))
    }

    /// Returns the AdmissionReview with this response. Without a request, the uid is empty.
    ///
    /// Upstream: `Response.Complete`.
    pub(super) fn into_review(self, request: Option<&AdmissionRequest>) -> Value {
        let Self { denied, patch, warnings, audit_annotations } = self;
        let mut status = match &denied {
            Some(denied) => denied.status(request),
            None => json!({"metadata": {}, "code": 200}),
        };
        if let Some(status) = status.as_object_mut() {
            status.retain(|_, value| value != "");
        }
        let mut response = Map::new();
        response.insert("uid".into(), request.map_or("", |request| &request.uid).into());
        response.insert("allowed".into(), denied.is_none().into());
        response.insert("status".into(), status);
        if denied.is_none() && !patch.0.is_empty() {
            let patch = serde_json::to_vec(&patch).unwrap_or_default();
            response.insert("patch".into(), BASE64_STANDARD.encode(patch).into());
            response.insert("patchType".into(), "JSONPatch".into());
        }
        if !warnings.is_empty() {
            response.insert("warnings".into(), warnings.0.into());
        }
        if !audit_annotations.is_empty() {
            response.insert("auditAnnotations".into(), json!(audit_annotations));
        }
        json!({"kind": KIND, "apiVersion": API_VERSION, "response": response})
    }
}

impl From<Denied> for AdmissionResponse {
    fn from(denied: Denied) -> Self {
        Self::denied(denied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_have_upstreams_form() {
        let (before, after) = (json!({"a": 1}), json!({"a": 2}));
        let patch = BASE64_STANDARD.encode(r#"[{"op":"replace","path":"/a","value":2}]"#);
        let ok = json!({"metadata": {}, "code": 200});
        for (response, expected) in [
            (
                AdmissionResponse::allowed().with_warnings("w").with_audit_annotation("k", "v"),
                json!({"uid": "", "allowed": true, "status": ok, "warnings": ["w"], "auditAnnotations": {"k": "v"}}),
            ),
            (
                AdmissionResponse::changed(&before, &after),
                json!({"uid": "", "allowed": true, "status": ok, "patch": patch, "patchType": "JSONPatch"}),
            ),
            (
                AdmissionResponse::changed(&before, &before),
                json!({"uid": "", "allowed": true, "status": ok}),
            ),
            (
                AdmissionResponse::denied(Denied::new("no").with_warnings("w")),
                json!({"uid": "", "allowed": false, "warnings": ["w"], "status":
                    {"metadata": {}, "code": 403, "reason": "Forbidden", "message": "no"}}),
            ),
            (
                AdmissionResponse::errored(StatusCode::BAD_REQUEST, "bad"),
                json!({"uid": "", "allowed": false, "status": {"metadata": {}, "code": 400, "message": "bad"}}),
            ),
        ] {
            let review = response.into_review(None);
            assert_eq!(review["response"], expected);
            assert_eq!(
                (&review["kind"], &review["apiVersion"]),
                (&json!(KIND), &json!(API_VERSION))
            );
        }
    }
}
