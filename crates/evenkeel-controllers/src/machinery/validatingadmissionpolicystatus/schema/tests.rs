use super::*;
use evenkeel_cel::{
    Program,
    check::{Variable, check},
};
use serde_json::json;

/// Returns the result of an expression's type check with a `T` of this schema: the name of its type, or its error's first
/// line without the location.
fn checked(schemas: &Value, expression: &str) -> String {
    let document = json!({"components": {"schemas": schemas}}).to_string();
    let document = Document::parse(document.as_bytes()).unwrap();
    let kind = GroupVersionKind { group: "g".into(), version: "v1".into(), kind: "T".into() };
    let object = document.type_of(&kind, "T7").unwrap();
    let program = Program::parse(expression).unwrap();
    let checked = check(&program, &[Variable::new("object", object)]);
    checked.map_or_else(
        |error| {
            let line = error.lines().next().unwrap_or_default();
            line.splitn(4, ": ").last().unwrap_or_default().to_owned()
        },
        |checked| checked.kind().declared_name(),
    )
}

/// Returns the schemas of a document whose `T` has these properties.
fn with_properties(properties: &Value) -> Value {
    json!({
        "t": {"type": "object", "properties": properties, KINDS_EXTENSION: [
            {"group": "other", "version": "v1", "kind": "T"},
            {"group": "g", "version": "v1", "kind": "T"},
        ]},
        "text": {"type": "string"},
        "node": {"type": "object", "properties": {
            "name": {"$ref": "#/components/schemas/text"},
            "next": {"allOf": [{"$ref": "#/components/schemas/node"}], "default": {}},
        }},
    })
}

#[test]
fn fields_have_the_types_of_their_schemas() {
    let reference = json!({"allOf": [{"$ref": "#/components/schemas/node"}], "description": "d"});
    let schemas = with_properties(&json!({
        "b": {"type": "boolean"}, "i": {"type": "integer"}, "n": {"type": "number"},
        "s": {"type": "string"}, "bytes": {"type": "string", "format": "byte"},
        "time": {"type": "string", "format": "date-time"},
        "duration": {"type": "string", "format": "duration"},
        "several": {"type": ["string", "null"]},
        "both": {"x-kubernetes-int-or-string": true},
        "either": {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"},
        "union": {"oneOf": [{"type": "number"}, {"type": "string"}]},
        "list": {"type": "array", "items": reference},
        "listOfUnknown": {"type": "array", "items": {}}, "listWithoutItems": {"type": "array"},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "any": {"type": "object", "additionalProperties": true},
        "node": reference, "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "in": {"type": "string"}, "a-b": {"type": "string"}, "0": {"type": "string"},
        "embedded": {"type": "object", "x-kubernetes-embedded-resource": true, "properties":
            {"spec": {"type": "integer"}}},
    }));
    for (expression, want) in [
        ("object", "T7"),
        ("object.b", "bool"),
        ("object.i", "int"),
        ("object.n", "double"),
        ("object.s", "string"),
        ("object.bytes", "bytes"),
        ("object.time", "google.protobuf.Timestamp"),
        ("object.duration", "google.protobuf.Duration"),
        ("object.several", "string"),
        ("object.both", "dyn"),
        ("object.either", "dyn"),
        ("object.union", "undefined field 'union'"),
        ("object.list", "list(T7.list.@idx)"),
        ("object.list[0].name", "string"),
        ("object.listOfUnknown", "undefined field 'listOfUnknown'"),
        ("object.listWithoutItems", "undefined field 'listWithoutItems'"),
        ("object.map", "map(string, int)"),
        ("object.any", "T7.any"),
        ("object.any.x", "undefined field 'x'"),
        ("object.raw.x", "undefined field 'x'"),
        ("object.node.next", "T7.node.next"),
        ("object.node.next.name", "undefined field 'name'"),
        ("object.__in__", "string"),
        ("object.a__dash__b", "string"),
        ("object.nope", "undefined field 'nope'"),
        // Every resource has these, also if its schema does not declare them.
        ("object.kind", "string"),
        ("object.metadata.generateName", "string"),
        ("object.metadata.labels", "undefined field 'labels'"),
        ("object.embedded.apiVersion", "string"),
        ("object.embedded.spec", "int"),
        ("object.raw.kind", "undefined field 'kind'"),
    ] {
        assert_eq!(checked(&schemas, expression), want, "{expression}");
    }
}

#[test]
fn declared_metadata_is_kept() {
    let text = json!({"type": "string"});
    let metadata = |name: &Value| {
        with_properties(&json!({"kind": text, "apiVersion": text, "metadata": {
            "type": "object",
            "properties": {"name": name, "generateName": text, "generation": {"type": "integer"}},
        }}))
    };
    let generation = "object.metadata.generation";
    let reference = json!({"$ref": "#/components/schemas/text"});
    assert_eq!(checked(&metadata(&text), generation), "int");
    assert_eq!(checked(&metadata(&reference), generation), "int");
    let incomplete = checked(&metadata(&json!({"type": "integer"})), generation);
    assert_eq!(incomplete, "undefined field 'generation'");
}

#[test]
fn unreadable_kinds_have_no_type() {
    let kind = |kind: &str| GroupVersionKind {
        group: "g".into(),
        version: "v1".into(),
        kind: kind.into(),
    };
    let parse = |schemas: &Value| {
        Document::parse(json!({"components": {"schemas": schemas}}).to_string().as_bytes()).unwrap()
    };
    let has_type =
        |schemas: &Value, name: &str| parse(schemas).type_of(&kind(name), name).is_some();
    assert!(has_type(&with_properties(&json!({})), "T"));
    assert!(!has_type(&with_properties(&json!({})), "U"), "no such kind");
    let dangling = with_properties(&json!({"x": {"$ref": "#/components/schemas/gone"}}));
    assert!(!has_type(&dangling, "T"), "a reference that leads nowhere");

    // Each schema refers to the next one twice.
    let mut doubling = with_properties(&json!({"x": {"$ref": "#/components/schemas/s0"}}));
    for n in 0..40 {
        let next = json!({"$ref": format!("#/components/schemas/s{}", n + 1)});
        doubling[format!("s{n}")] = json!({"type": "object", "properties": {"a": next, "b": next}});
    }
    doubling["s40"] = json!({"type": "string"});
    assert!(!has_type(&doubling, "T"), "too large");

    let mut chain = with_properties(&json!({"x": {"$ref": "#/components/schemas/s0"}}));
    for n in 0..200 {
        let next = json!({"$ref": format!("#/components/schemas/s{}", n + 1)});
        chain[format!("s{n}")] = json!({"type": "object", "properties": {"a": next}});
    }
    chain["s200"] = json!({"type": "string"});
    assert!(!has_type(&chain, "T"), "too deep");

    for bytes in ["", "[]", "{}", r#"{"components": {}}"#, r#"{"components": {"schemas": 1}}"#] {
        assert!(Document::parse(bytes.as_bytes()).is_none(), "{bytes}");
    }
}
