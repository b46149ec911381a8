//! Denials: the status that the client receives instead of its object.

use super::{AdmissionRequest, Warnings};
use http::StatusCode;
use serde_json::{Value, json};

/// Refusal of a request. The client receives its code, reason and message.
///
/// ```
/// use evenkeel_runtime::webhook::{Denied, FieldError};
///
/// let forbidden: Denied = "apps are frozen until Monday".into(); // 403 Forbidden
/// assert_eq!(forbidden.code(), 403);
///
/// // 422 Invalid, with a cause for each field
/// let invalid = Denied::invalid([
///     FieldError::invalid("spec.replicas", -1, "must be at least 0"),
///     FieldError::required("spec.image", "an app needs an image"),
/// ]);
/// assert_eq!(invalid.code(), 422);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Denied {
    code: u16,
    reason: String,
    message: String,
    errors: Vec<FieldError>,
    pub(super) warnings: Warnings,
}

impl Denied {
    /// Returns a denial with code 403 and reason `Forbidden`. Strings also convert to it.
    ///
    /// Upstream: `admission.Denied`.
    pub fn new(message: impl Into<String>) -> Self {
        Self::with_code(StatusCode::FORBIDDEN, "Forbidden", message)
    }

    /// Returns a denial with code 422, reason `Invalid` and a cause for each field, like the server's own validation.
    ///
    /// Upstream: `apierrors.NewInvalid`.
    pub fn invalid(errors: impl IntoIterator<Item = FieldError>) -> Self {
        let errors: Vec<FieldError> = errors.into_iter().collect();
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let message = match &*texts {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        Self { errors, ..Self::with_code(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message) }
    }

    /// Returns a denial with another code and reason.
    pub fn with_code(
        code: StatusCode,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            code: code.as_u16(),
            reason: reason.into(),
            message: message.into(),
            errors: Vec::new(),
            warnings: Warnings::default(),
        }
    }

    /// Adds warnings, which the client receives in addition to the denial.
    #[must_use]
    pub fn with_warnings(mut self, warnings: impl Into<Warnings>) -> Self {
        self.warnings.extend(warnings.into());
        self
    }

    /// Returns the HTTP status code that the client receives.
    pub fn code(&self) -> u16 {
        self.code
    }

    /// Returns the causes of a denial from [`Denied::invalid`].
    pub fn errors(&self) -> &[FieldError] {
        &self.errors
    }

