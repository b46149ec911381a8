//! Validates an authorization configuration, and compiles the conditions of its webhooks.
//!
//! Upstream: `ValidateAuthorizationConfiguration`, `LoadAndValidateData`.

use std::collections::BTreeSet;

use evenkeel_api::duration;
use evenkeel_api::forms::dns_subdomain;
use evenkeel_apimachinery::status::FieldError;

use super::conditions::Condition;
use super::config::{
    AuthorizationConfiguration, ConnectionInfo, GoDuration, MatchCondition, WebhookConfiguration,
};
use crate::auth::rbac::aggregate;

/// Types that upstream supports, sorted.
const TYPES: [&str; 6] = ["ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"];
/// Maximum number of match conditions of a webhook.
const MAX_CONDITIONS: usize = 64;
/// Maximum timeout of a webhook.
const MAX_TIMEOUT: GoDuration = GoDuration::from_seconds(30);

/// Valid authorizer of a configuration.
pub(super) struct ValidAuthorizer<'a> {
    pub(super) authorizer_type: &'a str,
    pub(super) name: &'a str,
    /// The webhook with its compiled conditions.
    pub(super) webhook: Option<(&'a WebhookConfiguration, Vec<Condition>)>,
}

/// Returns why a file is not a regular file that can be read; `None` if it is.
pub(super) type FileError<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Returns the authorizers of a configuration. Apart from webhooks, it must have the `required` types. The error has
/// the messages of all errors.
pub(super) fn validate<'a>(
    config: &'a AuthorizationConfiguration,
    required: &BTreeSet<String>,
    file_error: &FileError<'_>,
) -> Result<Vec<ValidAuthorizer<'a>>, String> {
    let mut checker = Checker { errors: Vec::new(), file_error };
    let authorizers = checker.authorizers(config);
    if let Some(errors) = aggregate(checker.errors.iter().map(ToString::to_string)) {
        return Err(errors);
    }
    let mut errors = Vec::new();
    let mut missing = required.clone();
    for ValidAuthorizer { authorizer_type, name, .. } in &authorizers {
        let expected = authorizer_type.to_lowercase();
        missing.remove(*authorizer_type);
        if *authorizer_type != "Webhook" && *name != expected {
            errors.push(format!(
                "expected name {expected} for authorizer {authorizer_type} instead of {name}"
            ));
        }
    }
    if !missing.is_empty() {
        let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
        errors.push(format!("missing required types: [{}]", missing.join(" ")));
    }
    match aggregate(errors.into_iter()) {
        Some(errors) => Err(errors),
        None => Ok(authorizers),
    }
}

/// Collects the errors of a configuration.
struct Checker<'a> {
    errors: Vec<FieldError>,
    file_error: &'a FileError<'a>,
}

