//! Audit event of a request. The level of the request's audit policy decides which fields it has.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | Events of level `Metadata` have no bodies, `Request` has the request's object, and `RequestResponse` also the response's object | `set_request_object`, `set_response_object` |
//! | `objectRef` names the object as the URL does; the request's object supplies missing fields | `begin`, `set_request_object` |
//! | `responseStatus` has the status code, and the fields of a response that is a Status | `set_response_status`, `set_response_code` |
//! | An annotation keeps its first value | `annotate` |
//! | `omitManagedFields` removes the managed fields of objects, and of the objects in lists and tables | `without_managed_fields` |
//! | `userAgent` is cut after 1,024 bytes | `user_agent` |
//! | `sourceIPs` has the addresses in headers, and then the address of the connection | `source_ips` |
//!
//! Upstream: `audit/context.go`, `audit/request.go`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use evenkeel_api::address;
use evenkeel_api::time::micros;
use evenkeel_apimachinery::headers::text as header;
use evenkeel_apimachinery::user::User;
use evenkeel_apimachinery::value::text;
use http::header::USER_AGENT;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::policy::{AuditAttributes, Level, RequestAuditConfig, Stage};

/// Maximum length of the user agent in bytes.
const MAX_USER_AGENT: usize = 1024;

/// Event of the API `audit.k8s.io/v1`. Its fields are in upstream's order. The JSON omits empty fields.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuditEvent {
    kind: &'static str,
    api_version: &'static str,
    level: &'static str,
    #[serde(rename = "auditID")]
    audit_id: String,
    stage: &'static str,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    user: UserInfo,
    #[serde(skip_serializing_if = "Option::is_none")]
    impersonated_user: Option<UserInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    authentication_metadata: Option<Value>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    source_ips: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    user_agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ref: Option<ObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_status: Option<ResponseStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_object: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_object: Option<Value>,
    request_received_timestamp: String,
    stage_timestamp: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
    /// Configuration that the policy sets for the request.
    #[serde(skip)]
    config: RequestAuditConfig,
}

/// Object of a request: `objectRef`.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectReference {
    #[serde(skip_serializing_if = "String::is_empty")]
    resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    subresource: String,
}

/// Status of the response: `responseStatus`.
#[derive(Debug, Clone, Default, Serialize)]
struct ResponseStatus {
    metadata: Map<String, Value>,
    #[serde(skip_serializing_if = "String::is_empty")]
    status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Value>,
    #[serde(skip_serializing_if = "is_zero")]
    code: u16,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(code: &u16) -> bool {
    *code == 0
}

/// Properties of a request that are known when it arrives.
pub(crate) struct Received<'a> {
    pub(crate) audit_id: &'a str,
    /// Path and query as the client sent them.
    pub(crate) uri: &'a str,
    pub(crate) headers: &'a HeaderMap,
    /// IP address of the client's connection; `None` for an in-process request.
    pub(crate) remote: Option<IpAddr>,
    /// Time at which the request arrived.
    pub(crate) at: Timestamp,
}

impl AuditEvent {
    /// Creates the event of a request. `user` is `None` if authentication failed.
    ///
    /// Upstream: `LogRequestMetadata`.
    pub(crate) fn begin(
        config: RequestAuditConfig,
        received: &Received<'_>,
        user: Option<&User>,
        attributes: &AuditAttributes<'_>,
    ) -> Self {
        let object_ref = attributes.is_resource.then(|| ObjectReference {
            resource: attributes.resource.to_owned(),
            namespace: attributes.namespace.to_owned(),
            name: attributes.name.to_owned(),
            api_group: attributes.group.to_owned(),
            api_version: attributes.version.to_owned(),
            subresource: attributes.subresource.to_owned(),
            ..ObjectReference::default()
        });
        let received_at = micros(received.at);
        Self {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: config.level.as_str(),
            audit_id: received.audit_id.to_owned(),
            stage: Stage::RequestReceived.as_str(),
            request_uri: received.uri.to_owned(),
            verb: attributes.verb.to_owned(),
            user: user.map(user_info).unwrap_or_default(),
            impersonated_user: None,
            authentication_metadata: None,
            source_ips: source_ips(received.headers, received.remote),
            user_agent: user_agent(header(received.headers, USER_AGENT)),
            object_ref,
            response_status: None,
            request_object: None,
            response_object: None,
            request_received_timestamp: received_at.clone(),
            stage_timestamp: received_at,
            annotations: BTreeMap::new(),
            config,
        }
    }