    /// Returns the `metav1.Status`. For an invalid object, the request provides the object's name.
    pub(super) fn status(&self, request: Option<&AdmissionRequest>) -> Value {
        let mut status = json!({
            "metadata": {},
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if let Some(request) = request.filter(|_| !self.errors.is_empty()) {
            let (kind, group) = (&request.kind.kind, &request.kind.group);
            let dot = if group.is_empty() { "" } else { "." };
            let name = evenkeel_api::quote::quote(&request.name);
            let message = format!("{kind}{dot}{group} {name} is invalid: {}", self.message);
            let causes: Vec<Value> = self.errors.iter().map(FieldError::cause).collect();
            status["status"] = "Failure".into();
            status["message"] = message.into();
            status["details"] =
                json!({"name": request.name, "group": group, "kind": kind, "causes": causes});
        }
        status
    }
}

impl std::fmt::Display for Denied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Denied {}

impl From<&str> for Denied {
    fn from(message: &str) -> Self {
        Self::new(message)
    }
}

impl From<String> for Denied {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl From<FieldError> for Denied {
    fn from(error: FieldError) -> Self {
        Self::invalid([error])
    }
}

impl From<Vec<FieldError>> for Denied {
    fn from(errors: Vec<FieldError>) -> Self {
        Self::invalid(errors)
    }
}

/// Error of one field, with the server's messages.
///
/// ```
/// use evenkeel_runtime::webhook::FieldError;
///
/// let error = FieldError::invalid("spec.replicas", -1, "must be at least 0");
/// assert_eq!(error.to_string(), "spec.replicas: Invalid value: -1: must be at least 0");
/// ```
///
/// Upstream: `field.Error`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Reason of the cause, such as `FieldValueInvalid`.
    reason: &'static str,
    field: String,
    message: String,
}

impl FieldError {
    /// Returns the error of a value that violates a rule, such as a bound. `field` is a path such as
    /// `spec.ports[0].name`.
    pub fn invalid(field: &str, value: impl Into<Value>, detail: &str) -> Self {
        Self::of_value("FieldValueInvalid", "Invalid value", field, value.into(), detail)
    }

    /// Returns the error of a missing value.
    pub fn required(field: &str, detail: &str) -> Self {
        Self::new("FieldValueRequired", field, with_detail("Required value", detail))
    }

    /// Returns the error of a value that must not be set.
    pub fn forbidden(field: &str, detail: &str) -> Self {
        Self::new("FieldValueForbidden", field, with_detail("Forbidden", detail))
    }

    /// Returns the error of a value that occurs twice.
    pub fn duplicate(field: &str, value: impl Into<Value>) -> Self {
        Self::of_value("FieldValueDuplicate", "Duplicate value", field, value.into(), "")
    }

    /// Returns the error of a value that is not among the supported ones.
    pub fn not_supported(field: &str, value: impl Into<Value>, supported: &[&str]) -> Self {
        let supported: Vec<String> =
            supported.iter().map(|value| evenkeel_api::quote::quote(value)).collect();
        let detail = match &*supported {
            [] => String::new(),
            supported => format!("supported values: {}", supported.join(", ")),
        };
        Self::of_value("FieldValueNotSupported", "Unsupported value", field, value.into(), &detail)
    }

    /// Returns the error of a changed value that must not change.
    ///
    /// Upstream: `ValidateImmutableField`.
    pub fn immutable(field: &str, value: impl Into<Value>) -> Self {
        Self::invalid(field, value, "field is immutable")
    }

    fn of_value(reason: &'static str, text: &str, field: &str, value: Value, detail: &str) -> Self {
        let value = match value {
            Value::String(text) => evenkeel_api::quote::quote(&text),
            value => value.to_string(),
        };
        Self::new(reason, field, with_detail(&format!("{text}: {value}"), detail))
    }

    fn new(reason: &'static str, field: &str, message: String) -> Self {
        Self { reason, field: field.to_owned(), message }
    }

    /// Returns the cause in a Status's details.
    fn cause(&self) -> Value {
        json!({"reason": self.reason, "message": self.message, "field": self.field})
    }
}

fn with_detail(text: &str, detail: &str) -> String {
    if detail.is_empty() { text.to_owned() } else { format!("{text}: {detail}") }
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for FieldError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> AdmissionRequest {
        serde_json::from_value(json!({
            "uid": "1", "operation": "CREATE", "name": "shop",
            "kind": {"group": "example.com", "version": "v1", "kind": "WebApp"},
            "resource": {"group": "example.com", "version": "v1", "resource": "webapps"},
        }))
        .unwrap()
    }

    #[test]
    fn errors_of_fields_have_the_servers_words() {
        for (error, expected) in [
            (FieldError::invalid("a", "x\"", "no"), r#"a: Invalid value: "x\"": no"#),
            (FieldError::invalid("a", json!({"b": 1}), ""), r#"a: Invalid value: {"b":1}"#),
            (FieldError::required("a", ""), "a: Required value"),
            (FieldError::forbidden("a", "never"), "a: Forbidden: never"),
            (FieldError::duplicate("a[1]", 2), "a[1]: Duplicate value: 2"),
            (
                FieldError::not_supported("a", "x", &["b", "c"]),
                r#"a: Unsupported value: "x": supported values: "b", "c""#,
            ),
            (FieldError::immutable("a", true), "a: Invalid value: true: field is immutable"),
        ] {
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn statuses_have_upstreams_form() {
        let forbidden = Denied::from("frozen").status(Some(&request()));
        assert_eq!(
            forbidden,
            json!({"metadata": {}, "code": 403, "reason": "Forbidden", "message": "frozen"})
        );
        let error = FieldError::invalid("spec.replicas", -1, "too few");
        let cause = json!({"reason": "FieldValueInvalid", "field": "spec.replicas", "message": "Invalid value: -1: too few"});
        let expected = json!({
            "metadata": {}, "status": "Failure", "code": 422, "reason": "Invalid",
            "message": "WebApp.example.com \"shop\" is invalid: spec.replicas: Invalid value: -1: too few",
            "details": {"name": "shop", "group": "example.com", "kind": "WebApp", "causes": [cause]},
        });
        assert_eq!(Denied::from(error.clone()).status(Some(&request())), expected);
        let two = Denied::invalid([error, FieldError::required("spec.image", "")]);
        assert_eq!(
            two.status(Some(&request()))["message"],
            "WebApp.example.com \"shop\" is invalid: [spec.replicas: Invalid value: -1: too few, \
             spec.image: Required value]"
        );
    }
}
