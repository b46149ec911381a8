//! FlowSchemas and PriorityLevelConfigurations, parsed for the classification of requests.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | The matching FlowSchema with the lowest matchingPrecedence applies; the name breaks ties | `digest_schemas` |
//! | A FlowSchema without an existing priority level is ignored and gets the condition `Dangling` | `digest_schemas`, `dangling_condition` |
//! | `exempt` and `catch-all` always exist | `digest`, `digest_schemas` |
//! | `distinguisherMethod`: ByUser, ByNamespace | `Distinguisher` |
//! | `limited`: shares, lending, borrowing, queues, handSize, queueLengthLimit; `exempt` | `parse_level` |

use evenkeel_apimachinery::value::{get, int, list, text};
use serde_json::{Value, json};

use super::allocation::Shares;
use super::queueset::Queuing;
use super::rule::Rule;
use super::sharding::Dealer;

/// Mandatory FlowSchema that matches all requests, and its mandatory priority level.
pub(super) const CATCH_ALL: &str = "catch-all";
/// Mandatory FlowSchema of `system:masters`, and its mandatory priority level without a limit.
pub(super) const EXEMPT: &str = "exempt";
/// Default of `matchingPrecedence`.
const DEFAULT_PRECEDENCE: i64 = 1000;

/// Distinguisher of the flows in a FlowSchema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Distinguisher {
    /// All requests are one flow.
    None,
    /// One flow for each user.
    User,
    /// One flow for each namespace.
    Namespace,
}

/// FlowSchema in the form that classifies requests.
#[derive(Debug)]
pub(super) struct Schema {
    pub(super) name: Box<str>,
    pub(super) uid: Box<str>,
    /// Name of the priority level.
    pub(super) level: Box<str>,
    pub(super) distinguisher: Distinguisher,
    pub(super) rules: Vec<Rule>,
}

/// PriorityLevelConfiguration in the form that limits requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Level {
    pub(super) name: Box<str>,
    pub(super) uid: Box<str>,
    pub(super) shares: Shares,
    pub(super) queuing: Queuing,
    /// `handSize`; 0 for a level without queues.
    pub(super) hand_size: usize,
}

/// Configuration that [`digest`] parsed from all stored objects.
#[derive(Debug, Default)]
pub(super) struct Digest {
    pub(super) levels: Vec<Level>,
    /// Schemas in matching order.
    pub(super) schemas: Vec<Schema>,
    /// Reasons why objects are ignored.
    pub(super) problems: Vec<String>,
}

/// Parses the objects, drops broken levels and adds missing mandatory ones.
///
/// Upstream: `lockAndDigestConfigObjects`.
pub(super) fn digest(schema_objects: &[Value], level_objects: &[Value]) -> Digest {
    let mut digest = Digest::default();
    for object in level_objects {
        match parse_level(object) {
            Some(level) => digest.levels.push(level),
            None => digest.problems.push(format!(
                "Ignoring PriorityLevelConfiguration object {} because its spec is broken",
                text(object, "metadata.name")
            )),
        }
    }
    let mandatory_level = |name: &str, nominal, queuing| Level {
        name: name.into(),
        uid: "".into(),
        shares: Shares { nominal, lendable_percent: 0, borrowing_limit_percent: None },
        queuing,
        hand_size: 0,
    };
    for mandatory in [
        mandatory_level(EXEMPT, 0, Queuing::Exempt),
        mandatory_level(CATCH_ALL, 5, Queuing::Reject),
    ] {
        if !digest.levels.iter().any(|level| level.name == mandatory.name) {
            digest.levels.push(mandatory);
        }
    }
    digest_schemas(schema_objects, &mut digest);
    digest
}