    /// Moves the event to a stage, and returns a copy to write; `None` if the policy omits the stage.
    ///
    /// Upstream: `ProcessEventStage`.
    pub(crate) fn at_stage(&mut self, stage: Stage, now: Timestamp) -> Option<Self> {
        if self.config.omit_stages.contains(&stage) {
            return None;
        }
        self.stage = stage.as_str();
        self.stage_timestamp = match stage {
            Stage::RequestReceived => self.request_received_timestamp.clone(),
            _ => micros(now),
        };
        Some(self.clone())
    }

    /// Returns the level of the request's events.
    pub(crate) fn level(&self) -> Level {
        self.config.level
    }

    /// Records the user that the request impersonates. `constraint` is the verb that permitted a constrained
    /// impersonation.
    ///
    /// Upstream: `LogImpersonatedUser`.
    pub(crate) fn set_impersonated_user(&mut self, user: &User, constraint: Option<&str>) {
        self.impersonated_user = Some(user_info(user));
        if let Some(constraint) = constraint {
            self.authentication_metadata = Some(json!({"impersonationConstraint": constraint}));
        }
    }

    /// Adds an annotation unless its key already has a value.
    ///
    /// Upstream: `addAuditAnnotationLocked`.
    pub(crate) fn annotate(&mut self, key: String, value: String) {
        self.annotations.entry(key).or_insert(value);
    }

    /// Records the object of a request, if the level includes it. At every level, the object supplies the missing
    /// fields of `objectRef`.
    ///
    /// Upstream: `LogRequestObject`.
    pub(crate) fn set_request_object(&mut self, object: &Value) {
        let reference = self.object_ref.get_or_insert_default();
        for (field, path) in [
            (&mut reference.namespace, "metadata.namespace"),
            (&mut reference.name, "metadata.name"),
            (&mut reference.uid, "metadata.uid"),
            (&mut reference.resource_version, "metadata.resourceVersion"),
        ] {
            if field.is_empty() {
                text(object, path).clone_into(field);
            }
        }
        if self.config.level >= Level::Request {
            self.request_object = Some(self.written_object(object.clone()));
        }
    }

    /// Records the patch of a request in place of its object, if the level includes it.
    ///
    /// Upstream: `LogRequestPatch`.
    pub(crate) fn set_request_patch(&mut self, patch: Value) {
        if self.config.level >= Level::Request {
            self.request_object = Some(patch);
        }
    }

    /// Records the object of a response, if the level includes it.
    ///
    /// Upstream: `LogResponseObject`.
    pub(crate) fn set_response_object(&mut self, object: Value) {
        if self.config.level >= Level::RequestResponse {
            self.response_object = Some(self.written_object(object));
        }
    }

    /// Records the fields of a response that is a Status.
    ///
    /// Upstream: `LogResponseObject`.
    pub(crate) fn set_response_status(&mut self, status: &Value) {
        let field = |name: &str| text(status, name).to_owned();
        let code = status.get("code").and_then(Value::as_u64).unwrap_or_default();
        self.response_status = Some(ResponseStatus {
            metadata: Map::new(),
            status: field("status"),
            message: field("message"),
            reason: field("reason"),
            details: status.get("details").cloned(),
            code: u16::try_from(code).unwrap_or_default(),
        });
    }

    /// Records the status code of a response.
    ///
    /// Upstream: `SetEventResponseStatusCode`.
    pub(crate) fn set_response_code(&mut self, code: StatusCode) {
        self.response_status.get_or_insert_default().code = code.as_u16();
    }

