use super::*;
use serde_json::json;

/// Validates `base` with changed fields, given by path, as an update if there is an old object. Returns the errors.
fn check(kind: &str, base: &Value, changes: &[(&str, Value)], old: Option<&Value>) -> Vec<String> {
    let mut object = base.clone();
    for (field, value) in changes {
        let pointer = format!("/{}", field.replace('.', "/"));
        let (parent, name) = pointer.rsplit_once('/').expect("a path");
        let parent = object.pointer_mut(parent).expect(field);
        match name.parse::<usize>() {
            Ok(index) => parent[index] = value.clone(),
            Err(_) => parent[name] = value.clone(),
        }
    }
    let mut errors = Errors::default();
    match old {
        Some(old) => update(kind, &object, old, &mut errors),
        None => create(kind, &object, &mut errors),
    }
    errors.into_vec().iter().map(ToString::to_string).collect()
}

/// Asserts that `base` is valid, and the errors of `base` with each of the changes.
fn table(kind: &str, base: &Value, rows: &[(&str, Value, &[&str])]) {
    assert_eq!(check(kind, base, &[], None), Vec::<String>::new());
    for (field, value, expected) in rows {
        let change = [(*field, value.clone())];
        assert_eq!(check(kind, base, &change, None), *expected, "{field} = {value}");
    }
}

