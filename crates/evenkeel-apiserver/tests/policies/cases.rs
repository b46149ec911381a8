//! Policies, and the expected parts of the responses to Ann's and Bob's requests.

use serde_json::{Value, json};

/// Kind of policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Validating,
    Mutating,
}

/// A policy, in a namespace of its own.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) spec: Value,
    pub(crate) actions: &'static [&'static str],
    /// Part of the message, of the warnings or of the object's data.
    pub(crate) ann: &'static str,
    pub(crate) bob: &'static str,
}

const DATA: &str = r#"{"a":"1","b":"2"}"#;

fn validating(name: &'static str, spec: Value, [ann, bob]: [&'static str; 2]) -> Case {
    Case { name, kind: Kind::Validating, spec, actions: &["Deny"], ann, bob }
}

fn mutating(name: &'static str, spec: Value, [ann, bob]: [&'static str; 2]) -> Case {
    Case { name, kind: Kind::Mutating, spec, actions: &[], ann, bob }
}

/// Returns a policy that evaluates a string expression in a variable, and fails unless the string is `nothing`.
fn shown(text: &str) -> Value {
    json!({"variables": [{"name": "text", "expression": text}],
        "validations": [{"expression": format!("variables.text == 'nothing'"), "message": "m"}]})
}

fn valid(expression: &str) -> Value {
    json!({"validations": [{"expression": expression, "message": "no"}]})
}