    /// Returns the object for the event: without managed fields if the policy omits them.
    fn written_object(&self, mut object: Value) -> Value {
        if self.config.omit_managed_fields {
            without_managed_fields(&mut object);
        }
        object
    }
}

/// User in an event.
///
/// Upstream: `UserInfo` of the authentication API.
#[derive(Debug, Clone, Default, Serialize)]
struct UserInfo {
    #[serde(skip_serializing_if = "String::is_empty")]
    username: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: BTreeMap<String, Vec<String>>,
}

fn user_info(user: &User) -> UserInfo {
    let owned = |texts: &[Box<str>]| texts.iter().map(ToString::to_string).collect();
    UserInfo {
        username: user.name.to_string(),
        uid: user.uid.to_string(),
        groups: owned(&user.groups),
        extra: user.extra.iter().map(|(key, values)| (key.to_string(), owned(values))).collect(),
    }
}

/// Removes the managed fields of an object, or of the objects in a list or table.
///
/// Upstream: `copyWithoutManagedFields`.
fn without_managed_fields(object: &mut Value) {
    let remove = |object: &mut Value| {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    };
    remove(object);
    for item in object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        remove(item);
    }
    for row in object.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(object) = row.get_mut("object") {
            remove(object);
        }
    }
}

/// Returns the user agent, cut at a character boundary if it is longer than [`MAX_USER_AGENT`].
///
/// Upstream: `maybeTruncateUserAgent`.
fn user_agent(header: &str) -> String {
    if header.len() <= MAX_USER_AGENT {
        return header.to_owned();
    }
    let end = (0..=MAX_USER_AGENT).rev().find(|index| header.is_char_boundary(*index));
    format!("{}...TRUNCATED", &header[..end.unwrap_or_default()])
}

