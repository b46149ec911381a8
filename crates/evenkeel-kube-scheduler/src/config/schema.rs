//! Fields of the configuration with their types, to find unknown fields and values of a wrong type. Errors name the
//! field, and have the form of Go's JSON decoder.

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
            if let (Some(name), Some(field), Some(kind)) =
                (cells.next(), cells.next(), cells.next())
            {
                structs.entry(name).or_default().push((field, kind));
            }
        }
        structs
    });

/// Returns whether there is a struct with this name.
pub(super) fn has_struct(name: &str) -> bool {
    STRUCTS.contains_key(name)
}

/// Reduces a JSON value to the fields of the struct `name`: removes unknown fields and nulls, which count as unset.
/// Returns the paths of the unknown fields.
///
/// # Errors
/// Fails if a field's value has a wrong type.
pub(super) fn reduce_to_struct(value: &mut Value, name: &str) -> Result<Vec<String>, String> {
    let mut checker = Checker { unknown: Vec::new(), fields: Vec::new() };
    checker.check_object(value, name, name, "")?;
    Ok(checker.unknown)
}

/// State of the check of one value and the values in it.
struct Checker {
    /// Paths of the unknown fields found so far.
    unknown: Vec<String>,
    /// Names of the fields that lead to the current value, for Go's errors.
    fields: Vec<String>,
}

impl Checker {
    /// Checks a value of type `kind`. `within` is the struct that contains it, and `path` its field path.
    fn check_value(
        &mut self,
        value: &mut Value,
        kind: &str,
        within: &str,
        path: &str,
    ) -> Result<(), String> {
        if let Some(item_kind) = kind.strip_prefix("[]") {
            let Value::Array(items) = value else {
                return Err(self.type_error(value, within, kind));
            };
            for (n, item) in items.iter_mut().enumerate() {
                self.check_value(item, item_kind, within, &format!("{path}[{n}]"))?;
            }
            return Ok(());
        }
        let has_type = match kind {
            "raw" => return Ok(()),
            "string" => value.is_string(),
            "bool" => value.is_boolean(),
            "int32" => value.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
            "int64" => value.is_i64(),
            "float32" => value.as_f64().is_some_and(|n| (n as f32).is_finite()),
            "labels" => is_map_of_strings(value),
            "duration" => match value.as_str() {
                Some(text) => return duration::nanoseconds(text).map(drop),
                None => false,
            },
            "bytes" => match value.as_str() {
                Some(text) => return check_base64(text),
                None => false,
            },
            name => return self.check_object(value, name, within, path),
        };
        if has_type { Ok(()) } else { Err(self.type_error(value, within, kind)) }
    }

    /// Checks an object of the struct `name`, and removes its unknown and null fields.
    fn check_object(
        &mut self,
        value: &mut Value,
        name: &str,
        within: &str,
        path: &str,
    ) -> Result<(), String> {
        let Value::Object(map) = value else {
            return Err(self.type_error(value, within, name));
        };
        let known_fields = STRUCTS.get(name).map(Vec::as_slice).unwrap_or_default();
        let all_fields: Map<String, Value> = std::mem::take(map);
        for (field, mut value) in all_fields {
            let path = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
            let known_field = known_fields.iter().find(|(name, _)| *name == field);
            let Some((_, kind)) = known_field else {
                self.unknown.push(path);
                continue;
            };
            if value.is_null() {
                continue;
            }
            self.fields.push(field.clone());
            self.check_value(&mut value, kind, name, &path)?;
            self.fields.pop();
            map.insert(field, value);
        }
        Ok(())
    }

    /// Returns the error of Go's JSON decoder for a value of a wrong type.
    fn type_error(&self, value: &Value, within: &str, kind: &str) -> String {
        let (list_prefix, kind) = match kind.strip_prefix("[]") {
            Some(item_kind) => ("[]", item_kind),
            None => ("", kind),
        };
        let found = match value {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "bool".to_owned(),
            Value::Number(_) if matches!(kind, "bool" | "string" | "duration" | "bytes") => {
                "number".to_owned()
            }
            Value::Number(number) if !has_struct(kind) => format!("number {number}"),
            Value::Number(_) => "number".to_owned(),
            Value::String(_) => "string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            Value::Object(_) => "object".to_owned(),
        };
        let fields = self.fields.join(".");
        let kind = match kind {
            "duration" => "string".to_owned(),
            "bytes" => "[]uint8".to_owned(),
            "labels" => "map[string]string".to_owned(),
            name if has_struct(name) => {
                let is_shared = name.starts_with("LeaderElectionConfiguration")
                    || name.starts_with("ClientConnectionConfiguration");
                format!("{}.{name}", if is_shared { "v1alpha1" } else { "v1" })
            }
            plain => plain.to_owned(),
        };
        format!(
            "json: cannot unmarshal {found} into Go struct field {within}.{fields} of type {list_prefix}{kind}"
        )
    }
}

/// Returns whether a value is a map of strings.
fn is_map_of_strings(value: &Value) -> bool {
    value.as_object().is_some_and(|map| map.values().all(Value::is_string))
}

/// Checks that a string is base64, with the error of Go's decoder.
fn check_base64(text: &str) -> Result<(), String> {
    match BASE64_STANDARD.decode(text) {
        Ok(_) => Ok(()),
        Err(
            base64::DecodeError::InvalidByte(offset, _)
            | base64::DecodeError::InvalidLastSymbol(offset, _),
        ) => Err(format!("illegal base64 data at input byte {offset}")),
        Err(_) => Err(format!("illegal base64 data at input byte {}", text.len())),
    }
}