/// Parses a PriorityLevelConfiguration. Returns `None` if its spec is broken.
///
/// Upstream: `queueSetCompleterForPL`.
fn parse_level(object: &Value) -> Option<Level> {
    let number = |path: &str| int(object, path).and_then(|number| u32::try_from(number).ok());
    let size = |path: &str| number(path).map(|number| number as usize);
    let name = text(object, "metadata.name");
    let (section, queuing) = match (text(object, "spec.type"), name) {
        ("Exempt", EXEMPT) => ("spec.exempt", Queuing::Exempt),
        ("Limited", name) if name != EXEMPT => {
            let response = "spec.limited.limitResponse";
            let queuing = match text(object, &format!("{response}.type")) {
                "Reject" => Queuing::Reject,
                "Queue" => {
                    let queuing_size = |field: &str| size(&format!("{response}.queuing.{field}"));
                    let queues = queuing_size("queues")?;
                    let dealer = Dealer::new(queues, queuing_size("handSize")?)?;
                    let length_limit = queuing_size("queueLengthLimit")?;
                    Queuing::Queue { queues, dealer, length_limit }
                }
                _ => return None,
            };
            ("spec.limited", queuing)
        }
        _ => return None,
    };
    let shares = Shares {
        nominal: number(&format!("{section}.nominalConcurrencyShares")).unwrap_or_default(),
        lendable_percent: number(&format!("{section}.lendablePercent")).unwrap_or_default(),
        borrowing_limit_percent: number(&format!("{section}.borrowingLimitPercent")),
    };
    let hand_size = size("spec.limited.limitResponse.queuing.handSize").unwrap_or_default();
    let uid = text(object, "metadata.uid").into();
    Some(Level { name: name.into(), uid, shares, queuing, hand_size })
}

/// Sorts the FlowSchemas by precedence and drops those whose priority level does not exist.
///
/// Upstream: `digestFlowSchemasLocked`, `FlowSchemaSequence`.
fn digest_schemas(objects: &[Value], digest: &mut Digest) {
    let Digest { levels, schemas, problems } = digest;
    let mut ordered: Vec<(i64, &Value)> = objects
        .iter()
        .map(|object| {
            (int(object, "spec.matchingPrecedence").unwrap_or(DEFAULT_PRECEDENCE), object)
        })
        .collect();
    ordered.sort_by_key(|(precedence, object)| (*precedence, text(object, "metadata.name")));
    for (_, object) in ordered {
        let name = text(object, "metadata.name");
        let level = text(object, "spec.priorityLevelConfiguration.name");
        if !levels.iter().any(|existing| &*existing.name == level) {
            continue;
        }
        let rules = get(object, "spec.rules").filter(|rules| !rules.is_null());
        let rules = match rules.cloned().map(serde_json::from_value) {
            None => Vec::new(),
            Some(Ok(rules)) => rules,
            Some(Err(error)) => {
                problems.push(format!("Ignoring FlowSchema object {name}: spec.rules: {error}"));
                continue;
            }
        };
        let distinguisher = match text(object, "spec.distinguisherMethod.type") {
            "ByUser" => Distinguisher::User,
            "ByNamespace" => Distinguisher::Namespace,
            _ => Distinguisher::None,
        };
        let uid = text(object, "metadata.uid").into();
        schemas.push(Schema { name: name.into(), uid, level: level.into(), distinguisher, rules });
    }
    let is_missing = |schemas: &[Schema], name| !schemas.iter().any(|schema| &*schema.name == name);
    let mandatory = |name: &str, distinguisher, rules: Value| Schema {
        name: name.into(),
        uid: "".into(),
        level: name.into(),
        distinguisher,
        rules: serde_json::from_value(rules).unwrap_or_default(),
    };
    if is_missing(schemas, EXEMPT) {
        let exempt =
            mandatory(EXEMPT, Distinguisher::None, json!([match_all_rule(&["system:masters"])]));
        schemas.insert(0, exempt);
    }
    if is_missing(schemas, CATCH_ALL) {
        let all_requests = match_all_rule(&["system:unauthenticated", "system:authenticated"]);
        schemas.push(mandatory(CATCH_ALL, Distinguisher::User, json!([all_requests])));
    }
}