/// Returns the source IP addresses of a request: the addresses in `X-Forwarded-For`, then the address in `X-Real-Ip`
/// unless it is among them, then the address of the connection unless it is the last one already.
///
/// Upstream: `SourceIPs` of `apimachinery/pkg/util/net`.
fn source_ips(headers: &HeaderMap, remote: Option<IpAddr>) -> Vec<String> {
    let mut ips: Vec<IpAddr> = Vec::new();
    let forwarded = header(headers, "x-forwarded-for").split(',');
    ips.extend(forwarded.filter_map(|ip| address::parse(ip.trim())));
    if let Some(real_ip) = address::parse(header(headers, "x-real-ip"))
        && !ips.contains(&real_ip)
    {
        ips.push(real_ip);
    }
    if let Some(remote) = remote.map(|remote| remote.to_canonical())
        && ips.last() != Some(&remote)
    {
        ips.push(remote);
    }
    ips.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(level: Level, omit_managed_fields: bool) -> RequestAuditConfig {
        let omit_stages = vec![Stage::ResponseStarted];
        RequestAuditConfig { level, omit_stages, omit_managed_fields }
    }

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        all.iter()
            .map(|(name, value)| {
                (http::HeaderName::from_static(name), value.parse().expect("a value"))
            })
            .collect()
    }

    fn event(level: Level, omit: bool) -> AuditEvent {
        let headers = headers(&[("user-agent", "test/1"), ("x-forwarded-for", "10.0.0.1")]);
        let received = Received {
            audit_id: "id",
            uri: "/api/v1/namespaces/ns/configmaps?dryRun=All",
            headers: &headers,
            remote: "127.0.0.1".parse().ok(),
            at: "2026-01-02T03:04:05.678901Z".parse().expect("a time"),
        };
        let attributes = AuditAttributes {
            verb: "create",
            is_resource: true,
            version: "v1",
            resource: "configmaps",
            namespace: "ns",
            ..AuditAttributes::default()
        };
        let user = User::authenticated("ann", ["a"]);
        AuditEvent::begin(config(level, omit), &received, Some(&user), &attributes)
    }

    #[test]
    fn an_event_has_upstreams_fields() {
        let mut event = event(Level::Metadata, false);
        event.set_request_object(
            &json!({"metadata": {"name": "m", "namespace": "other"}, "data": {}}),
        );
        event.annotate("k".to_owned(), "first".to_owned());
        event.annotate("k".to_owned(), "second".to_owned());
        event.set_response_code(StatusCode::CREATED);
        event.set_response_object(json!({"data": {}}));
        let now = "2026-01-02T03:04:06Z".parse().expect("a time");
        assert!(event.at_stage(Stage::ResponseStarted, now).is_none());
        let event = event.at_stage(Stage::ResponseComplete, now).expect("an event");
        assert_eq!(
            serde_json::to_string(&event).expect("JSON"),
            concat!(
                r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"id","#,
                r#""stage":"ResponseComplete","requestURI":"/api/v1/namespaces/ns/configmaps?dryRun=All","verb":"create","#,
                r#""user":{"username":"ann","groups":["a","system:authenticated"]},"sourceIPs":["10.0.0.1","127.0.0.1"],"#,
                r#""userAgent":"test/1","objectRef":{"resource":"configmaps","namespace":"ns","name":"m","apiVersion":"v1"},"#,
                r#""responseStatus":{"metadata":{},"code":201},"requestReceivedTimestamp":"2026-01-02T03:04:05.678901Z","#,
                r#""stageTimestamp":"2026-01-02T03:04:06.000000Z","annotations":{"k":"first"}}"#
            )
        );
    }

    #[test]
    fn levels_decide_about_bodies() {
        let managed = json!({"metadata": {"name": "m", "managedFields": [1]}});
        let list = json!({"items": [managed], "rows": [{"object": managed}]});
        for (level, omit, n_bodies) in [
            (Level::Metadata, false, 0),
            (Level::Request, false, 1),
            (Level::RequestResponse, false, 2),
            (Level::RequestResponse, true, 2),
        ] {
            let mut event = event(level, omit);
            event.set_request_object(&managed);
            event.set_response_object(list.clone());
            let event = serde_json::to_value(&event).expect("JSON");
            let bodies = ["requestObject", "responseObject"].map(|name| event.get(name));
            assert_eq!(bodies.iter().flatten().count(), n_bodies, "{level:?}");
            let has_managed = event.to_string().contains("managedFields");
            assert_eq!(has_managed, n_bodies > 0 && !omit, "{level:?}");
        }
        let mut event = event(Level::Metadata, false);
        event.set_request_patch(json!({"secret": 1}));
        assert!(!serde_json::to_string(&event).expect("JSON").contains("secret"));
    }

    #[test]
    fn addresses_come_from_headers_and_the_connection() {
        let remote = "::ffff:192.0.2.9".parse().ok();
        for (all, want) in [
            (&[][..], "192.0.2.9"),
            (&[("x-forwarded-for", "1.1.1.1, nonsense,::1")], "1.1.1.1 ::1 192.0.2.9"),
            (&[("x-forwarded-for", "1.1.1.1,192.0.2.9")], "1.1.1.1 192.0.2.9"),
            (&[("x-forwarded-for", "192.0.2.9,1.1.1.1")], "192.0.2.9 1.1.1.1 192.0.2.9"),
            (&[("x-forwarded-for", "01.1.1.1, é, ::ffff:2.2.2.2")], "1.1.1.1 2.2.2.2 192.0.2.9"),
            (&[("x-real-ip", "192.0.2.9"), ("x-forwarded-for", "1.1.1.1")], "1.1.1.1 192.0.2.9"),
            (&[("x-real-ip", "2.2.2.2")], "2.2.2.2 192.0.2.9"),
            (&[("x-real-ip", "1.1.1.1"), ("x-forwarded-for", "1.1.1.1")], "1.1.1.1 192.0.2.9"),
        ] {
            assert_eq!(source_ips(&headers(all), remote).join(" "), want);
        }
    }

    #[test]
    fn long_user_agents_are_cut() {
        assert_eq!(user_agent("short"), "short");
        let cut = user_agent(&"é".repeat(600));
        assert_eq!(cut, format!("{}...TRUNCATED", "é".repeat(512)));
    }
}