impl Checker<'_> {
    fn add(&mut self, error: FieldError) {
        self.errors.push(error);
    }

    fn authorizers<'a>(
        &mut self,
        config: &'a AuthorizationConfiguration,
    ) -> Vec<ValidAuthorizer<'a>> {
        if config.authorizers.is_empty() {
            let why = "at least one authorization mode must be defined";
            self.add(FieldError::required("authorizers", why));
        }
        let (mut seen_types, mut seen_names) = (BTreeSet::new(), BTreeSet::new());
        let mut authorizers = Vec::new();
        for (index, authorizer) in config.authorizers.iter().enumerate() {
            let path = format!("authorizers[{index}]");
            let (authorizer_type, name) = (&*authorizer.authorizer_type, &*authorizer.name);
            let type_path = format!("{path}.type");
            if authorizer_type.is_empty() {
                self.add(FieldError::required(type_path, ""));
                continue;
            }
            if !TYPES.contains(&authorizer_type) {
                self.add(FieldError::not_supported(type_path, authorizer_type, &TYPES));
                continue;
            }
            if !seen_types.insert(authorizer_type) && authorizer_type != "Webhook" {
                self.add(FieldError::duplicate(type_path, authorizer_type));
                continue;
            }
            let name_path = format!("{path}.name");
            let name_errors = dns_subdomain(name);
            if name.is_empty() {
                self.add(FieldError::required(name_path, ""));
            } else if seen_names.contains(name) {
                self.add(FieldError::duplicate(name_path, name));
            } else if !name_errors.is_empty() {
                let why = format!("authorizer name is invalid: {}", name_errors.join(", "));
                self.add(FieldError::invalid(name_path, name, why));
            }
            seen_names.insert(name);
            let webhook_path = format!("{path}.webhook");
            let webhook = match (authorizer_type, &authorizer.webhook) {
                ("Webhook", None) => {
                    self.add(FieldError::required(webhook_path, "required when type=Webhook"));
                    None
                }
                ("Webhook", Some(webhook)) => Some((webhook, self.webhook(&path, webhook))),
                (_, Some(_)) => {
                    let why = "may only be specified when type=Webhook";
                    self.add(FieldError::invalid(webhook_path, "non-null", why));
                    None
                }
                (_, None) => None,
            };
            authorizers.push(ValidAuthorizer { authorizer_type, name, webhook });
        }
        authorizers
    }

    /// Validates the configuration of a webhook. Returns its compiled match conditions.
    ///
    /// Upstream: `ValidateWebhookConfiguration`.
    fn webhook(&mut self, path: &str, webhook: &WebhookConfiguration) -> Vec<Condition> {
        const ZERO: GoDuration = GoDuration(0);
        for (field, duration, max, why) in [
            ("timeout", webhook.timeout, MAX_TIMEOUT, "must be > 0s and <= 30s"),
            ("authorizedTTL", webhook.authorized_ttl, GoDuration(i64::MAX), "must be > 0s"),
            ("unauthorizedTTL", webhook.unauthorized_ttl, GoDuration(i64::MAX), "must be > 0s"),
        ] {
            let path = format!("{path}.{field}");
            if duration == ZERO {
                self.add(FieldError::required(path, ""));
            } else if duration < ZERO || duration > max {
                self.add(FieldError::invalid(path, duration::format(duration.0), why));
            }
        }
        self.one_of(
            format!("{path}.subjectAccessReviewVersion"),
            &webhook.subject_access_review_version,
            &["v1", "v1beta1"],
        );
        let version_path = format!("{path}.matchConditionSubjectAccessReviewVersion");
        match &*webhook.match_condition_subject_access_review_version {
            "" if webhook.match_conditions.is_empty() => {}
            "" => {
                let why = "required if match conditions are specified";
                self.add(FieldError::required(version_path, why));
            }
            version => self.one_of(version_path, version, &["v1"]),
        }
        self.one_of(
            format!("{path}.failurePolicy"),
            &webhook.failure_policy,
            &["NoOpinion", "Deny"],
        );
        self.connection(&format!("{path}.connectionInfo"), &webhook.connection_info);
        self.conditions(&format!("{path}.matchConditions"), &webhook.match_conditions)
    }

    /// Refuses an empty value, and any value other than `known`.
    fn one_of(&mut self, path: String, value: &str, known: &[&str]) {
        if value.is_empty() {
            self.add(FieldError::required(path, ""));
        } else if !known.contains(&value) {
            self.add(FieldError::not_supported(path, value, known));
        }
    }

    fn connection(&mut self, path: &str, connection: &ConnectionInfo) {
        let file_path = format!("{path}.kubeConfigFile");
        let type_path = format!("{path}.type");
        match (&*connection.connection_type, connection.kube_config_file.as_deref()) {
            ("KubeConfigFile", None | Some("")) => self.add(FieldError::required(file_path, "")),
            ("KubeConfigFile", Some(file)) if !file.starts_with('/') => {
                self.add(FieldError::invalid(file_path, file, "must be an absolute path"));
            }
            ("KubeConfigFile", Some(file)) => {
                if let Some(why) = (self.file_error)(file) {
                    self.add(FieldError::invalid(file_path, file, why));
                }
            }
            ("InClusterConfig", Some(file)) => {
                let why = "can only be set when type=KubeConfigFile";
                self.add(FieldError::invalid(file_path, file, why));
            }
            // Upstream's server accepts this, and then panics.
            ("InClusterConfig", None) => {
                let why = "an API server cannot ask itself";
                self.add(FieldError::invalid(type_path, "InClusterConfig", why));
            }
            (other, _) => {
                self.one_of(type_path, other, &["InClusterConfig", "KubeConfigFile"]);
            }
        }
    }

    /// Compiles match conditions, which must be distinct and not too many.
    ///
    /// Upstream: `compileMatchConditions`.
    fn conditions(&mut self, path: &str, conditions: &[MatchCondition]) -> Vec<Condition> {
        if conditions.len() > MAX_CONDITIONS {
            let (actual, max) = (conditions.len() as u64, MAX_CONDITIONS as u64);
            self.add(FieldError::too_many(path, actual, max));
            return Vec::new();
        }
        let mut seen = BTreeSet::new();
        let mut compiled = Vec::new();
        for (index, condition) in conditions.iter().enumerate() {
            let path = format!("{path}[{index}].expression");
            let expression = &*condition.expression;
            if expression.trim().is_empty() {
                self.add(FieldError::required(path, ""));
            } else if !seen.insert(expression) {
                self.add(FieldError::duplicate(path, expression));
            } else {
                match Condition::compile(expression) {
                    Ok(condition) => compiled.push(condition),
                    Err(why) => self.add(FieldError::invalid(path, expression, why)),
                }
            }
        }
        compiled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(authorizers: &str, required: &[&str]) -> String {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: {authorizers}"
        );
        let config = AuthorizationConfiguration::parse(text.as_bytes()).expect("it can be parsed");
        let required = required.iter().map(|&name| name.to_owned()).collect();
        let file_error =
            |file: &str| (file != "/there").then(|| "must be a regular file".to_owned());
        validate(&config, &required, &file_error).err().unwrap_or_default()
    }

    #[test]
    fn a_configuration_is_refused_with_upstreams_messages() {
        let webhook = |more: &str| {
            format!(
                "[{{type: Webhook, name: a.b, webhook: {{timeout: 3s, subjectAccessReviewVersion: v1, failurePolicy: Deny, \
                 connectionInfo: {{type: KubeConfigFile, kubeConfigFile: /there}}{more}}}}}]"
            )
        };
        for (authorizers, expected) in [
            (
                "[]".to_owned(),
                "authorizers: Required value: at least one authorization mode must be defined",
            ),
            ("[{name: a}]".to_owned(), "authorizers[0].type: Required value"),
            (
                "[{type: rbac, name: a}]".to_owned(),
                "authorizers[0].type: Unsupported value: \"rbac\": supported values: \"ABAC\", \"AlwaysAllow\", \"AlwaysDeny\", \"Node\", \"RBAC\", \"Webhook\"",
            ),
            (
                "[{type: RBAC, name: rbac}, {type: RBAC, name: rbac}]".to_owned(),
                "authorizers[1].type: Duplicate value: \"RBAC\"",
            ),
            (
                "[{type: RBAC, name: other}]".to_owned(),
                "expected name rbac for authorizer RBAC instead of other",
            ),
            ("[{type: RBAC}]".to_owned(), "authorizers[0].name: Required value"),
            (
                "[{type: Webhook, name: a}]".to_owned(),
                "authorizers[0].webhook: Required value: required when type=Webhook",
            ),
            (webhook(""), ""),
            (
                webhook(", matchConditions: [{expression: 'true'}]"),
                "authorizers[0].matchConditionSubjectAccessReviewVersion: Required value: required if match conditions are specified",
            ),
            (
                webhook(
                    ", matchConditionSubjectAccessReviewVersion: v1, matchConditions: [{expression: 'true'}, {expression: 'true'}, {expression: ''}]",
                ),
                "[authorizers[0].matchConditions[1].expression: Duplicate value: \"true\", authorizers[0].matchConditions[2].expression: Required value]",
            ),
            (
                webhook("").replace("3s", "31s"),
                "authorizers[0].timeout: Invalid value: \"31s\": must be > 0s and <= 30s",
            ),
            (
                webhook("").replace("/there", "/away"),
                "authorizers[0].connectionInfo.kubeConfigFile: Invalid value: \"/away\": must be a regular file",
            ),
            (
                webhook("").replace("Deny", "Allow"),
                "authorizers[0].failurePolicy: Unsupported value: \"Allow\": supported values: \"NoOpinion\", \"Deny\"",
            ),
        ] {
            assert_eq!(errors(&authorizers, &[]), expected, "{authorizers}");
        }
        assert_eq!(
            errors("[{type: RBAC, name: rbac}]", &["Node", "RBAC"]),
            "missing required types: [Node]"
        );
    }
}
