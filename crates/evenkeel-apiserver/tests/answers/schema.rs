//! The OpenAPI v3 schemas of upstream's server, and the places in an object that can be changed.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// All schemas by name.
#[derive(Default)]
pub(crate) struct Schemas(BTreeMap<String, Value>);

/// A place in an object: a JSON pointer, and the schema of its present or possible value.
pub(crate) struct Site<'s> {
    pub(crate) pointer: String,
    pub(crate) schema: &'s Value,
}

impl Schemas {
    /// Adds the schemas of a group's document.
    pub(crate) fn add(&mut self, document: &Value) {
        for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
            self.0.insert(name.clone(), schema.clone());
        }
    }

    /// Returns the schema of a kind.
    pub(crate) fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Value> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.0.values().find(|schema| {
            let kinds = schema["x-kubernetes-group-version-kind"].as_array();
            let own = json!({"group": group, "version": version, "kind": kind});
            // Types of all groups, such as DeleteOptions, have several.
            kinds.is_some_and(|kinds| *kinds == [own])
        })
    }

    /// Returns the schema that a reference refers to, or the schema itself.
    pub(crate) fn resolve<'s>(&'s self, schema: &'s Value) -> &'s Value {
        let reference = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
        let name = reference.and_then(|reference| reference.rsplit('/').next());
        name.and_then(|name| self.0.get(name)).unwrap_or(schema)
    }

    /// Returns every place in an object, present or not.
    pub(crate) fn sites<'s>(&'s self, object: &Value, schema: &'s Value) -> Vec<Site<'s>> {
        let mut sites = Vec::new();
        self.visit(Some(object), schema, "", &mut sites);
        sites.remove(0);
        sites
    }

    fn visit<'s>(
        &'s self,
        value: Option<&Value>,
        schema: &'s Value,
        pointer: &str,
        sites: &mut Vec<Site<'s>>,
    ) {
        let resolved = self.resolve(schema);
        // The enumeration, if any, is beside a reference.
        sites.push(Site { pointer: pointer.to_owned(), schema: resolved });
        let Some(value) = value else { return };
        match value {
            Value::Object(fields) => {
                for (name, schema) in resolved["properties"].as_object().into_iter().flatten() {
                    self.visit(
                        fields.get(name),
                        schema,
                        &format!("{pointer}/{}", escape(name)),
                        sites,
                    );
                }
                if let Some(schema) = resolved.get("additionalProperties") {
                    for (name, value) in fields {
                        self.visit(
                            Some(value),
                            schema,
                            &format!("{pointer}/{}", escape(name)),
                            sites,
                        );
                    }
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.visit(
                        Some(item),
                        &resolved["items"],
                        &format!("{pointer}/{index}"),
                        sites,
                    );
                }
            }
            _ => {}
        }
    }

    /// Returns a small value that is valid for a schema.
    pub(crate) fn sample(&self, schema: &Value, depth: usize) -> Value {
        let schema = self.resolve(schema);
        if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
            return first.clone();
        }
        match type_of(schema) {
            "string" if schema["format"] == "date-time" => json!("2026-01-01T00:00:00Z"),
            "string" if schema["format"] == "byte" => json!("YQ=="),
            "string" => json!("a"),
            "integer" | "number" => json!(1),
            "boolean" => json!(true),
            "int-or-string" => json!(1),
            "array" if depth > 0 => json!([self.sample(&schema["items"], depth - 1)]),
            "array" => json!([]),
            "object" if depth > 0 => {
                let required = schema["required"].as_array().into_iter().flatten();
                let fields = required.filter_map(Value::as_str).map(|name| {
                    (name.to_owned(), self.sample(&schema["properties"][name], depth - 1))
                });
                let mut fields: serde_json::Map<String, Value> = fields.collect();
                if let Some(values) = schema.get("additionalProperties") {
                    fields.insert("a".to_owned(), self.sample(values, depth - 1));
                }
                Value::Object(fields)
            }
            _ => json!({}),
        }
    }
}

/// Returns the type of a schema: `string`, `integer`, `number`, `boolean`, `array`, `object` or `int-or-string`.
pub(crate) fn type_of(schema: &Value) -> &str {
    if schema["format"] == "int-or-string" || schema.get("oneOf").is_some() {
        return "int-or-string";
    }
    schema["type"].as_str().unwrap_or("object")
}

fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
