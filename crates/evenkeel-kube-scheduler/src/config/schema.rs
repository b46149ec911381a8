//! Fields of the configuration with their types. Finds unknown fields and values of a wrong type. Errors have Go's form
//! and name the field.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use evenkeel_api::duration;
use serde_json::{Map, Value};
use std::{collections::BTreeMap, sync::LazyLock};

/// Table recorded from upstream's types (`kube-scheduler/config/v1`): struct, field and type. Fields are in the order
/// of their declaration.
const TABLE: &str = include_str!("../../data/config.tsv");

/// Fields with their types, by struct.
static STRUCTS: LazyLock<BTreeMap<&'static str, Vec<(&'static str, &'static str)>>> =
    LazyLock::new(|| {
        let mut structs: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
        for line in TABLE.lines().skip(1) {
            let mut cells = line.split('\t');
            if let (Some(of), Some(field), Some(kind)) = (cells.next(), cells.next(), cells.next())
            {
                structs.entry(of).or_default().push((field, kind));
            }
        }
        structs
    });

/// Reports whether there is a struct with this name.
pub(super) fn has(name: &str) -> bool {
    STRUCTS.contains_key(name)
}

/// Converts a tree to the struct `of`. Removes nulls, which count as unset, and unknown fields. Returns the paths of
/// unknown fields.
///
/// If a field's value has a wrong type.
pub(super) fn shape(value: &mut Value, of: &str) -> Result<Vec<String>, String> {
    let mut reading = Reading { unknown: Vec::new(), fields: Vec::new() };
    reading.one(value, of, of, "")?;
    Ok(reading.unknown)
}

struct Reading {
    unknown: Vec<String>,
    /// Names of the fields that lead to the current value, for Go's errors.
    fields: Vec<String>,
}

impl Reading {
    /// Checks a value of type `kind`. `within` is the struct that contains it, and `path` its field path.
    fn any(
        &mut self,
        value: &mut Value,
        kind: &str,
        within: &str,
        path: &str,
    ) -> Result<(), String> {
        if let Some(kind) = kind.strip_prefix("[]") {
            let Value::Array(items) = value else {
                return Err(self.type_error(value, within, kind, true));
            };
            for (n, item) in items.iter_mut().enumerate() {
                self.any(item, kind, within, &format!("{path}[{n}]"))?;
            }
            return Ok(());
        }
        let fits = match kind {
            "raw" => return Ok(()),
            "string" => value.is_string(),
            "bool" => value.is_boolean(),
            "int32" => value.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
            "int64" => value.is_i64(),
            "float32" => value.as_f64().is_some_and(|n| (n as f32).is_finite()),
            "labels" => labels(value),
            "duration" => match value.as_str() {
                Some(text) => return duration::nanoseconds(text).map(drop),
                None => false,
            },
            "bytes" => match value.as_str() {
                Some(text) => return bytes(text),
                None => false,
            },
            of => return self.one(value, of, within, path),
        };
        if fits { Ok(()) } else { Err(self.type_error(value, within, kind, false)) }
    }

    fn one(&mut self, value: &mut Value, of: &str, within: &str, path: &str) -> Result<(), String> {
        let Value::Object(map) = value else {
            return Err(self.type_error(value, within, of, false));
        };
        let known = STRUCTS.get(of).map(Vec::as_slice).unwrap_or_default();
        let kept: Map<String, Value> = std::mem::take(map);
        for (field, mut value) in kept {
            let path = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
            let Some((_, kind)) = known.iter().find(|(name, _)| *name == field) else {
                self.unknown.push(path);
                continue;
            };
            if value.is_null() {
                continue;
            }
            self.fields.push(field.clone());
            self.any(&mut value, kind, of, &path)?;
            self.fields.pop();
            map.insert(field, value);
        }
        Ok(())
    }

    fn type_error(&self, value: &Value, within: &str, kind: &str, list: bool) -> String {
        let found = match value {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "bool".to_owned(),
            Value::Number(_) if matches!(kind, "bool" | "string" | "duration" | "bytes") => {
                "number".to_owned()
            }
            Value::Number(number) if !has(kind) => format!("number {number}"),
            Value::Number(_) => "number".to_owned(),
            Value::String(_) => "string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            Value::Object(_) => "object".to_owned(),
        };
        let fields = self.fields.join(".");
        let list = if list { "[]" } else { "" };
        let kind = match kind {
            "duration" => "string".to_owned(),
            "bytes" => "[]uint8".to_owned(),
            "labels" => "map[string]string".to_owned(),
            of if has(of) => {
                let shared = of.starts_with("LeaderElectionConfiguration")
                    || of.starts_with("ClientConnectionConfiguration");
                format!("{}.{of}", if shared { "v1alpha1" } else { "v1" })
            }
            plain => plain.to_owned(),
        };
        format!(
            "json: cannot unmarshal {found} into Go struct field {within}.{fields} of type {list}{kind}"
        )
    }
}

fn labels(value: &Value) -> bool {
    value.as_object().is_some_and(|map| map.values().all(Value::is_string))
}

fn bytes(text: &str) -> Result<(), String> {
    match BASE64_STANDARD.decode(text) {
        Ok(_) => Ok(()),
        Err(
            base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _),
        ) => Err(format!("illegal base64 data at input byte {at}")),
        Err(_) => Err(format!("illegal base64 data at input byte {}", text.len())),
    }
}
