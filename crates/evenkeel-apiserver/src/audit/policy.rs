//! Audit policy: the level and the stages of a request's audit events.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | The first rule that matches a request sets its level; if no rule matches, the level is `None` | `evaluate` |
//! | The stages in `omitStages` of the policy and of the rule are all omitted | `parse` |
//! | `omitManagedFields` of a rule overrides the policy's | `evaluate` |
//! | A rule matches by users, groups, verbs, and resources with namespaces or non-resource URLs | `matches` |
//! | `pods` does not match subresources; `pods/log`, `pods/*`, `*/scale` and `*` do | `matches_name` |
//!
//! Upstream: `audit/policy/checker.go`, `apis/audit/validation`.

use crate::auth::non_resource_url_matches;
use evenkeel_api::forms::dns_subdomain;
use evenkeel_apimachinery::status::FieldError;
use evenkeel_apimachinery::user::User;
use serde::Deserialize;
use serde_json::Value;

/// Amount of information in the audit events of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// The request has no events.
    None,
    /// Metadata of the request, without bodies.
    Metadata,
    /// Metadata and the object of the request.
    Request,
    /// Metadata and the objects of the request and of the response.
    RequestResponse,
}

impl Level {
    const ALL: [Self; 4] = [Self::None, Self::Metadata, Self::Request, Self::RequestResponse];

    /// Returns the level's name in policies and events.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// Point in the handling of a request at which an event is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The user is known, and the request is not handled yet.
    RequestReceived,
    /// The response of a long-running request begins.
    ResponseStarted,
    /// The response is complete.
    ResponseComplete,
    /// A handler panicked.
    Panic,
}

impl Stage {
    const ALL: [Self; 4] =
        [Self::RequestReceived, Self::ResponseStarted, Self::ResponseComplete, Self::Panic];

    /// Returns the stage's name in policies and events.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

/// Attributes of a request that rules match, in addition to its user.
///
/// Upstream: `authorizer.Attributes`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AuditAttributes<'a> {
    pub(crate) verb: &'a str,
    /// Whether the request is for a resource. Otherwise it is for a non-resource URL.
    pub(crate) is_resource: bool,
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) path: &'a str,
}

/// Settings of the policy for one request.
///
/// Upstream: `RequestAuditConfig`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestAuditConfig {
    pub(crate) level: Level,
    pub(crate) omit_stages: Vec<Stage>,
    pub(crate) omit_managed_fields: bool,
}

/// Contents of an audit policy file. Absent strings and lists are empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PolicyFile {
    api_version: String,
    kind: String,
    rules: Vec<RuleFile>,
    omit_stages: Vec<String>,
    omit_managed_fields: bool,
}

/// Rule of a policy in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RuleFile {
    level: String,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    omit_stages: Vec<String>,
    omit_managed_fields: Option<bool>,
}

/// Resources of an API group that a rule matches.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

/// Parsed audit policy.
#[derive(Debug)]
pub(crate) struct AuditPolicy {
    /// Rules in the order of the file, each with its settings.
    rules: Vec<(RuleFile, RequestAuditConfig)>,
    /// Settings of requests that no rule matches.
    default_config: RequestAuditConfig,
}

impl AuditPolicy {
    /// Parses the contents of a `--audit-policy-file` (YAML or JSON). Unknown fields are ignored.
    ///
    /// Upstream: `LoadPolicyFromBytes`, `NewPolicyRuleEvaluator`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let document = evenkeel_apimachinery::decode::file(text.as_bytes())
            .map_err(|why| format!("failed decoding: {why}"))?;
        let policy: PolicyFile =
            serde_json::from_value(document).map_err(|why| format!("failed decoding: {why}"))?;
        if policy.api_version != "audit.k8s.io/v1" || policy.kind != "Policy" {
            return Err(format!(
                "unknown group version field {}, Kind={} in policy",
                policy.api_version, policy.kind
            ));
        }
        let errors: Vec<String> = validate(&policy).iter().map(ToString::to_string).collect();
        match errors.as_slice() {
            [] => {}
            [error] => return Err(error.clone()),
            errors => return Err(format!("[{}]", errors.join(", "))),
        }
        if policy.rules.is_empty() {
            return Err("loaded illegal policy with 0 rules".to_owned());
        }
        let default_config = RequestAuditConfig {
            level: Level::None,
            omit_stages: stages(&policy.omit_stages),
            omit_managed_fields: policy.omit_managed_fields,
        };
        let with_config = |rule: RuleFile| {
            let mut omit_stages = default_config.omit_stages.clone();
            omit_stages.extend(stages(&rule.omit_stages));
            let level = Level::ALL.into_iter().find(|level| level.as_str() == rule.level);
            let config = RequestAuditConfig {
                level: level.unwrap_or(Level::None),
                omit_stages,
                omit_managed_fields: rule.omit_managed_fields.unwrap_or(policy.omit_managed_fields),
            };
            (rule, config)
        };
        let rules = policy.rules.into_iter().map(with_config).collect();
        Ok(Self { rules, default_config })
    }

    /// Returns the settings of the first rule that matches a request. `user` is `None` if authentication failed.
    ///
    /// Upstream: `EvaluatePolicyRule`.
    pub(crate) fn evaluate(
        &self,
        user: Option<&User>,
        attributes: &AuditAttributes<'_>,
    ) -> &RequestAuditConfig {
        let matched = self.rules.iter().find(|(rule, _)| matches(rule, user, attributes));
        matched.map_or(&self.default_config, |(_, config)| config)
    }
}

