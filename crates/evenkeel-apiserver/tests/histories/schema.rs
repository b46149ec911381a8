//! Structural schemas by seed, and values of them. Most values are valid.

use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Map, Value, json};

/// Names of fields.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Returns a random schema for a kind: the schema of `spec`, and that of a fixed status.
pub(crate) fn generate(rng: &mut StdRng) -> Value {
    let mut spec = object(2, rng);
    // Old values of parts of an atomic map are not known.
    spec.as_object_mut().expect("a schema").remove("x-kubernetes-map-type");
    if rng.random_bool(0.5) {
        // The first field is a number that must not decrease.
        spec["properties"]["n"] = json!({"type": "integer", "default": 1, "x-kubernetes-validations": [
            {"rule": "self >= oldSelf", "message": "n only grows"}]});
    }
    if rng.random_bool(0.5) {
        let rule = json!({"rule": "!has(self.m) || self.m < 3", "messageExpression": "self.m > 3 ? 'm is huge' : 'm is large'", "reason": "FieldValueForbidden"});
        spec["properties"]["m"] = json!({"type": "integer", "minimum": 0});
        spec["x-kubernetes-validations"] = json!([rule]);
    }
    json!({"type": "object", "properties": {"spec": spec, "status": {"type": "object", "properties": {
        "number": {"type": "integer"},
        "conditions": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"], "items": {
            "type": "object", "required": ["type", "status"], "properties": {
                "type": {"type": "string"}, "status": {"type": "string"}, "reason": {"type": "string"},
                "message": {"type": "string"}, "lastTransitionTime": {"type": "string", "format": "date-time"}}}}}}}})
}

fn object(depth: usize, rng: &mut StdRng) -> Value {
    let mut schema = json!({"type": "object"});
    if rng.random_bool(0.2) {
        schema["x-kubernetes-preserve-unknown-fields"] = true.into();
    }
    let n_fields = rng.random_range(1..5);
    let names: Vec<&str> = NAMES.choose_multiple(rng, n_fields).copied().collect();
    let fields: Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), any(depth - 1, rng))).collect();
    if rng.random_bool(0.2) {
        schema["required"] = json!([names[0]]);
    }
    if rng.random_bool(0.15) {
        schema["x-kubernetes-map-type"] = "atomic".into();
    }
    schema["properties"] = fields.into();
    schema
}

fn any(depth: usize, rng: &mut StdRng) -> Value {
    let mut schema = match rng.random_range(0..if depth > 0 { 10 } else { 6 }) {
        0 | 1 => match rng.random_range(0..4) {
            0 => json!({"type": "string", "enum": ["x", "y"]}),
            1 => {
                json!({"type": "string", "maxLength": 3, "x-kubernetes-validations": [{"rule": "self != 'bad'"}]})
            }
            2 => json!({"type": "string", "default": "x"}),
            _ => json!({"type": "string", "pattern": "^[a-z]*$"}),
        },
        2 | 3 => match rng.random_range(0..4) {
            0 => json!({"type": "integer", "minimum": 0, "maximum": 5}),
            1 => json!({"type": "integer", "default": 2}),
            2 => json!({"type": "number"}),
            _ => json!({"x-kubernetes-int-or-string": true}),
        },
        4 => json!({"type": "boolean"}),
        5 => {
            json!({"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 3})
        }
        6 => {
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": crate::kinds::one(&["atomic", "set"], rng)})
        }
        7 => {
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "maxItems": 4, "items": {
            "type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": any(0, rng)}}})
        }
        _ => object(depth, rng),
    };
    if rng.random_bool(0.15) && schema.get("enum").is_none() && schema.get("type").is_some() {
        schema["nullable"] = true.into();
    }
    schema
}

/// Returns a random value of a schema, sometimes an invalid one.
pub(crate) fn sample(schema: &Value, rng: &mut StdRng) -> Value {
    if rng.random_bool(0.02) {
        return [json!(null), json!("other"), json!(7), json!([]), json!({})]
            .choose(rng)
            .expect("one")
            .clone();
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.choose(rng).expect("one").clone();
    }
    match schema["type"].as_str().unwrap_or_default() {
        "string" => (*["x", "y", "zz", "", "bad"].choose(rng).expect("one")).into(),
        "integer" => rng.random_range(-1..5).into(),
        "number" => [json!(1), json!(1.5), json!(-2)].choose(rng).expect("one").clone(),
        "boolean" => rng.random_bool(0.5).into(),
        "array" => {
            let n_items = rng.random_range(0..3);
            (0..n_items).map(|_| sample(&schema["items"], rng)).collect()
        }
        "object" => {
            let mut fields = Map::new();
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                let is_required =
                    schema["required"].as_array().is_some_and(|all| all.contains(&json!(name)));
                if is_required || rng.random_bool(0.6) {
                    let value = sample(field, rng);
                    fields.insert(name.clone(), value);
                }
            }
            if let Some(values) = schema.get("additionalProperties") {
                let value = sample(values, rng);
                fields.insert((*["p", "q", "r"].choose(rng).expect("one")).to_owned(), value);
            }
            if rng.random_bool(0.05) {
                fields.insert("unknown".to_owned(), json!({"u": [1, null]}));
            }
            fields.into()
        }
        _ => [json!(1), json!("50%")].choose(rng).expect("one").clone(),
    }
}
