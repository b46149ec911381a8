//! AdmissionReview: the request in it, and its envelope.

use super::{Denied, decode::decode};
use http::{HeaderMap, StatusCode, header};
use k8s_openapi::api::authentication::v1::UserInfo;
use kube::core::{GroupVersionKind, GroupVersionResource};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};

/// API version of the reviews that are served.
pub(super) const API_VERSION: &str = "admission.k8s.io/v1";
/// Kind of a review.
pub(super) const KIND: &str = "AdmissionReview";

/// Operation of an admission request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Operation {
    /// An object is created.
    Create,
    /// An object or a sub-resource is changed.
    Update,
    /// An object is deleted.
    Delete,
    /// A connection to a sub-resource such as `exec`.
    Connect,
}

/// Request that the API server sends to a webhook for a decision. Tests can deserialize it from JSON.
///
/// ```
/// use evenkeel_runtime::webhook::{AdmissionRequest, Operation};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use serde_json::json;
///
/// let request: AdmissionRequest = serde_json::from_value(json!({
///     "uid": "1", "operation": "CREATE", "name": "a", "namespace": "default",
///     "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
///     "resource": {"group": "", "version": "v1", "resource": "configmaps"},
///     "object": {"metadata": {"name": "a"}, "data": {"k": "v"}},
/// })).unwrap();
/// assert_eq!(request.operation, Operation::Create);
/// let map: ConfigMap = request.object().unwrap();
/// assert_eq!(map.data.unwrap()["k"], "v");
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionRequest {
    /// Identifier of the call, which the response repeats.
    pub uid: String,
    /// Kind and version of the object, as the webhook's rule selects them.
    pub kind: GroupVersionKind,
    /// Resource and version of the request, as the webhook's rule selects them.
    pub resource: GroupVersionResource,
    /// Sub-resource such as `status`, or empty.
    #[serde(default, deserialize_with = "null_as_default")]
    pub sub_resource: String,
    /// Kind and version of the client's request. It differs from `kind` after a conversion (`matchPolicy: Equivalent`).
    pub request_kind: Option<GroupVersionKind>,
    /// Resource and version of the client's request.
    pub request_resource: Option<GroupVersionResource>,
    /// Sub-resource of the client's request, or empty.
    #[serde(default, deserialize_with = "null_as_default")]
    pub request_sub_resource: String,
    /// Name of the object. Empty for a new object whose name the server generates.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    /// Namespace of the object. Empty for cluster-scoped objects.
    #[serde(default, deserialize_with = "null_as_default")]
    pub namespace: String,
    /// Operation that the server performs. It may differ from the requested operation: a patch may create an object.
    pub operation: Operation,
    /// User who sent the request.
    #[serde(default, deserialize_with = "null_as_default")]
    pub user_info: UserInfo,
    /// Whether nothing will be stored, so that a webhook must not have side effects.
    #[serde(default, deserialize_with = "null_as_default")]
    pub dry_run: bool,
    /// Options of the operation, such as a `CreateOptions`.
    pub options: Option<Value>,
    pub(super) object: Option<Box<RawValue>>,
    pub(super) old_object: Option<Box<RawValue>>,
}

impl AdmissionRequest {
    /// Decodes the new object. A DELETE has none.
    ///
    /// # Errors
    /// Fails with code 400 if there is no object, or it is not a `K`. The message names the field.
    ///
    /// Upstream: `Decoder.Decode`.
    pub fn object<K: DeserializeOwned>(&self) -> Result<K, Denied> {
        decode_part("object", self.object.as_deref())
    }

    /// Decodes the object before an UPDATE or a DELETE.
    ///
    /// # Errors
    /// Fails with code 400 if there is no such object, or it is not a `K`. The message names the field.
    ///
    /// Upstream: `Decoder.DecodeRaw`.
    pub fn old_object<K: DeserializeOwned>(&self) -> Result<K, Denied> {
        decode_part("oldObject", self.old_object.as_deref())
    }
}

fn decode_part<K: DeserializeOwned>(part: &str, raw: Option<&RawValue>) -> Result<K, Denied> {
    let bad_request = |reason: String| {
        Denied::with_code(StatusCode::BAD_REQUEST, "BadRequest", format!("{part}: {reason}"))
    };
    let raw = raw.ok_or_else(|| bad_request("there is no content to decode".to_owned()))?;
    decode(raw.get().as_bytes()).map_err(bad_request)
}