fn patch(value: &str) -> Value {
    let expression = format!("[JSONPatch{{op: 'replace', path: '/data/a', value: {value}}}]");
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

/// Returns the cases whose policies are created last. When these policies take effect, all do.
pub(crate) fn last() -> Vec<Case> {
    vec![
        validating("last-validating", valid("false"), ["denied request", "denied request"]),
        mutating(
            "last-mutating",
            json!({"mutations": [patch("string(1 / int('0'))")]}),
            ["denied request", "denied request"],
        ),
    ]
}

pub(crate) fn all() -> Vec<Case> {
    let mut all = authorizations();
    all.extend(variables());
    all.extend(conditions());
    all.extend(mutations());
    all.extend(macros());
    all.extend(last());
    all
}

fn authorizations() -> Vec<Case> {
    let secret = "authorizer.group('').resource('secrets').namespace(object.metadata.namespace).check('get')";
    vec![
        validating("authz-resource", valid(&format!("{secret}.allowed()")), [DATA, "denied request: no"]),
        validating(
            "authz-path",
            valid("authorizer.path('/pages/1').check('get').allowed()"),
            [DATA, "denied request: no"],
        ),
        validating(
            "authz-request",
            valid("authorizer.requestResource.check('create').allowed() && authorizer.requestResource.namespace('').check('delete').allowed()"),
            [DATA, DATA],
        ),
        validating(
            "authz-account",
            valid("authorizer.serviceAccount(object.metadata.namespace, 'reader').group('').resource('secrets').namespace(object.metadata.namespace).name('x').check('get').allowed()"),
            [DATA, DATA],
        ),
        validating(
            "authz-account-other",
            valid("authorizer.serviceAccount('default', 'reader').group('').resource('secrets').namespace(object.metadata.namespace).check('get').allowed()"),
            ["denied request: no", "denied request: no"],
        ),
        validating(
            "authz-reason-ann",
            valid(&format!("{secret}.reason() == 'RBAC: allowed by RoleBinding \"secrets/authz-reason-ann\" of ClusterRole \"secrets\" to User \"ann\"'")),
            [DATA, "denied request: no"],
        ),
        validating(
            "authz-reason-bob",
            valid(&format!("{secret}.reason() == 'rbac: RBAC: clusterrole.rbac.authorization.k8s.io \"nowhere\" not found'")),
            ["denied request: no", DATA],
        ),
        validating(
            "authz-errors",
            valid(&format!("!{secret}.errored() && {secret}.error() == ''")),
            [DATA, DATA],
        ),
        validating(
            "authz-selectors",
            valid("authorizer.group('').resource('secrets').namespace(object.metadata.namespace).fieldSelector('a=b').labelSelector('c=d').check('get').allowed()"),
            [DATA, "denied request: no"],
        ),
        validating(
            "authz-subresource",
            valid("authorizer.group('').resource('configmaps').subresource('status').check('get').allowed()"),
            ["denied request: no", "denied request: no"],
        ),
        validating(
            "authz-three",
            valid("[1, 2, 3].all(x, authorizer.group('').resource('configmaps').name(string(x)).check('get').allowed())"),
            ["actual cost limit exceeded", "actual cost limit exceeded"].map(|_| {
                "denied request: expression '[1, 2, 3].all(x, authorizer.group('').resource('configmaps').name(string(x)).check('get').allowed())' resulted in error: operation cancelled: actual cost limit exceeded"
            }),
        ),
        validating("authz-empty-path", valid("authorizer.path(' ').check('get').allowed()"), ["denied request: expression 'authorizer.path(' ').check('get').allowed()' resulted in error: path must not be empty"; 2]),
        validating("authz-empty-resource", valid("authorizer.group('').resource('').check('get').allowed()"), ["resulted in error: resource must not be empty"; 2].map(|_| "denied request: expression 'authorizer.group('').resource('').check('get').allowed()' resulted in error: resource must not be empty")),
        validating(
            "authz-bad-account",
            valid("authorizer.serviceAccount('a.b', 'c').path('/a').check('get').allowed()"),
            ["denied request: expression 'authorizer.serviceAccount('a.b', 'c').path('/a').check('get').allowed()' resulted in error: Invalid service account namespace"; 2],
        ),
        validating(
            "authz-variable",
            json!({"variables": [{"name": "check", "expression": format!("{secret}.allowed()")}],
                "validations": [{"expression": "variables.check", "message": "no"}]}),
            [DATA, "denied request: no"],
        ),
        validating(
            "authz-condition",
            json!({"matchConditions": [{"name": "reader", "expression": format!("{secret}.allowed()")}],
                "validations": [{"expression": "false", "message": "no"}]}),
            ["denied request: no", DATA],
        ),
        mutating(
            "authz-mutation",
            json!({"mutations": [patch(&format!("{secret}.allowed() ? 'reader' : 'other'"))]}),
            [r#"{"a":"reader","b":"2"}"#, r#"{"a":"other","b":"2"}"#],
        ),
    ]
}

fn variables() -> Vec<Case> {
    let failing = json!({"name": "fails", "expression": "int(object.data.a) / 0"});
    vec![
        validating(
            "variables-unused",
            json!({"variables": [failing], "validations": [{"expression": "true || variables.fails > 0"}]}),
            [DATA, DATA],
        ),
        validating(
            "variables-used",
            json!({"variables": [failing], "validations": [{"expression": "variables.fails > 0"}]}),
            ["denied request: expression 'variables.fails > 0' resulted in error: composited variable \"fails\" fails to evaluate: division by zero";
                2],
        ),
        validating(
            "variables-nested",
            json!({"variables": [failing, {"name": "more", "expression": "variables.fails + 1"}, {"name": "fine", "expression": "2"}],
                "validations": [{"expression": "variables.fine == 2"}, {"expression": "variables.more > 0"}]}),
            ["denied request: expression 'variables.more > 0' resulted in error: composited variable \"more\" fails to evaluate: composited variable \"fails\" fails to evaluate: division by zero";
                2],
        ),
        validating(
            "variables-ignored",
            json!({"failurePolicy": "Ignore", "variables": [failing], "validations": [{"expression": "variables.fails > 0"}]}),
            [DATA, DATA],
        ),
        validating(
            "variables-message",
            json!({"variables": [failing, {"name": "who", "expression": "request.userInfo.username"}],
                "validations": [{"expression": "false", "messageExpression": "'it is ' + variables.who"}]}),
            ["denied request: it is ann", "denied request: it is bob"],
        ),
        validating(
            "variables-message-fails",
            json!({"variables": [failing],
                "validations": [{"expression": "false", "message": "else", "messageExpression": "string(variables.fails)"}]}),
            ["denied request: else"; 2],
        ),
        // A variable of an expensive check counts once.
        validating(
            "variables-once",
            json!({"variables": [{"name": "may", "expression": "authorizer.path('/pages/1').check('get').allowed()"}],
                "validations": vec![json!({"expression": "variables.may || variables.may || !variables.may"}); 40]}),
            [DATA, DATA],
        ),
        // Each of them costs an authorization check, and their sum exceeds the budget of the policy.
        validating(
            "variables-budget",
            json!({"validations": vec![json!({"expression": "authorizer.path('/pages/1').check('get').allowed() || true"}); 40]}),
            ["denied request: validation failed due to running out of cost budget, no further validation rules will be run";
                2],
        ),
        Case {
            actions: &["Warn"],
            ..validating(
                "variables-warn",
                shown("string(object.data.a + object.data.b)"),
                ["Validation failed for ValidatingAdmissionPolicy 'variables-warn' with binding 'variables-warn': m";
                    2],
            )
        },
        validating(
            "annotation-fails",
            json!({"variables": [failing], "validations": [{"expression": "true"}],
                "auditAnnotations": [{"key": "k", "valueExpression": "string(variables.fails)"}]}),
            ["denied request: expression 'string(variables.fails)' resulted in error: composited variable \"fails\" fails to evaluate: division by zero";
                2],
        ),
        validating(
            "annotation-null",
            json!({"validations": [{"expression": "true"}], "auditAnnotations": [{"key": "k", "valueExpression": "null"}]}),
            [DATA, DATA],
        ),
    ]
}

fn conditions() -> Vec<Case> {
    let condition = |name: &str, expression: &str| json!({"name": name, "expression": expression});
    let never = json!([{"expression": "false", "message": "no"}]);
    vec![
        validating(
            "condition-namespace",
            json!({"matchConditions": [condition("a", "namespaceObject == null")], "validations": never}),
            ["denied request: no"; 2],
        ),
        validating(
            "condition-fails",
            json!({"matchConditions": [condition("a", "1 / 0 == 1"), condition("b", "object.nope == 1")], "validations": never}),
            ["denied request: [expression '1 / 0 == 1' resulted in error: division by zero, expression 'object.nope == 1' resulted in error: no such key: nope]";
                2],
        ),
        validating(
            "condition-false",
            json!({"matchConditions": [condition("a", "1 / 0 == 1"), condition("b", "false")], "validations": never}),
            [DATA, DATA],
        ),
    ]
}

fn mutations() -> Vec<Case> {
    vec![
        mutating(
            "mutation-lazy",
            json!({"variables": [{"name": "fails", "expression": "1 / 0"}, {"name": "sum", "expression": "object.data.a + object.data.b"}],
                "mutations": [patch("variables.sum"), patch("variables.sum + (true || variables.fails > 0 ? '!' : '')")]}),
            [r#"{"a":"122!","b":"2"}"#; 2],
        ),
        mutating(
            "mutation-fails",
            json!({"mutations": [patch("string(1 / int(object.data.b) / 0)"), patch("object.nope")]}),
            ["denied request: expression '[JSONPatch{op: 'replace', path: '/data/a', value: string(1 / int(object.data.b) / 0)}]' resulted in error: division by zero";
                2],
        ),
        mutating(
            "mutation-ignored",
            json!({"failurePolicy": "Ignore", "mutations": [patch("'x'"), patch("object.nope"), patch("object.data.a + 'y'")]}),
            [r#"{"a":"xy","b":"2"}"#; 2],
        ),
    ]
}

fn macros() -> Vec<Case> {
    let all = json!({"validations": [
        {"expression": "object.data.all(k, v, k != v)"},
        {"expression": "object.data.exists(k, v, k == 'b' && v == '2')"},
        {"expression": "object.data.existsOne(k, v, v == '1')"},
        {"expression": "['x', 'y'].transformList(i, v, v + string(i)) == ['x0', 'y1']"},
        {"expression": "['x', 'y'].transformList(i, v, i > 0, v) == ['y']"},
        {"expression": "object.data.transformMap(k, v, v + '!')['a'] == '1!'"},
        {"expression": "object.data.transformMap(k, v, k == 'b', v).size() == 1"},
        {"expression": "object.data.transformMapEntry(k, v, {v: k}) == {'1': 'a', '2': 'b'}"},
        {"expression": "isURL('https://a:1/b?c') && !isURL('a b') && !isURL('http://a b/') && isURL('mailto:a@b')"},
        {"expression": "url('HTTP://u@[::1]:80/a%20b?c=d&c=e#f').getScheme() == 'http'"},
        {"expression": "url('http://u@[::1]:80/a%20b?c=d&c=e#f').getHostname() == '::1'"},
        {"expression": "url('http://u@[::1]:80/a b?c=d&c=e#f').getEscapedPath() == '/a%20b'"},
        {"expression": "url('http://u@[::1]:80/a b?c=d&c=e&f=%zz').getQuery() == {'c': ['d', 'e']}"},
    ]});
    let fails = |name, expression: &str, message: &'static str| {
        validating(name, json!({"validations": [{"expression": expression}]}), [message; 2])
    };
    vec![
        validating("macros-two", all, [DATA, DATA]),
        fails(
            "macros-repeated",
            "object.data.transformMapEntry(k, v, {'x': k}).size() == 1",
            "denied request: expression 'object.data.transformMapEntry(k, v, {'x': k}).size() == 1' resulted in error: insert failed: key x already exists",
        ),
        fails(
            "url-host",
            "url('http://a b/').getHost() == 'x'",
            "denied request: expression 'url('http://a b/').getHost() == 'x'' resulted in error: URL parse error during conversion from string: parse \"http://a b/\": invalid character \" \" in host name",
        ),
        fails(
            "url-port",
            "url('http://a:b:1/').getHost() == 'x'",
            "denied request: expression 'url('http://a:b:1/').getHost() == 'x'' resulted in error: URL parse error during conversion from string: parse \"http://a:b:1/\": invalid port \":b:1\" after host",
        ),
    ]
}
