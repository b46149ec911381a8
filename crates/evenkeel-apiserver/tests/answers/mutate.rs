//! Changes of a valid object: each field absent, empty, null, of another type, at and beyond bounds, twice.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Value, json};

use crate::schema::{Schemas, Site, type_of};

/// A change at a place of an object.
#[derive(Debug, Clone)]
pub(crate) struct Mutation {
    pub(crate) pointer: String,
    pub(crate) change: Change,
}

#[derive(Debug, Clone)]
pub(crate) enum Change {
    Remove,
    Set(Value),
}

impl Mutation {
    /// Returns a random change at a random place in an object.
    pub(crate) fn random(
        object: &Value,
        schema: &Value,
        schemas: &Schemas,
        rng: &mut StdRng,
    ) -> Self {
        let sites = schemas.sites(object, schema);
        // Half of the changes are to fields that the object has, because most fields of a kind are absent.
        let there: Vec<&Site<'_>> =
            sites.iter().filter(|site| object.pointer(&site.pointer).is_some()).collect();
        let all: Vec<&Site<'_>> = sites.iter().collect();
        let pool = if rand::Rng::random_bool(rng, 0.6) { &there } else { &all };
        Self::of_site(pool, object, schemas, rng).expect("an object has fields")
    }

    /// Returns a random change at a random place below the JSON pointer `prefix`; `None` if there is no such place.
    pub(crate) fn inside(
        prefix: &str,
        object: &Value,
        schema: &Value,
        schemas: &Schemas,
        rng: &mut StdRng,
    ) -> Option<Self> {
        let sites = schemas.sites(object, schema);
        let below: Vec<&Site<'_>> =
            sites.iter().filter(|site| site.pointer.starts_with(prefix)).collect();
        Self::of_site(&below, object, schemas, rng)
    }

    /// Returns a random change at a random site; `None` without sites.
    fn of_site(
        sites: &[&Site<'_>],
        object: &Value,
        schemas: &Schemas,
        rng: &mut StdRng,
    ) -> Option<Self> {
        let site = sites.choose(rng)?;
        let changes = changes(object.pointer(&site.pointer), site.schema, schemas);
        Some(Self { pointer: site.pointer.clone(), change: changes.choose(rng)?.clone() })
    }

    /// Changes an object. Does nothing if the place no longer exists.
    pub(crate) fn apply(&self, object: &mut Value) {
        let Some((parent, name)) = self.pointer.rsplit_once('/') else { return };
        let name = name.replace("~1", "/").replace("~0", "~");
        match (object.pointer_mut(parent), &self.change) {
            (Some(Value::Object(fields)), Change::Remove) => drop(fields.remove(&name)),
            (Some(Value::Object(fields)), Change::Set(value)) => {
                fields.insert(name, value.clone());
            }
            (Some(Value::Array(items)), change) => {
                let Some(index) = name.parse().ok().filter(|index| *index < items.len()) else {
                    return;
                };
                match change {
                    Change::Remove => drop(items.remove(index)),
                    Change::Set(value) => items[index] = value.clone(),
                }
            }
            _ => {}
        }
    }

    /// Returns the change as an operation of a JSON patch.
    pub(crate) fn operation(&self) -> Value {
        match &self.change {
            Change::Remove => json!({"op": "remove", "path": self.pointer}),
            Change::Set(value) => json!({"op": "add", "path": self.pointer, "value": value}),
        }
    }

    /// Returns the place, with `*` for every index, and the kind of change. Equal changes of different items have one
    /// class.
    pub(crate) fn class(&self) -> String {
        let place: Vec<&str> = self
            .pointer
            .split('/')
            .skip(1)
            .map(|name| if name.parse::<usize>().is_ok() { "*" } else { name })
            .collect();
        let what = match &self.change {
            Change::Remove => "removed".to_owned(),
            Change::Set(value) => value.to_string().chars().take(60).collect(),
        };
        format!("{} = {what}", place.join("."))
    }
}

fn changes(value: Option<&Value>, schema: &Value, schemas: &Schemas) -> Vec<Change> {
    let mut values = vec![Value::Null, schemas.sample(schema, 3)];
    values.extend(schema["enum"].as_array().into_iter().flatten().cloned());
    match type_of(schema) {
        "string" => values.extend(strings(schema)),
        "integer" | "number" => values.extend(numbers()),
        "boolean" => values.extend([json!(true), json!(false), json!("true"), json!(1)]),
        "int-or-string" => values.extend(
            [-1, 0, 1, 65_535, 65_536].map(Value::from).into_iter().chain(
                ["", "1", "101%", "-5%", "50%", "http", "a_b", "1.5", "abcdefghijklmnop", "1Ki"]
                    .map(Value::from),
            ),
        ),
        "array" => {
            values.extend([json!([]), json!({}), json!("a"), json!([null])]);
            if let Some(Value::Array(items)) = value {
                values.extend(
                    items.first().map(|item| [items.clone(), vec![item.clone()]].concat().into()),
                );
                let more = schemas.sample(&schema["items"], 2);
                values.push([items.clone(), vec![more]].concat().into());
                values.push(items.iter().rev().cloned().collect());
            }
        }
        _ => {
            values.extend([json!({}), json!([]), json!("a"), json!(1)]);
            if let Some(Value::Object(fields)) = value {
                let with = |name: &str, value: Value| {
                    let mut fields = fields.clone();
                    fields.insert(name.to_owned(), value);
                    Value::Object(fields)
                };
                values.push(with("bogus", json!(1)));
                if let Some(schema) = schema.get("additionalProperties") {
                    let sample = schemas.sample(schema, 2);
                    for name in ["", "Bad Key!", "example.com/a", "a/b/c", "kubernetes.io/a"] {
                        values.push(with(name, sample.clone()));
                    }
                    values.push(with("k", json!("Bad Value!")));
                    values.push(with("k", json!("")));
                }
            }
        }
    }
    let mut changes: Vec<Change> = values.into_iter().map(Change::Set).collect();
    if value.is_some() {
        changes.extend([Change::Remove, Change::Remove]);
    }
    changes
}

fn strings(schema: &Value) -> Vec<Value> {
    let mut values: Vec<Value> = [
        "",
        "a",
        "b.c",
        "Bad_Value!",
        "-a",
        "A",
        " a",
        "a/b",
        "a.example.com/b",
        "ünï",
        "*",
        "0",
        "10.0.0.1",
        "::1",
        "10.0.0.0/8",
    ]
    .map(Value::from)
    .to_vec();
    values.extend([64, 254].map(|length| Value::from("a".repeat(length))));
    values.extend([json!(5), json!({}), json!(true)]);
    if schema["format"] == "date-time" {
        values.extend(
            ["2024-02-30T00:00:00Z", "2024-01-01T00:00:00+02:00", "2024-01-01T00:00:00.5Z", "now"]
                .map(Value::from),
        );
    }
    if schema.get("format").is_none() && schema.get("enum").is_none() {
        // Also add quantities, which are strings here.
        values.extend(["100m", "-1", "1.5", "1e3", "1Ki", "0"].map(Value::from));
    }
    values
}

fn numbers() -> Vec<Value> {
    let mut values = [
        -1,
        0,
        1,
        2,
        100,
        101,
        65_535,
        65_536,
        i64::from(i32::MAX),
        i64::from(i32::MAX) + 1,
        i64::MAX,
    ]
    .map(Value::from)
    .to_vec();
    values.extend([json!(1.5), json!("1"), json!(true)]);
    values
}
