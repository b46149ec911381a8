//! Reviews: TokenReview, SelfSubjectReview, SubjectAccessReview and similar resources. The server returns each with its
//! status, and never stores it.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::selectors::Selectors;
use crate::api::Answer;
use crate::auth::{
    Answers, Attributes, Effect, FieldRequirements, LabelRequirements, Notes, Response, aggregate,
    settled,
};
use crate::loopback;
use crate::request::RequestContext;
use crate::resource::GroupKind;
use crate::verbs::attempt::Write;
use crate::verbs::meta;
use evenkeel_apimachinery::schema::go_encoded;
use evenkeel_apimachinery::status::{BadValue, FieldError, StatusError};
use evenkeel_apimachinery::time::seconds;
use evenkeel_apimachinery::user::User;
use evenkeel_apimachinery::value::{self, is_blank, list};

/// Returns whether a resource is a review.
pub(super) fn is_review(plural: &str) -> bool {
    matches!(
        plural,
        "selfsubjectreviews"
            | "tokenreviews"
            | "localsubjectaccessreviews"
            | "selfsubjectaccessreviews"
            | "selfsubjectrulesreviews"
            | "subjectaccessreviews"
    )
}

/// Serves POST of a review: responds with the review and its `status`.
pub(super) async fn serve(
    request: &RequestContext<'_>,
    mut review: Value,
    write: &Write<'_>,
) -> Result<Answer, StatusError> {
    write.set_managed_fields_of_unstored(&mut review);
    let status = match request.resource().plural() {
        "selfsubjectreviews" => {
            // The response contains nothing of the sent metadata.
            review["metadata"] = json!({});
            meta::set(&mut review, "creationTimestamp", &seconds(request.now));
            json!({"userInfo": user_info(request.user)})
        }
        "tokenreviews" => review_token(request, &review).await?,
        "selfsubjectrulesreviews" => {
            let status = review_rules(request, &review)?;
            review["metadata"] = json!({});
            review["spec"] = json!({});
            status
        }
        "selfsubjectaccessreviews" => {
            check_access(&review, Access::Own)?;
            review_access(request, &review, request.user, &write.answers).await?
        }
        plural => {
            // `subjectaccessreviews` or `localsubjectaccessreviews`.
            let mut access = Access::Any;
            if plural == "localsubjectaccessreviews" {
                check_namespace(request, &review)?;
                meta::set(&mut review, "namespace", request.target.namespace);
                access = Access::Local;
            }
            check_access(&review, access)?;
            let user = reviewed_user(&review);
            review_access(request, &review, &user, &write.answers).await?
        }
    };
    review["status"] = status;
    Ok(Answer::Object(StatusCode::CREATED, review))
}

/// Returns a user as `authentication.k8s.io/v1` UserInfo.
fn user_info(user: &User) -> Value {
    let mut info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        info["uid"] = Value::from(&*user.uid);
    }
    if !user.extra.is_empty() {
        let extra: Map<String, Value> = user
            .extra
            .iter()
            .map(|(k, v)| (k.to_string(), v.iter().map(|v| &**v).collect()))
            .collect();
        info["extra"] = Value::Object(extra);
    }
    info
}

/// Returns the strings of an array.
fn strings(value: Option<&Value>) -> Vec<String> {
    value
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(Into::into)
        .collect()
}

/// Returns the status of a TokenReview.
///
/// Upstream: `tokenreview.REST.Create`.
async fn review_token(request: &RequestContext<'_>, review: &Value) -> Result<Value, StatusError> {
    let token = review.pointer("/spec/token").and_then(Value::as_str).unwrap_or_default();
    if token.is_empty() {
        return Err(StatusError::bad_request(
            "token is required for TokenReview in authentication",
        ));
    }
    let (api, mut notes) = (request.api, Notes::default());
    let mut audiences = strings(review.pointer("/spec/audiences"));
    if audiences.is_empty() {
        audiences = api.authenticator.service_accounts.audiences().to_vec();
    }
    let authenticated = api
        .authenticator
        .authenticate_token(&api.store, request.now, token, &audiences, &mut notes)
        .await;
    if let Some(secret) = &notes.used_secret {
        loopback::record_token_use(api, secret).await;
    }
    Ok(match authenticated {
        Ok(Some(Response { user, audiences })) => {
            json!({"authenticated": true, "user": user_info(&user), "audiences": audiences})
        }
        Ok(None) => json!({"user": {}, "error": "invalid bearer token"}),
        Err(error) => json!({"user": {}, "error": error}),
    })
}

/// Returns the user in a review's `spec`.
fn reviewed_user(review: &Value) -> Arc<User> {
    let name = review.pointer("/spec/user").and_then(Value::as_str).unwrap_or_default();
    let groups = strings(review.pointer("/spec/groups"));
    let uid = review.pointer("/spec/uid").and_then(Value::as_str).unwrap_or_default();
    let extra = review.pointer("/spec/extra").and_then(Value::as_object);
    let extra = extra.into_iter().flatten().map(|(key, values)| {
        let values = strings(Some(values)).into_iter().map(Into::into).collect();
        (key.as_str().into(), values)
    });
    Arc::new(User {
        name: name.into(),
        uid: uid.into(),
        groups: groups.into_iter().map(Into::into).collect(),
        extra: extra.collect(),
    })
}

fn invalid(errors: &[FieldError]) -> StatusError {
    StatusError::invalid(
        &GroupKind { group: "authorization.k8s.io".into(), kind: "".into() },
        "",
        errors,
    )
}

/// User and namespace whose access a review checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// Access of the requesting user.
    Own,
    /// Access of a named user.
    Any,
    /// Access of a named user in the namespace of the request.
    Local,
}