/// Parses the names of stages. Ignores unknown names, which validation has refused.
fn stages(names: &[String]) -> Vec<Stage> {
    let named = |name: &String| Stage::ALL.into_iter().find(|stage| stage.as_str() == name);
    names.iter().filter_map(named).collect()
}

/// Returns whether a rule matches a request.
///
/// Upstream: `ruleMatches`.
fn matches(rule: &RuleFile, user: Option<&User>, attributes: &AuditAttributes<'_>) -> bool {
    let has = |list: &[String], value: &str| list.iter().any(|listed| listed == value);
    // An empty list of a rule matches everything.
    let matches_user =
        rule.users.is_empty() || user.is_some_and(|user| has(&rule.users, &user.name));
    let matches_group = rule.user_groups.is_empty()
        || user.is_some_and(|user| user.groups.iter().any(|group| has(&rule.user_groups, group)));
    let matches_verb = rule.verbs.is_empty() || has(&rule.verbs, attributes.verb);
    if !matches_user || !matches_group || !matches_verb {
        return false;
    }
    if !rule.namespaces.is_empty() || !rule.resources.is_empty() {
        return attributes.is_resource
            && (rule.namespaces.is_empty() || has(&rule.namespaces, attributes.namespace))
            && (rule.resources.is_empty()
                || rule
                    .resources
                    .iter()
                    .any(|resources| matches_resources(resources, attributes)));
    }
    rule.non_resource_urls.is_empty()
        || !attributes.is_resource
            && rule
                .non_resource_urls
                .iter()
                .any(|url| non_resource_url_matches(url, attributes.path))
}

/// Returns whether a request is for one of the resources. Without `resources`, all resources of the group match.
///
/// Upstream: `ruleMatchesResource`.
fn matches_resources(rule: &GroupResources, attributes: &AuditAttributes<'_>) -> bool {
    let has_name = rule.resource_names.is_empty()
        || rule.resource_names.iter().any(|name| name == attributes.name);
    (rule.group == attributes.group || rule.group == "*")
        && (rule.resources.is_empty()
            || has_name && rule.resources.iter().any(|pattern| matches_name(pattern, attributes)))
}

/// Returns whether a pattern such as `pods`, `pods/log`, `pods/*`, `*/scale` or `*` matches the request's resource and
/// subresource.
fn matches_name(pattern: &str, attributes: &AuditAttributes<'_>) -> bool {
    let (resource, subresource) = (attributes.resource, attributes.subresource);
    if pattern == "*" || pattern.strip_suffix("/*") == Some(resource) {
        return true;
    }
    if subresource.is_empty() {
        return pattern == resource;
    }
    match pattern.rsplit_once('/') {
        Some((resource_pattern, subresource_pattern)) => {
            subresource_pattern == subresource
                && (resource_pattern == "*" || resource_pattern == resource)
        }
        None => false,
    }
}