fn null_as_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// AdmissionReview or ConversionReview with its request.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<R> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<R>,
}

/// Decodes the request of a review in a body, and checks the review's version and kind.
///
/// # Errors
/// Returns the reason, for a response with code 400.
pub(super) fn decode_request<R: DeserializeOwned>(
    headers: &HeaderMap,
    body: &[u8],
    expected_version: &str,
    expected_kind: &str,
) -> Result<R, String> {
    if body.is_empty() {
        return Err("request body is empty".to_owned());
    }
    check_content_type(headers)?;
    let Review { api_version, kind, request } = decode::<Review<R>>(body)?;
    check_version(&api_version, &kind, expected_version, expected_kind)?;
    request.ok_or_else(|| "the review has no request".to_owned())
}

/// Decodes the AdmissionReview in a body.
///
/// # Errors
/// Returns the reason, for a response with code 400.
///
/// Upstream: `Webhook.ServeHTTP`.
pub(super) fn decode_review(headers: &HeaderMap, body: &[u8]) -> Result<AdmissionRequest, String> {
    let request: Box<RawValue> = decode_request(headers, body, API_VERSION, KIND)?;
    decode(request.get().as_bytes()).map_err(|reason| format!("request: {reason}"))
}

/// Checks that a body is JSON.
fn check_content_type(headers: &HeaderMap) -> Result<(), String> {
    let content_type = headers.get(header::CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let content_type = String::from_utf8_lossy(content_type);
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(format!("contentType={content_type}, expected application/json"))
}

/// Checks the version and the kind of a review.
fn check_version(
    api_version: &str,
    kind: &str,
    expected_version: &str,
    expected_kind: &str,
) -> Result<(), String> {
    if (api_version, kind) == (expected_version, expected_kind) {
        return Ok(());
    }
    let field =
        if expected_kind == KIND { "admissionReviewVersions" } else { "conversionReviewVersions" };
    Err(format!(
        "this server answers {expected_kind} of {expected_version}, not {kind:?} of {api_version:?}; \
         set {field} to [\"v1\"]"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn json_headers() -> HeaderMap {
        let json = http::HeaderValue::from_static("application/json");
        HeaderMap::from_iter([(header::CONTENT_TYPE, json)])
    }

    #[test]
    fn a_review_that_cannot_be_read_is_refused_in_words() {
        let review = |api_version: &str, request: Value| {
            json!({"apiVersion": api_version, "kind": KIND, "request": request}).to_string()
        };
        let of_kind = |operation: &str| {
            json!({
                "uid": "1", "operation": operation,
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
            })
        };
        for (body, expected) in [
            (String::new(), "request body is empty"),
            ("{".to_owned(), "EOF while parsing an object at line 1 column 1"),
            (
                review("admission.k8s.io/v1beta1", of_kind("CREATE")),
                "this server answers AdmissionReview of admission.k8s.io/v1, not \"AdmissionReview\" of \
                 \"admission.k8s.io/v1beta1\"; set admissionReviewVersions to [\"v1\"]",
            ),
            (review(API_VERSION, Value::Null), "the review has no request"),
            (
                review(API_VERSION, of_kind("PATCH")),
                "request: operation: unknown variant `PATCH`, expected one of `CREATE`, `UPDATE`, `DELETE`, `CONNECT`",
            ),
        ] {
            let refused = decode_review(&json_headers(), body.as_bytes()).unwrap_err();
            assert!(refused.starts_with(expected), "{refused}");
        }
        let body = review(API_VERSION, of_kind("CREATE"));
        let plain = decode_review(&HeaderMap::new(), body.as_bytes()).unwrap_err();
        assert_eq!(plain, "contentType=, expected application/json");
        let request = decode_review(&json_headers(), body.as_bytes()).unwrap();
        assert_eq!(
            (request.operation, &*request.name, request.dry_run),
            (Operation::Create, "", false)
        );
        let missing = request.object::<Value>().unwrap_err();
        assert_eq!(missing.to_string(), "object: there is no content to decode");
    }
}