/// Refuses a LocalSubjectAccessReview of another namespace than the path's.
fn check_namespace(request: &RequestContext<'_>, review: &Value) -> Result<(), StatusError> {
    let namespace = meta::text(review, "namespace");
    if !namespace.is_empty() && namespace != request.target.namespace {
        return Err(StatusError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Refuses an invalid access review.
///
/// Upstream: `ValidateSubjectAccessReview`, `ValidateSelfSubjectAccessReview`, `ValidateLocalSubjectAccessReview`.
fn check_access(review: &Value, access: Access) -> Result<(), StatusError> {
    let object = |path: &str| review.pointer(path).filter(|value| value.is_object());
    let (resource, path) =
        (object("/spec/resourceAttributes"), object("/spec/nonResourceAttributes"));
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let shown = path.map(|path| json!({"Path": text(path, "path"), "Verb": text(path, "verb")}));
    let mut errors = Vec::new();
    if resource.is_some() == path.is_some() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(FieldError::invalid("spec", shown.clone().unwrap_or_default(), detail));
    }
    if access != Access::Own
        && text(&review["spec"], "user").is_empty()
        && strings(review.pointer("/spec/groups")).is_empty()
    {
        let detail = "at least one of user or group must be specified";
        errors.push(FieldError::invalid("spec.user", "", detail));
    }
    if let Some(resource) = resource {
        errors.extend(Selectors::parse(resource).errors);
    }
    let mut metadata = review["metadata"].clone();
    if let Some(fields) = metadata.as_object_mut() {
        fields.retain(|name, value| {
            let is_allowed =
                name == "managedFields" || access == Access::Local && name == "namespace";
            !is_allowed && !is_blank(value)
        });
    }
    if !is_blank(&metadata) {
        let name = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
        let sent = BadValue::Encoded(go_encoded(name, &review["metadata"]));
        let detail = match access {
            Access::Local => "must be empty except for namespace",
            Access::Own | Access::Any => "must be empty",
        };
        errors.push(FieldError::invalid("metadata", sent, detail));
    }
    if access == Access::Local {
        let namespace = resource.map(|resource| text(resource, "namespace"));
        if let Some(namespace) = namespace
            && namespace != meta::text(review, "namespace")
        {
            let (field, detail) =
                ("spec.resourceAttributes.namespace", "must match metadata.namespace");
            errors.push(FieldError::invalid(field, namespace, detail));
        }
        if let Some(shown) = shown {
            let detail = "disallowed on this kind of request";
            errors.push(FieldError::invalid("spec.nonResourceAttributes", shown, detail));
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(invalid(&errors)) }
}

/// Returns the status of a valid access review: whether `user` may make the request in `spec`.
async fn review_access(
    request: &RequestContext<'_>,
    review: &Value,
    user: &User,
    answers: &Answers,
) -> Result<Value, StatusError> {
    let object = |path: &str| review.pointer(path).filter(|v| v.is_object());
    let (resource, path) =
        (object("/spec/resourceAttributes"), object("/spec/nonResourceAttributes"));
    let spec = resource.or(path).unwrap_or(&Value::Null);
    let text = |field: &str| spec.get(field).and_then(Value::as_str).unwrap_or_default();
    let selectors = Selectors::parse(spec);
    let attributes = Attributes {
        verb: text("verb"),
        group: text("group"),
        version: text("version"),
        resource: text("resource"),
        subresource: text("subresource"),
        namespace: text("namespace"),
        name: text("name"),
        path: path.is_some().then(|| text("path")),
        field_selector: FieldRequirements::Terms(&selectors.fields),
        label_selector: match list(spec, "labelSelector.requirements") {
            [] => LabelRequirements::Raw(value::text(spec, "labelSelector.rawSelector")),
            requirements => LabelRequirements::Listed(requirements),
        },
    };
    let (authorizer, store) = (&request.api.authorizer, &request.api.store);
    let decision =
        settled(answers, || authorizer.decide(store, user, &attributes, answers, true)).await;
    let mut status = json!({"allowed": decision.is_allowed()});
    if decision.effect == Effect::Deny {
        status["denied"] = true.into();
    }
    if !decision.reason.is_empty() {
        status["reason"] = decision.reason.into();
    }
    let errors: Vec<String> = selectors.ignored.into_iter().chain(decision.error).collect();
    if !errors.is_empty() {
        status["evaluationError"] = errors.join("; ").into();
    }
    Ok(status)
}

/// Returns the status of a SelfSubjectRulesReview: the rules of the user in a namespace.
fn review_rules(request: &RequestContext<'_>, review: &Value) -> Result<Value, StatusError> {
    let namespace = review.pointer("/spec/namespace").and_then(Value::as_str).unwrap_or_default();
    if namespace.is_empty() {
        return Err(StatusError::bad_request("no namespace on request"));
    }
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    if request.api.authorizer.allows_all() {
        resources.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        paths.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
    }
    let resolved = request.api.authorizer.rules_for(&request.api.store, request.user, namespace);
    for rule in resolved.rules.iter().flat_map(|rules| rules.iter()) {
        if !rule.resources.is_empty() {
            let mut row = json!({"verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources});
            if !rule.resource_names.is_empty() {
                row["resourceNames"] = json!(rule.resource_names);
            }
            resources.push(row);
        }
        if !rule.non_resource_urls.is_empty() {
            paths.push(json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}));
        }
    }
    let unsupported = request.api.authorizer.unlisted(request.user);
    let is_incomplete = !unsupported.is_empty();
    let mut status =
        json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": is_incomplete});
    let unsupported = unsupported.into_iter().map(str::to_owned);
    let missing = resolved.missing.iter().map(|role| role.not_cached());
    if let Some(error) = aggregate(unsupported.chain(missing)) {
        status["evaluationError"] = Value::from(error);
    }
    Ok(status)
}