/// Requires known levels and stages. A rule may not apply to both resources and non-resource URLs.
///
/// Upstream: `ValidatePolicy`.
fn validate(policy: &PolicyFile) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_stages(&policy.omit_stages, "omitStages", &mut errors);
    for (index, rule) in policy.rules.iter().enumerate() {
        let path = format!("rules[{index}]");
        let levels = Level::ALL.map(Level::as_str);
        if rule.level.is_empty() {
            errors.push(FieldError::required(format!("{path}.level"), ""));
        } else if !levels.contains(&rule.level.as_str()) {
            let level = Value::from(rule.level.as_str());
            errors.push(FieldError::not_supported(format!("{path}.level"), level, &levels));
        }
        validate_urls(&rule.non_resource_urls, &path, &mut errors);
        validate_resources(&rule.resources, &path, &mut errors);
        validate_stages(&rule.omit_stages, &format!("{path}.omitStages"), &mut errors);
        let is_for_resources = !rule.resources.is_empty() || !rule.namespaces.is_empty();
        if is_for_resources && !rule.non_resource_urls.is_empty() {
            errors.push(FieldError::invalid(
                format!("{path}.nonResourceURLs"),
                Value::from(rule.non_resource_urls.as_slice()),
                "rules cannot apply to both regular resources and non-resource URLs",
            ));
        }
    }
    errors
}

fn validate_stages(names: &[String], path: &str, errors: &mut Vec<FieldError>) {
    let known = Stage::ALL.map(Stage::as_str);
    for (index, name) in names.iter().enumerate() {
        if !known.contains(&name.as_str()) {
            let why = format!("allowed stages are {}", known.join(","));
            errors.push(FieldError::invalid(format!("{path}[{index}]"), name.as_str(), why));
        }
    }
}

fn validate_urls(urls: &[String], path: &str, errors: &mut Vec<FieldError>) {
    for (index, url) in urls.iter().enumerate().filter(|(_, url)| *url != "*") {
        let field = format!("{path}.nonResourceURLs[{index}]");
        if !url.starts_with('/') {
            let why = "non-resource URL rules must begin with a '/' character";
            errors.push(FieldError::invalid(field.clone(), url.as_str(), why));
        }
        if url.char_indices().any(|(offset, c)| c == '*' && offset + 1 < url.len()) {
            let why = "non-resource URL wildcards '*' must be the final character of the rule";
            errors.push(FieldError::invalid(field, url.as_str(), why));
        }
    }
}