/// Returns a valid rule with operations.
fn rule() -> Value {
    json!({"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["a"], "scope": "*"})
}

/// Returns a valid configuration with one webhook.
fn webhooks() -> Value {
    json!({"metadata": {"name": "x"}, "webhooks": [{
        "name": "a.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 5,
        "clientConfig": {"url": "https://example.com/m"}, "rules": [rule()], "failurePolicy": "Fail",
        "matchConditions": [{"name": "c", "expression": "true"}]}]})
}

#[test]
fn webhook_configurations_are_validated() {
    let hook = webhooks()["webhooks"][0].clone();
    table(
        "MutatingWebhookConfiguration",
        &webhooks(),
        &[
            ("webhooks.0.name", json!(""), &["webhooks[0].name: Required value"]),
            (
                "webhooks.0.name",
                json!("b.c"),
                &[
                    r#"webhooks[0].name: Invalid value: "b.c": should be a domain with at least three segments separated by dots"#,
                ],
            ),
            (
                "webhooks",
                json!([hook, hook]),
                &[r#"webhooks[1].name: Duplicate value: "a.example.com""#],
            ),
            (
                "webhooks.0.sideEffects",
                json!("Some"),
                &[
                    r#"webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun""#,
                ],
            ),
            (
                "webhooks.0.sideEffects",
                Value::Null,
                &[
                    "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
                ],
            ),
            (
                "webhooks.0.failurePolicy",
                json!(""),
                &[
                    r#"webhooks[0].failurePolicy: Unsupported value: "": supported values: "Fail", "Ignore""#,
                ],
            ),
            (
                "webhooks.0.timeoutSeconds",
                json!(31),
                &[
                    "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
                ],
            ),
            (
                "webhooks.0.reinvocationPolicy",
                json!("x"),
                &[
                    r#"webhooks[0].reinvocationPolicy: Unsupported value: "x": supported values: "IfNeeded", "Never""#,
                ],
            ),
            (
                "webhooks.0.admissionReviewVersions",
                json!(["v2", "v2"]),
                &[
                    r#"webhooks[0].admissionReviewVersions[1]: Invalid value: "v2": duplicate version"#,
                    r#"webhooks[0].admissionReviewVersions: Invalid value: ["v2","v2"]: must include at least one of v1, v1beta1"#,
                ],
            ),
            (
                "webhooks.0.matchConditions",
                json!([{"expression": " "}, {"name": "c", "expression": "true"}, {"name": "c", "expression": "1"}]),
                &[
                    "webhooks[0].matchConditions[0].expression: Required value",
                    "webhooks[0].matchConditions[0].name: Required value",
                    r#"webhooks[0].matchConditions[2].name: Duplicate value: "c""#,
                ],
            ),
            (
                "metadata.name",
                json!("x.static.k8s.io"),
                &[
                    r#"metadata.name: Invalid value: "x.static.k8s.io": names ending with ".static.k8s.io" are reserved for static manifest-based configurations and cannot be managed via the API"#,
                ],
            ),
        ],
    );
}

#[test]
fn an_update_may_keep_invalid_values_of_the_old_webhooks() {
    let kind = "ValidatingWebhookConfiguration";
    let mut old = webhooks();
    old["webhooks"][0]["sideEffects"] = "Some".into();
    old["webhooks"][0]["admissionReviewVersions"] = json!(["v2"]);
    old["webhooks"][0]["matchConditions"][0]["name"] = "".into();
    let second = old["webhooks"][0].clone();
    old["webhooks"].as_array_mut().expect("a list").push(second);
    assert_eq!(check(kind, &old, &[], Some(&old)), Vec::<String>::new());
    let changed = [("webhooks.0.matchConditions.0.expression", json!("false"))];
    let name = "matchConditions[0].name: Required value";
    assert_eq!(
        check(kind, &old, &changed, Some(&old)),
        [format!("webhooks[0].{name}"), format!("webhooks[1].{name}")]
    );
}

#[test]
fn rules_of_webhooks_are_validated() {
    let in_rule = |field: &str| format!("webhooks.0.rules.0.{field}");
    // RULE stands for the path of the rule.
    let rows: [(&str, Value, &[&str]); 9] = [
        ("operations", json!([]), &["RULE.operations: Required value"]),
        (
            "operations",
            json!(["*", "GET"]),
            &[
                r#"RULE.operations: Invalid value: ["*","GET"]: if '*' is present, must not specify other operations"#,
                r#"RULE.operations[1]: Unsupported value: "GET": supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE""#,
            ],
        ),
        (
            "apiGroups",
            json!(["*", "a"]),
            &[
                r#"RULE.apiGroups: Invalid value: ["*","a"]: if '*' is present, must not specify other API groups"#,
            ],
        ),
        ("apiVersions", json!(["v1", ""]), &["RULE.apiVersions[1]: Required value"]),
        ("resources", json!(["", "a"]), &["RULE.resources[0]: Required value"]),
        (
            "resources",
            json!(["a/*", "a/b", "*/b", "c/b"]),
            &[
                r#"RULE.resources[1]: Invalid value: "a/b": if 'a/*' is present, must not specify a/b"#,
                r#"RULE.resources[3]: Invalid value: "c/b": if '*/b' is present, must not specify c/b"#,
            ],
        ),
        (
            "resources",
            json!(["*/*", "a/b"]),
            &[
                r#"RULE.resources: Invalid value: ["*/*","a/b"]: if '*/*' is present, must not specify other resources"#,
            ],
        ),
        (
            "resources",
            json!(["*", "a"]),
            &[
                r#"RULE.resources: Invalid value: ["*","a"]: if '*' is present, must not specify other resources without subresources"#,
            ],
        ),
        (
            "scope",
            json!("x"),
            &[
                r#"RULE.scope: Unsupported value: "x": supported values: "*", "Cluster", "Namespaced""#,
            ],
        ),
    ];
    for (field, value, expected) in rows {
        let changes = [(&*in_rule(field), value)];
        let found = check("ValidatingWebhookConfiguration", &webhooks(), &changes, None);
        let expected: Vec<String> =
            expected.iter().map(|line| line.replace("RULE", "webhooks[0].rules[0]")).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn client_configurations_are_validated() {
    let service =
        |path: &str| json!({"service": {"name": "s", "namespace": "n", "port": 443, "path": path}});
    let rows: [(Value, &[&str]); 12] = [
        (json!({}), &[": Required value: exactly one of url or service is required"]),
        (
            json!({"url": "http://a@b?c#d"}),
            &[
                r#".url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]"#,
                r#".url: Invalid value: "a": user information is not permitted in the URL"#,
                r#".url: Invalid value: "d": fragments are not permitted in the URL"#,
                r#".url: Invalid value: "c": query parameters are not permitted in the URL"#,
            ],
        ),
        (
            json!({"url": "a"}),
            &[
                r#".url: Invalid value: "": 'https' is the only allowed URL scheme; desired format: https://host[/path]"#,
                r#".url: Invalid value: "": host must be specified; desired format: https://host[/path]"#,
            ],
        ),
        (
            json!({"url": "::1"}),
            &[
                r#".url: Required value: url must be a valid URL: parse "::1": missing protocol scheme; desired format: https://host[/path]"#,
            ],
        ),
        (
            json!({"url": "https://a b/"}),
            &[
                r#".url: Required value: url must be a valid URL: parse "https://a b/": invalid character " " in host name; desired format: https://host[/path]"#,
            ],
        ),
        (
            json!({"url": "https://a:b/%"}),
            &[
                r#".url: Required value: url must be a valid URL: parse "https://a:b/%": invalid port ":b" after host; desired format: https://host[/path]"#,
            ],
        ),
        (
            json!({"url": "https://[::1]:443/%2"}),
            &[
                r#".url: Required value: url must be a valid URL: parse "https://[::1]:443/%2": invalid URL escape "%2"; desired format: https://host[/path]"#,
            ],
        ),
        (
            json!({"service": {"name": "s", "port": 0}}),
            &[
                ".service.name: Required value",
                ".service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
            ],
        ),
        (service("/a/b/"), &[]),
        (service("//"), &[r#".service.path: Invalid value: "//": segment[0] may not be empty"#]),
        (service("ab"), &[r#".service.path: Invalid value: "ab": must start with a '/'"#]),
        (
            service("/a//b"),
            &[r#".service.path: Invalid value: "/a//b": segment[1] may not be empty"#],
        ),
    ];
    for (config, expected) in rows {
        let change = [("webhooks.0.clientConfig", config)];
        let found = check("ValidatingWebhookConfiguration", &webhooks(), &change, None);
        let expected: Vec<String> =
            expected.iter().map(|line| format!("webhooks[0].clientConfig{line}")).collect();
        assert_eq!(found, expected);
    }
}

/// Returns valid match constraints.
fn resources() -> Value {
    json!({"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, "resourceRules": [rule()]})
}

#[test]
fn validating_policies_are_validated() {
    let base = json!({"metadata": {"name": "x"}, "spec": {
        "failurePolicy": "Fail", "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "matchConstraints": resources(),
        "variables": [{"name": "v", "expression": "1"}], "validations": [{"expression": "true"}],
        "auditAnnotations": [{"key": "k", "valueExpression": "'v'"}]}});
    table(
        "ValidatingAdmissionPolicy",
        &base,
        &[
            (
                "spec.failurePolicy",
                json!("x"),
                &[
                    r#"spec.failurePolicy: Unsupported value: "x": supported values: "Fail", "Ignore""#,
                ],
            ),
            ("spec.matchConstraints", Value::Null, &["spec.matchConstraints: Required value"]),
            (
                "spec.matchConstraints.resourceRules",
                json!([]),
                &["spec.matchConstraints.resourceRules: Required value"],
            ),
            (
                "spec.matchConstraints.resourceRules.0.resourceNames",
                json!(["a", "a", "."]),
                &[
                    r#"spec.matchConstraints.resourceRules[0].resourceNames[1]: Duplicate value: "a""#,
                    r#"spec.matchConstraints.resourceRules[0].resourceNames[2]: Invalid value: ".": may not be '.'"#,
                ],
            ),
            (
                "spec.paramKind",
                json!({"apiVersion": "a/b/c"}),
                &[
                    r#"spec.paramKind.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c"#,
                    "spec.paramKind.kind: Required value",
                ],
            ),
            (
                "spec.paramKind.apiVersion",
                json!("a/"),
                &[r#"spec.paramKind.apiVersion: Invalid value: "a/": version must be specified"#],
            ),
            (
                "spec.variables.0",
                json!({"name": "for"}),
                &[
                    r#"spec.variables[0].name: Invalid value: "for": must be a valid CEL identifier"#,
                    "spec.variables[0].expression: Required value: expression is not specified",
                ],
            ),
            (
                "spec.validations.0",
                json!({"expression": "", "messageExpression": " ", "message": "a\nb", "reason": "x"}),
                &[
                    "spec.validations[0].expression: Required value: expression is not specified",
                    r#"spec.validations[0].messageExpression: Invalid value: " ": must be non-empty if specified"#,
                    r#"spec.validations[0].message: Invalid value: "a\nb": must not contain line breaks"#,
                    r#"spec.validations[0].reason: Unsupported value: "x": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge""#,
                ],
            ),
            (
                "spec.auditAnnotations",
                json!([{"key": "k"}, {"key": "k", "valueExpression": "'v'"}]),
                &[
                    "spec.auditAnnotations[0].valueExpression: Required value: valueExpression is not specified",
                    r#"spec.auditAnnotations[1].key: Duplicate value: "k""#,
                ],
            ),
        ],
    );
    let empty = [("spec.validations", json!([])), ("spec.auditAnnotations", json!([]))];
    let found = check("ValidatingAdmissionPolicy", &base, &empty, None);
    let detail = "Required value: validations or auditAnnotations must contain at least one item";
    assert_eq!(
        found,
        [format!("spec.validations: {detail}"), format!("spec.auditAnnotations: {detail}")]
    );
}

#[test]
fn mutating_policies_are_validated() {
    let base = json!({"metadata": {"name": "x"}, "spec": {
        "failurePolicy": "Fail", "matchConstraints": resources(), "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}]}});
    table(
        "MutatingAdmissionPolicy",
        &base,
        &[
            (
                "spec.matchConstraints.resourceRules.0.operations",
                json!(["DELETE"]),
                &[
                    r#"spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE""#,
                ],
            ),
            (
                "spec.mutations",
                json!([]),
                &["spec.mutations: Required value: mutations must contain at least one item"],
            ),
            (
                "spec.mutations.0.patchType",
                json!("ApplyConfiguration"),
                &[
                    "spec.mutations[0].applyConfiguration: Required value: must be specified when patchType is ApplyConfiguration",
                    r#"spec.mutations[0].jsonPatch: Invalid value: "{jsonPatch}": must not be specified when patchType is ApplyConfiguration"#,
                ],
            ),
            (
                "spec.mutations.0.patchType",
                json!("x"),
                &[
                    r#"spec.mutations[0].patchType: Unsupported value: "x": supported values: "ApplyConfiguration", "JSONPatch""#,
                ],
            ),
            ("spec.reinvocationPolicy", json!(""), &["spec.reinvocationPolicy: Required value"]),
        ],
    );
}

#[test]
fn bindings_of_policies_are_validated() {
    let kind = "ValidatingAdmissionPolicyBinding";
    let base = json!({"metadata": {"name": "x"}, "spec": {"policyName": "p", "validationActions": ["Deny"],
        "paramRef": {"name": "a", "parameterNotFoundAction": "Deny"}, "matchResources": resources()}});
    table(
        kind,
        &base,
        &[
            ("spec.policyName", json!(""), &["spec.policyName: Required value"]),
            ("spec.validationActions", json!([]), &["spec.validationActions: Required value"]),
            (
                "spec.validationActions",
                json!(["Deny", "Deny", "x"]),
                &[
                    r#"spec.validationActions[1]: Duplicate value: "Deny""#,
                    r#"spec.validationActions[2]: Unsupported value: "x": supported values: "Audit", "Deny", "Warn""#,
                ],
            ),
            (
                "spec.validationActions",
                json!(["Deny", "Warn"]),
                &[
                    r#"spec.validationActions: Invalid value: ["Deny","Warn"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"#,
                ],
            ),
            (
                "spec.paramRef.selector",
                json!({}),
                &[
                    "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
                    "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
                ],
            ),
            (
                "spec.paramRef",
                json!({"parameterNotFoundAction": "x"}),
                &[
                    "spec.paramRef: Required value: one of name or selector must be specified",
                    r#"spec.paramRef.parameterNotFoundAction: Unsupported value: "x": supported values: "Deny", "Allow""#,
                ],
            ),
            (
                "spec.matchResources.matchPolicy",
                Value::Null,
                &["spec.matchResources.matchPolicy: Required value"],
            ),
        ],
    );
    let mut old = base.clone();
    old["spec"]["validationActions"] = json!([]);
    assert_eq!(
        check(kind, &old, &[], Some(&old)),
        Vec::<String>::new(),
        "unchanged actions may be missing"
    );
    let nameless = [("spec.policyName", json!(""))];
    let found = check("MutatingAdmissionPolicyBinding", &base, &nameless, None);
    assert_eq!(found, ["spec.policyName: Required value"]);
}

#[test]
fn statuses_of_policies_are_validated() {
    let now = "2026-01-01T00:00:00Z";
    let good = json!({"type": "a", "status": "True", "reason": "R", "lastTransitionTime": now});
    let rows: [(Value, &[&str]); 5] = [
        (json!({"conditions": [good]}), &[]),
        (json!({"conditions": [good, good]}), &[r#"status.conditions[1]: Duplicate value: "a""#]),
        (
            json!({"conditions": [{"observedGeneration": -1}]}),
            &[
                "status.conditions[0].type: Required value: is required",
                "status.conditions[0].status: Required value",
                "status.conditions[0].observedGeneration: Invalid value: -1: must be greater than or equal to zero",
                "status.conditions[0].lastTransitionTime: Required value",
                "status.conditions[0].reason: Required value",
            ],
        ),
        (
            json!({"typeChecking": {"expressionWarnings": [{"fieldRef": "spec.a"}, {"warning": "w"}]}}),
            &[
                "status.typeChecking.expressionWarnings[0].warning: Required value",
                "status.typeChecking.expressionWarnings[1].fieldRef: Required value",
            ],
        ),
        (
            json!({"typeChecking": {"expressionWarnings": [{"warning": "w", "fieldRef": "1.2.3"}, {"warning": "w", "fieldRef": ":"}]}}),
            &[
                r#"status.typeChecking.expressionWarnings[0].fieldRef: Invalid value: "1.2.3": invalid JSONPath: cannot parse number 1.2.3"#,
                r#"status.typeChecking.expressionWarnings[1].fieldRef: Invalid value: ":": invalid JSONPath: unrecognized character in action: U+003A ':'"#,
            ],
        ),
    ];
    for (status, expected) in rows {
        let mut errors = Errors::default();
        update_status("ValidatingAdmissionPolicy", &json!({"status": status}), &mut errors);
        let found: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }
}
