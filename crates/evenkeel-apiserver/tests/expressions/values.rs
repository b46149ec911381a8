//! Evaluation of expressions: rules of custom resources that show the results of generated expressions, and objects that break
//! all of them.

use http::Method;
use serde_json::{Value, json};

use crate::generate::{Generated, generated};
use crate::grammar::Kind;
use crate::parity::servers::{Answer, Connection, Sent};
use crate::places::{definition, said};
use crate::scopes::VALUE;

/// Expressions of one definition.
pub(crate) const COUNT: usize = 40;

/// Types whose values are printed, each with the expression that prints them; `$e` stands for the value.
const SHOWN: &[(Kind, &str)] = &[
    ("bool", "$e"),
    ("int", "$e"),
    ("int", "$e"),
    ("double", "$e"),
    ("string", "$e"),
    ("string", "$e"),
    ("bytes", "$e"),
    ("time", "$e"),
    ("duration", "$e"),
    ("ints", "$e"),
    ("strings", "$e"),
    ("texts", "$e"),
    ("any", "$e"),
    ("type", "$e"),
    ("uint", "$e"),
    ("optional", "($e).orValue(-1)"),
    ("ip", "string($e)"),
    ("cidr", "string($e)"),
    ("quantity", "($e).asApproximateFloat()"),
    ("semver", "[($e).major(), ($e).minor(), ($e).patch()]"),
    ("url", "[($e).getScheme(), ($e).getHost(), ($e).getEscapedPath()]"),
    ("format", "($e).validate('Ab c').orValue([])"),
];

/// Returns the expression of a seed.
pub(crate) fn expression(seed: u64) -> Generated {
    let (kind, form) = SHOWN[(seed % SHOWN.len() as u64) as usize];
    let generated = generated(seed, &VALUE, kind);
    Generated { source: form.replace("$e", &generated.source), ..generated }
}

/// Returns the definition of these expressions: a rule for each shows the error, or the message of the rule shows the
/// value.
pub(crate) fn define(name: &str, expressions: &[(usize, Generated)]) -> Value {
    let rule = |(i, one): &(usize, Generated)| {
        let source = &one.source;
        let rule = json!({"rule": format!("[{source}].size() == 0"), "messageExpression": format!("'%s'.format([{source}])")});
        (format!("p{i}"), rule)
    };
    definition(name, expressions.iter().map(rule))
}

/// Objects whose values the expressions read; the last one changes the first.
fn values() -> [Value; 3] {
    [
        json!({"s": "hello", "n": 7, "d": 2.5, "b": true, "li": [3, 1, 2], "ls": ["b", "a", "1"], "ms": {"a": "x", "b": "y"},
            "mi": {"a": 1, "b": 2}, "o": {"s": "in", "n": -1, "deep": {"x": 5}}, "lo": [{"k": "a", "v": 1}, {"k": "b", "v": 2}],
            "st": [1, 2], "t": "2024-02-29T12:30:45.5Z", "day": "2024-02-29", "du": "1h30m", "by": "YWI=", "io": "50%", "un": "é😀",
            "ul": ["x"], "a-b": "dash", "namespace": "ns", "e": "three"}),
        json!({"s": "", "n": -9223372036854775808i64, "d": -0.5, "b": false, "li": [], "ls": [], "ms": {}, "mi": {"a": 0}, "o": {},
            "lo": [], "st": [], "t": "0001-01-01T00:00:00Z", "day": "1970-01-01", "du": "0s", "by": "AA==", "io": 5, "un": "12"}),
        json!({"s": "world", "n": 8, "d": 1e21, "b": false, "li": [3, 1], "ls": ["z"], "ms": {"a": "x"}, "mi": {}, "o": {"s": "in"},
            "lo": [{"k": "b", "v": 2}, {"k": "a", "v": 1}], "st": [2, 1], "t": "2024-02-29T12:30:45.500Z", "day": "2024-03-01",
            "du": "-1ms", "by": "/w==", "io": 0, "un": "true", "ul": [], "a-b": "x", "namespace": "", "e": "one"}),
    ]
}

/// Sends the objects, and returns the part of each response about each expression.
pub(crate) async fn evaluate(
    connection: &mut Connection,
    name: &str,
    expressions: &[(usize, Generated)],
) -> Vec<Vec<Value>> {
    let path = format!("/apis/expressions.example.com/v1/{name}s");
    let mut all = Vec::new();
    for value in values() {
        let spec: serde_json::Map<String, Value> =
            expressions.iter().map(|(i, _)| (format!("p{i}"), value.clone())).collect();
        let object = json!({"apiVersion": "expressions.example.com/v1", "kind": format!("K{name}"),
            "metadata": {"name": "a"}, "spec": spec});
        let answer = connection.ask(&Sent::post(&path, object)).await;
        all.push(about(&answer, expressions));
    }
    all
}

fn about(answer: &Answer, expressions: &[(usize, Generated)]) -> Vec<Value> {
    // A property's name is the end of its path, or is followed by a part of it.
    expressions.iter().map(|(i, _)| said_exactly(answer, &format!("spec.p{i}"))).collect()
}

fn said_exactly(answer: &Answer, field: &str) -> Value {
    let mut only = Answer { code: answer.code, warnings: Vec::new(), body: answer.body.clone() };
    if let Some(causes) = only.body["details"]["causes"].as_array_mut() {
        causes.retain(|cause| cause["field"] == field);
        if causes.is_empty() {
            return json!({"code": 201, "text": []});
        }
    }
    said(&only, field)
}

/// Creates a definition, and waits until it is served.
pub(crate) async fn serve(connection: &mut Connection, name: &str, body: &Value) -> Answer {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let answer = connection.ask(&Sent::post(path, body.clone())).await;
    if answer.code == 201 {
        connection.until_served(&format!("/apis/expressions.example.com/v1/{name}s")).await;
    }
    answer
}

/// Deletes a definition.
pub(crate) async fn remove(connection: &mut Connection, name: &str) {
    let path = format!(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}s.expressions.example.com"
    );
    let sent = Sent { method: Method::DELETE, path, media: "application/json", body: Value::Null };
    connection.ask(&sent).await;
}