fn validate_resources(rules: &[GroupResources], path: &str, errors: &mut Vec<FieldError>) {
    for rule in rules {
        let group_errors = if matches!(rule.group.as_str(), "" | "*") {
            Vec::new()
        } else {
            dns_subdomain(&rule.group)
        };
        if !group_errors.is_empty() {
            let field = format!("{path}.resources.group");
            errors.push(FieldError::invalid(field, rule.group.as_str(), group_errors.join(",")));
        }
        if !rule.resource_names.is_empty() && rule.resources.is_empty() {
            errors.push(FieldError::invalid(
                format!("{path}.resources.resourceNames"),
                Value::from(rule.resource_names.as_slice()),
                "using resourceNames requires at least one resource",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn policy(rules: &Value) -> AuditPolicy {
        let text = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules,
            "omitStages": ["RequestReceived"], "omitManagedFields": true});
        AuditPolicy::parse(&text.to_string()).expect("a policy")
    }

    fn get<'a>(resource: &'a str, subresource: &'a str, name: &'a str) -> AuditAttributes<'a> {
        let (group, version, namespace) = ("", "v1", "ns");
        AuditAttributes {
            verb: "get",
            is_resource: true,
            group,
            version,
            resource,
            subresource,
            namespace,
            name,
            path: "/api",
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let policy = policy(&json!([
            {"level": "None", "users": ["system:probe"]},
            {"level": "RequestResponse", "userGroups": ["ops"], "omitManagedFields": false, "omitStages": ["Panic"]},
            {"level": "Request", "verbs": ["get"], "resources": [{"group": "", "resources": ["pods", "pods/log", "*/scale", "nodes/*"]}]},
            {"level": "Metadata", "resources": [{"group": "", "resources": ["configmaps"], "resourceNames": ["one"]}]},
            {"level": "Metadata", "namespaces": ["kube-system"]},
            {"level": "Metadata", "nonResourceURLs": ["/healthz*", "/version"]}
        ]));
        let probe = User::authenticated("system:probe", ["ops"]);
        let ann = User::authenticated("ann", []);
        let ops = User::authenticated("bob", ["ops"]);
        let path = |path| AuditAttributes { verb: "get", path, ..AuditAttributes::default() };
        let system = AuditAttributes { namespace: "kube-system", ..get("secrets", "", "s") };
        for (user, attributes, level) in [
            (&probe, get("pods", "", "p"), Level::None),
            (&ops, get("secrets", "", "s"), Level::RequestResponse),
            (&ann, get("pods", "", "p"), Level::Request),
            (&ann, get("pods", "log", "p"), Level::Request),
            (&ann, get("pods", "status", "p"), Level::None),
            (&ann, get("replicasets", "scale", "r"), Level::Request),
            (&ann, get("nodes", "proxy", "n"), Level::Request),
            (&ann, get("nodes", "", "n"), Level::Request),
            (&ann, AuditAttributes { verb: "list", ..get("pods", "", "") }, Level::None),
            (&ann, get("configmaps", "", "one"), Level::Metadata),
            (&ann, get("configmaps", "", "two"), Level::None),
            (&ann, AuditAttributes { group: "apps", ..get("configmaps", "", "one") }, Level::None),
            (&ann, system, Level::Metadata),
            (&ann, path("/healthz/etcd"), Level::Metadata),
            (&ann, path("/version"), Level::Metadata),
            (&ann, path("/versions"), Level::None),
        ] {
            assert_eq!(policy.evaluate(Some(user), &attributes).level, level, "{attributes:?}");
        }
        let unknown = policy.evaluate(None, &get("pods", "", "p"));
        assert_eq!((unknown.level, unknown.omit_managed_fields), (Level::Request, true));
        let config = policy.evaluate(Some(&ops), &path("/x"));
        assert_eq!(config.omit_stages, [Stage::RequestReceived, Stage::Panic]);
        assert!(!config.omit_managed_fields);
    }

    #[test]
    fn invalid_policies_are_refused_in_upstreams_words() {
        let parse = |rules: &Value, more: &Value| {
            let mut text =
                json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules});
            for (name, value) in more.as_object().expect("fields") {
                text[name] = value.clone();
            }
            AuditPolicy::parse(&text.to_string()).expect_err("invalid")
        };
        for (rules, more, want) in [
            (json!([]), json!({}), "loaded illegal policy with 0 rules"),
            (
                json!([{"level": "None"}]),
                json!({"kind": "Pod"}),
                "unknown group version field audit.k8s.io/v1, Kind=Pod in policy",
            ),
            (json!([{}]), json!({}), "rules[0].level: Required value"),
            (
                json!([{"level": "All"}]),
                json!({}),
                r#"rules[0].level: Unsupported value: "All": supported values: "None", "Metadata", "Request", "RequestResponse""#,
            ),
            (
                json!([{"level": "None", "nonResourceURLs": ["a", "/*/b"], "namespaces": ["x"]}]),
                json!({"omitStages": ["Never"]}),
                concat!(
                    r#"[omitStages[0]: Invalid value: "Never": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic, "#,
                    r#"rules[0].nonResourceURLs[0]: Invalid value: "a": non-resource URL rules must begin with a '/' character, "#,
                    r#"rules[0].nonResourceURLs[1]: Invalid value: "/*/b": non-resource URL wildcards '*' must be the final character of the rule, "#,
                    r#"rules[0].nonResourceURLs: Invalid value: ["a","/*/b"]: rules cannot apply to both regular resources and non-resource URLs]"#
                ),
            ),
            (
                json!([{"level": "None", "resources": [{"group": "a/v1", "resourceNames": ["x"]}]}]),
                json!({}),
                "rules[0].resources.group: Invalid value: \"a/v1\": a lowercase RFC 1123 subdomain",
            ),
        ] {
            let error = parse(&rules, &more);
            assert!(
                error.trim_start_matches('[').starts_with(want.trim_start_matches('[')),
                "{error}"
            );
        }
    }

    proptest! {
        /// If the first rule matches all attributes of a request, it decides, regardless of the other rules.
        #[test]
        fn an_exact_rule_in_front_decides(
            user in "[a-c]", verb in "get|list|create", resource in "pods|secrets", part in "|log|scale",
            others in prop::collection::vec(("None|Metadata|Request", "[a-c]", "pods|secrets|\\*"), 0..4),
        ) {
            let name = if part.is_empty() { resource.clone() } else { format!("{resource}/{part}") };
            let mut rules = vec![json!({"level": "RequestResponse", "users": [user], "verbs": [verb],
                "resources": [{"group": "", "resources": [name]}]})];
            rules.extend(others.iter().map(|(level, user, resource)| {
                json!({"level": level, "users": [user], "resources": [{"group": "", "resources": [resource]}]})
            }));
            let attributes = AuditAttributes { verb: &verb, ..get(&resource, &part, "x") };
            let user = User::authenticated(&user, []);
            let all = policy(&Value::from(rules));
            prop_assert_eq!(all.evaluate(Some(&user), &attributes).level, Level::RequestResponse);
            // Rules that do not match change nothing.
            let other = User::authenticated("z", []);
            prop_assert_eq!(all.evaluate(Some(&other), &attributes).level, Level::None);
        }
    }
}