/// Returns a rule that matches all requests of the groups.
fn match_all_rule(groups: &[&str]) -> Value {
    let subjects: Vec<Value> =
        groups.iter().map(|name| json!({"kind": "Group", "group": {"name": name}})).collect();
    json!({
        "subjects": subjects,
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    })
}

/// Returns the condition `Dangling`, which reports whether the FlowSchema's priority level exists. Returns `None` if
/// the FlowSchema already has this condition.
///
/// Upstream: `presyncFlowSchemaStatus`.
pub(crate) fn dangling_condition(schema: &Value, levels: &[Value], now: &str) -> Option<Value> {
    let level_name = text(schema, "spec.priorityLevelConfiguration.name");
    let exists = levels
        .iter()
        .any(|object| text(object, "metadata.name") == level_name && parse_level(object).is_some());
    let reference = format!(
        "This FlowSchema references the PriorityLevelConfiguration object named {level_name:?}"
    );
    let [status, reason, message] = if exists {
        ["False", "Found", &format!("{reference} and it exists")]
    } else {
        ["True", "NotFound", &format!("{reference} but there is no such object")]
    };
    let old = list(schema, "status.conditions")
        .iter()
        .find(|condition| text(condition, "type") == "Dangling");
    if let Some(old) = old
        && [text(old, "status"), text(old, "reason"), text(old, "message")]
            == [status, reason, message]
    {
        return None;
    }
    Some(json!({
        "type": "Dangling",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    }))
}

#[cfg(test)]
mod tests {
    use evenkeel_apimachinery::user::User;
    use evenkeel_apimachinery::value::set;
    use http::Method;

    use super::*;
    use crate::request::{Query, RequestInfo};

    /// Returns a FlowSchema with one rule.
    fn schema(name: &str, precedence: i64, level: &str, rule: &Value) -> Value {
        json!({"metadata": {"name": name, "uid": format!("of-{name}")}, "spec": {"matchingPrecedence": precedence,
            "priorityLevelConfiguration": {"name": level}, "rules": [rule]}})
    }

    /// Returns a rule for resources. Without namespaces, it matches only cluster-scoped requests.
    fn rule(subject: &Value, verbs: &[&str], resources: &[&str], namespaces: &[&str]) -> Value {
        json!({"subjects": [subject], "resourceRules": [{"verbs": verbs, "apiGroups": ["*"], "resources": resources,
            "clusterScope": namespaces.is_empty(), "namespaces": namespaces}]})
    }

