use super::*;

/// Asserts the errors of `base` with this name and one changed field, which null removes. With an old object, it is
/// an update.
fn check(
    kind: &str,
    name: &str,
    base: &Value,
    (field, value): (&str, Value),
    expected: &[&str],
    old: Option<&Value>,
) {
    let mut object = base.clone();
    object["metadata"]["name"] = name.into();
    match value {
        Value::Null => drop(evenkeel_apimachinery::value::remove(&mut object, field)),
        value => {
            let pointer = format!("/{}", field.replace('.', "/"));
            *object.pointer_mut(&pointer).expect(field) = value;
        }
    }
    let mut errors = Errors::default();
    match old {
        Some(old) => update(kind, &object, old, &mut errors),
        None => create(kind, &object, &mut errors),
    }
    let found: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
    assert_eq!(found, expected, "{object}");
}

/// Returns a valid FlowSchema.
fn schema() -> Value {
    json!({"metadata": {}, "spec": {
        "priorityLevelConfiguration": {"name": "l"}, "matchingPrecedence": 9000, "distinguisherMethod": {"type": "ByUser"},
        "rules": [{"subjects": [{"kind": "User", "user": {"name": "u"}}],
            "resourceRules": [{"verbs": ["get"], "apiGroups": ["*"], "resources": ["pods"], "namespaces": ["n"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["/a/*"]}]}]},
        "status": {"conditions": [{"type": "Dangling"}]}})
}

#[test]
fn flow_schemas_are_validated() {
    // RULE stands for the path of the rule.
    let rule = "spec.rules[0]";
    let table: [(&str, Value, &[&str]); 16] = [
        ("spec.matchingPrecedence", json!(9000), &[]),
        (
            "spec.matchingPrecedence",
            json!(-1),
            &["spec.matchingPrecedence: Invalid value: -1: must be a positive value"],
        ),
        (
            "spec.matchingPrecedence",
            json!(1),
            &[
                "spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1",
            ],
        ),
        (
            "spec.distinguisherMethod.type",
            json!("x"),
            &[
                r#"spec.distinguisherMethod.type: Unsupported value: {"Type":"x"}: supported values: "ByNamespace", "ByUser""#,
            ],
        ),
        (
            "spec.priorityLevelConfiguration.name",
            json!(""),
            &[
                "spec.priorityLevelConfiguration.name: Required value: must reference a priority level",
            ],
        ),
        (
            "spec.rules.0.subjects",
            json!([]),
            &["RULE.subjects: Required value: subjects must contain at least one value"],
        ),
        (
            "spec.rules.0.subjects.0.kind",
            json!("Nobody"),
            &[
                r#"RULE.subjects[0].kind: Unsupported value: "Nobody": supported values: "Group", "ServiceAccount", "User""#,
            ],
        ),
        (
            "spec.rules.0.subjects.0.kind",
            json!("Group"),
            &[
                "RULE.subjects[0].group: Required value: group is required when subject kind is 'Group'",
                "RULE.subjects[0].user: Forbidden: user is forbidden when subject kind is not 'User'",
            ],
        ),
        (
            "spec.rules.0.subjects.0",
            json!({"kind": "ServiceAccount", "serviceAccount": {"name": "*"}}),
            &[
                "RULE.subjects[0].serviceAccount.namespace: Required value: must specify namespace for service account",
            ],
        ),
        (
            "spec.rules.0.resourceRules.0.verbs",
            json!(["*", "get"]),
            &[
                r#"RULE.resourceRules[0].verbs: Invalid value: ["*","get"]: if '*' is present, must not specify other verbs"#,
            ],
        ),
        (
            "spec.rules.0.resourceRules.0.namespaces",
            json!([]),
            &[
                "RULE.resourceRules[0].namespaces: Required value: resource rules that are not cluster scoped must supply at least one namespace",
            ],
        ),
        (
            "spec.rules.0.nonResourceRules.0.nonResourceURLs.0",
            json!("/a*"),
            &[
                r#"RULE.nonResourceRules[0].nonResourceURLs[0]: Invalid value: "/a*": wildcard can only do suffix matching"#,
            ],
        ),
        (
            "spec.rules.0.nonResourceRules.0.nonResourceURLs",
            json!(["*", "/"]),
            &[
                r#"RULE.nonResourceRules[0].nonResourceURLs: Invalid value: ["*","/"]: if '*' is present, must not specify other non-resource URLs"#,
            ],
        ),
        (
            "spec.rules.0",
            json!({"subjects": [{"kind": "User", "user": {"name": "u"}}]}),
            &[
                "RULE: Required value: at least one of resourceRules and nonResourceRules has to be non-empty",
            ],
        ),
        (
            "status.conditions",
            json!([{"type": "a"}, {"type": "a"}]),
            &[r#"status.conditions[1].type: Duplicate value: "a""#],
        ),
        ("status.conditions", json!([{}]), &["status.conditions[0].type: Required value"]),
    ];
    for (field, value, expected) in table {
        let expected: Vec<String> =
            expected.iter().map(|line| line.replace("RULE", rule)).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check("FlowSchema", "x", &schema(), (field, value), &expected, None);
    }
}

#[test]
fn specs_of_mandatory_objects_are_fixed() {
    let fixed = |name: &str| json!({"metadata": {}, "spec": mandatory_flow_schema(name)});
    for name in ["exempt", "catch-all"] {
        let field = "spec.matchingPrecedence";
        let precedence = fixed(name)["spec"]["matchingPrecedence"].clone();
        check("FlowSchema", name, &fixed(name), (field, precedence), &[], None);
        let mut errors = Errors::default();
        let mut changed = fixed(name);
        changed["metadata"]["name"] = name.into();
        changed["spec"]["matchingPrecedence"] = 5.into();
        flow_schema(&changed, &mut errors);
        let errors = errors.into_vec();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(errors[0].field, "spec");
    }
    let level =
        json!({"metadata": {}, "spec": {"type": "Exempt", "exempt": {"lendablePercent": 5}}});
    let lent = "spec.exempt.lendablePercent";
    check("PriorityLevelConfiguration", "exempt", &level, (lent, json!(7)), &[], None);
}

#[test]
fn priority_levels_are_validated() {
    let kind = "PriorityLevelConfiguration";
    let base = json!({"metadata": {}, "spec": {"type": "Limited", "limited": {
        "nominalConcurrencyShares": 1, "lendablePercent": 5, "borrowingLimitPercent": 1,
        "limitResponse": {"type": "Queue", "queuing": {"queues": 64, "handSize": 6, "queueLengthLimit": 50}}}}});
    let unsupported = r#"spec.type: Unsupported value: "x": supported values: "Exempt", "Limited""#;
    let table: [(&str, Value, &[&str]); 13] = [
        ("spec.type", json!("Limited"), &[]),
        ("spec.type", json!("x"), &[unsupported, "spec.limited: Forbidden"]),
        ("spec.type", json!(""), &["spec.limited: Forbidden", "spec.type: Required value"]),
        (
            "spec.type",
            json!("Exempt"),
            &[
                r#"spec.type: Invalid value: "Exempt": must be 'Exempt' if and only if `name` is 'exempt'"#,
                "spec.limited: Forbidden",
            ],
        ),
        ("spec.limited", Value::Null, &["spec.limited: Required value"]),
        (
            "spec.limited.nominalConcurrencyShares",
            json!(-1),
            &[
                "spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer",
            ],
        ),
        (
            "spec.limited.lendablePercent",
            json!(101),
            &[
                "spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
            ],
        ),
        (
            "spec.limited.borrowingLimitPercent",
            json!(-1),
            &[
                "spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-negative integer",
            ],
        ),
        (
            "spec.limited.limitResponse.type",
            json!("Reject"),
            &["spec.limited.limitResponse.queuing: Forbidden"],
        ),
        (
            "spec.limited.limitResponse.queuing",
            Value::Null,
            &["spec.limited.limitResponse.queuing: Required value"],
        ),
        (
            "spec.limited.limitResponse.queuing.handSize",
            json!(65),
            &[
                "spec.limited.limitResponse.queuing.handSize: Invalid value: 65: should not be greater than queues (64)",
            ],
        ),
        (
            "spec.limited.limitResponse.queuing.handSize",
            json!(11),
            &[
                "spec.limited.limitResponse.queuing.handSize: Invalid value: 11: required entropy bits of deckSize 64 and handSize 11 should not be greater than 60",
            ],
        ),
        (
            "spec.limited.limitResponse.queuing.queues",
            json!(-1),
            &[
                "spec.limited.limitResponse.queuing.queues: Invalid value: -1: must be positive",
                "spec.limited.limitResponse.queuing.handSize: Invalid value: 6: should not be greater than queues (-1)",
            ],
        ),
    ];
    for (field, value, expected) in table {
        check(kind, "x", &base, (field, value), expected, None);
    }
    // An unchanged union is not validated again.
    let mut old = base.clone();
    old["spec"]["limited"]["limitResponse"]["type"] = "Reject".into();
    let (field, value) = ("spec.limited.limitResponse.type", json!("Reject"));
    check(kind, "x", &base, (field, value), &[], Some(&old));
}