    /// Returns a limited PriorityLevelConfiguration without queues.
    fn reject(name: &str) -> Value {
        json!({"metadata": {"name": name, "uid": name}, "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}}}})
    }

    /// Returns the name of the schema that matches a request; empty if none matches.
    fn matching_schema(user: &User, method: &str, path: &str) -> String {
        let user_of = |name: &str| json!({"kind": "User", "user": {"name": name}});
        let group_of = |name: &str| json!({"kind": "Group", "group": {"name": name}});
        let accounts =
            json!({"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "a"}});
        let paths = json!({"subjects": [group_of("*")], "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/logs/*"]}]});
        let schemas = vec![
            schema("catch-all", 10_000, "low", &json!({})),
            schema("later", 200, "low", &rule(&user_of("ann"), &["*"], &["*"], &[])),
            schema(
                "leases",
                100,
                "high",
                &rule(&user_of("*"), &["get", "update"], &["leases"], &["a"]),
            ),
            schema(
                "approval",
                100,
                "high",
                &rule(&group_of("g"), &["*"], &["things/status"], &["*"]),
            ),
            schema("accounts", 300, "low", &rule(&accounts, &["*"], &["*"], &["*"])),
            schema("dangling", 1, "none", &rule(&user_of("*"), &["*"], &["*"], &["*"])),
            schema("paths", 50, "low", &paths),
        ];
        let schemas = digest(&schemas, &[reject("low"), reject("high")]).schemas;
        let query = Query::parse(None);
        let method: Method = method.parse().expect("a method");
        let info = RequestInfo::of(&method, path, &query);
        let covers =
            |s: &&Schema| s.rules.iter().any(|rule| rule.matches_policy_rule(user, &info, path));
        schemas.iter().find(covers).map_or("", |schema| &schema.name).to_owned()
    }

    #[test]
    fn the_matching_schema_with_the_lowest_precedence_applies() {
        let ann = User::authenticated("ann", ["g"]);
        let account = |name: &str| User::authenticated(name, []);
        let web = account("system:serviceaccount:a:web");
        for (user, method, path, want) in [
            (&ann, "GET", "/apis/g/v1/namespaces/a/leases/x", "leases"),
            (&ann, "GET", "/apis/g/v1/namespaces/b/leases/x", ""),
            (&ann, "DELETE", "/apis/g/v1/namespaces/a/leases/x", ""),
            (&ann, "GET", "/api/v1/nodes/x", "later"),
            (&ann, "PUT", "/apis/g/v1/namespaces/b/things/x/status", "approval"),
            (&ann, "PUT", "/apis/g/v1/namespaces/b/things/x", ""),
            (&web, "PUT", "/apis/g/v1/namespaces/b/things/x", "accounts"),
            (&account("system:serviceaccount:ab:web"), "GET", "/api/v1/namespaces/b/pods/x", ""),
            (&ann, "GET", "/healthz", "paths"),
            (&ann, "GET", "/healthz/etcd", "paths"),
            (&ann, "GET", "/healthzz", ""),
            (&ann, "GET", "/logs/a/b", "paths"),
            (&ann, "POST", "/healthz", ""),
        ] {
            assert_eq!(matching_schema(user, method, path), want, "{} {method} {path}", user.name);
        }
    }

    #[test]
    fn broken_levels_are_ignored_and_missing_mandatory_ones_are_added() {
        let queue = |hand: u32| {
            let mut level = reject("queue");
            set(
                &mut level,
                "spec.limited.limitResponse",
                json!({"type": "Queue",
                "queuing": {"queues": 64, "handSize": hand, "queueLengthLimit": 50}}),
            );
            level
        };
        let mut unlimited = reject("unlimited");
        set(&mut unlimited, "spec.type", "Exempt");
        let found = digest(&[], &[queue(6), unlimited, queue(70), reject(EXEMPT)]);
        let names: Vec<&str> = found.levels.iter().map(|level| &*level.name).collect();
        assert_eq!(names, ["queue", EXEMPT, CATCH_ALL]);
        assert_eq!(found.problems.len(), 3, "{:?}", found.problems);
        let names: Vec<&str> = found.schemas.iter().map(|schema| &*schema.name).collect();
        assert_eq!(names, [EXEMPT, CATCH_ALL]);
    }

    #[test]
    fn the_condition_dangling_says_whether_the_level_exists() {
        let mut schema = schema("s", 1, "low", &json!({}));
        let gone = dangling_condition(&schema, &[], "then").expect("a condition");
        assert_eq!(
            gone,
            json!({"type": "Dangling", "status": "True", "reason": "NotFound",
            "lastTransitionTime": "then", "message": "This FlowSchema references the PriorityLevelConfiguration object named \"low\" but there is no such object"})
        );
        schema["status"]["conditions"] = json!([gone]);
        assert_eq!(dangling_condition(&schema, &[], "later"), None);
        let found = dangling_condition(&schema, &[reject("low")], "later").expect("a condition");
        assert_eq!(
            found,
            json!({"type": "Dangling", "status": "False", "reason": "Found",
            "lastTransitionTime": "later", "message": "This FlowSchema references the PriorityLevelConfiguration object named \"low\" and it exists"})
        );
    }
}
