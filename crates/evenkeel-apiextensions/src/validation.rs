//! Validation of values by a schema, with ratcheting (KEP-4008).
//!
//! An update validates only changed values. New values are correlated with old ones by field name, and by key in
//! lists of type `map`.
//!
//! Upstream: `k8s.io/kube-openapi/pkg/validation`, `RatchetingSchemaValidator`.

use std::collections::HashMap;

use serde_json::Value;

use super::structural::{ListType, Structural};
use evenkeel_apimachinery::status::FieldError;

/// Returns the path of a field of the value at `path`.
pub(super) fn child_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Moves an error from a value that was validated at the empty path to the value's own `path`. Does not change the
/// message.
pub fn move_error(error: &mut FieldError, path: &str) {
    error.field = match &*error.field {
        "" | "<nil>" => path.to_owned(),
        inner => child_path(path, inner.trim_start_matches('.')),
    };
}

/// Validates `value` at `path`. `old` is the correlated old value, if there is one.
///
/// Upstream: `ValidateCustomResource`, `ValidateCustomResourceUpdate`.
pub fn validate(
    value: &Value,
    old: Option<&Value>,
    schema: &Structural,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if old == Some(value) {
        return;
    }
    let has_type = validate_type(value, schema, path, errors);
    if !schema.enum_values.is_empty() && !schema.enum_values.contains(value) {
        let supported: Vec<String> = schema
            .enum_values
            .iter()
            .map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned))
            .collect();
        let supported: Vec<&str> = supported.iter().map(String::as_str).collect();
        errors.push(FieldError::not_supported(path, value.clone(), &supported));
    }
    if !has_type {
        validate_junctors(value, schema, path, errors);
        return;
    }
    match value {
        Value::String(text) => validate_string(text, schema, path, errors),
        Value::Number(number) => {
            if let Some(n) = number.as_f64() {
                validate_number(n, value, schema, path, errors);
            }
        }
        Value::Array(items) => validate_array(items, old, schema, path, errors),
        Value::Object(_) => validate_object(value, old, schema, path, errors),
        Value::Null | Value::Bool(_) => {}
    }
    validate_junctors(value, schema, path, errors);
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if is_integer(n) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns whether upstream decodes the number as an integer, or takes its float for one.
fn is_integer(number: &serde_json::Number) -> bool {
    number.is_i64() || number.as_f64().is_some_and(is_json_integer)
}

/// Greatest integer up to which a float holds every integer.
const MAX_JSON_INTEGER: f64 = 9_007_199_254_740_991.0;

/// Returns whether a float is an integer that JSON can hold exactly. Integers that exceed an int64 are none: typed clients
/// could not decode them.
///
/// Upstream: `IsFloat64AJSONInteger`.
fn is_json_integer(n: f64) -> bool {
    n.fract() == 0.0 && n.abs() <= MAX_JSON_INTEGER
}

/// Validates the type of a value. Returns whether it is valid.
fn validate_type(
    value: &Value,
    schema: &Structural,
    path: &str,
    errors: &mut Vec<FieldError>,
) -> bool {
    let actual = type_of(value);
    let expected = if schema.int_or_string { "integer,string" } else { &*schema.kind };
    let fits = match (expected, actual) {
        (_, "null") => schema.nullable || expected.is_empty(),
        ("", _) | ("number", "integer") | ("integer,string", "integer" | "string") => true,
        (expected, actual) => expected == actual,
    };
    if fits && schema.format.starts_with("int") && !value.is_i64() && value.is_number() {
        // The number was decoded as a float, because it has a fraction or exceeds an int64.
        let why = format!("{path} in body must be of type {}: \"float64\"", schema.format);
        errors.push(FieldError::type_invalid(path, "float64", why));
        report_out_of_range(schema, path, errors);
        return false;
    }
    // Upstream takes any list for a formatted text, and reports another value by its format.
    if !fits && !schema.format.is_empty() && !schema.int_or_string && !value.is_null() {
        let takes_number = matches!(expected, "integer" | "number");
        match value {
            Value::Array(_) if !takes_number => return true,
            Value::String(_) | Value::Array(_) => {}
            _ => {
                let format = match value {
                    Value::Number(number) if number.is_f64() => "float64",
                    Value::Number(_) => "int64",
                    _ => "",
                };
                let why = format!("{path} in body must be of type {}: \"{format}\"", schema.format);
                errors.push(FieldError::type_invalid(path, format, why));
                if expected == "integer" && actual == "number" {
                    report_out_of_range(schema, path, errors);
                }
                return false;
            }
        }
    }
    if !fits {
        // A number that was written with a fraction is no integer here, even if the fraction is zero.
        let shown = if value.is_f64() { "number" } else { actual };
        let why = format!("{path} in body must be of type {expected}: \"{shown}\"");
        errors.push(FieldError::type_invalid(path, shown, why));
        if expected == "integer" && actual == "number" {
            report_out_of_range(schema, path, errors);
        }
    }
    fits
}

/// Validates a string: the first violated one of its lengths and its pattern, and its format.
///
/// Upstream: `stringValidator.Validate`.
fn validate_string(text: &str, schema: &Structural, path: &str, errors: &mut Vec<FieldError>) {
    let length = text.chars().count() as u64;
    if let Some(max) = schema.max_length.filter(|max| length > *max) {
        errors.push(FieldError::too_long(path, usize::try_from(max).unwrap_or(usize::MAX)));
    } else if let Some(min) = schema.min_length.filter(|min| length < *min) {
        let why = format!("{path} in body should be at least {min} chars long");
        errors.push(FieldError::invalid(path, text, why));
    } else if let Some(pattern) = schema.pattern.as_ref().filter(|p| !p.is_match(text)) {
        let why = format!("{path} in body should match '{}'", pattern.text);
        errors.push(FieldError::invalid(path, text, why));
    }
    if !schema.int_or_string && !evenkeel_cel::formats::fits(&schema.format, text) {
        let why = format!(
            "{path} in body must be of type {}: {}",
            schema.format,
            evenkeel_apimachinery::status::quote(text)
        );
        errors.push(FieldError::type_invalid(path, text, why));
    }
}

/// Formats a number as Go does, without a fraction if it is integral.
fn go_number(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        format!("{number:.0}")
    } else {
        number.to_string()
    }
}

fn validate_number(
    n: f64,
    value: &Value,
    schema: &Structural,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    // Upstream divides an integer by the integral part of the factor.
    let is_fraction = schema.multiple_of.is_some_and(|factor| factor > 0.0 && factor < 1.0);
    if is_fraction && value.is_i64() {
        let why = format!("factor MultipleOf declared for {path} must be positive: 0");
        errors.push(FieldError::invalid(path, 0, why));
    }
    let mut report = |why: String| errors.push(FieldError::invalid(path, value.clone(), why));
    let factor = if is_fraction && value.is_i64() { None } else { schema.multiple_of };
    let factor = factor.map(|factor| if value.is_i64() { factor.trunc() } else { factor });
    let is_multiple = |factor: f64| match value.as_i64() {
        // An i128 has every i64, and the integral factors below 2^127.
        Some(n) => i128::from(n) % (factor as i128).max(1) == 0,
        None => is_json_integer(n / factor),
    };
    if let Some(factor) = factor.filter(|factor| *factor > 0.0 && !is_multiple(*factor)) {
        report(format!("{path} in body should be a multiple of {}", go_number(factor)));
    }
    if let Some(max) = schema.maximum {
        if schema.exclusive_maximum && n >= max {
            report(format!("{path} in body should be less than {}", go_number(max)));
        } else if n > max {
            report(format!("{path} in body should be less than or equal to {}", go_number(max)));
        }
    }
    if let Some(min) = schema.minimum {
        if schema.exclusive_minimum && n <= min {
            report(format!("{path} in body should be greater than {}", go_number(min)));
        } else if n < min {
            report(format!("{path} in body should be greater than or equal to {}", go_number(min)));
        }
    }
    if &*schema.format == "int32" && !(f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&n) {
        report_out_of_range(schema, path, errors);
    }
}

fn report_out_of_range(schema: &Structural, path: &str, errors: &mut Vec<FieldError>) {
    let format = match &*schema.format {
        "" => "(default format)".to_owned(),
        format => format!("with format {format}"),
    };
    let why = format!("Checked value must be of type integer {format} in {path}");
    errors.push(FieldError::invalid("<nil>", "", why));
}

fn validate_array(
    items: &[Value],
    old: Option<&Value>,
    schema: &Structural,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let count = items.len() as u64;
    if let Some(min) = schema.min_items.filter(|min| count < *min) {
        let why = format!("{path} in body should have at least {min} items");
        errors.push(FieldError::invalid(path, count, why));
    }
    if let Some(max) = schema.max_items.filter(|max| count > *max) {
        errors.push(FieldError::too_many(path, count, max));
    }
    let Some(child) = &schema.items else { return };
    let old = OldElements::new(schema, old);
    for (i, item) in items.iter().enumerate() {
        validate(item, old.with_key_of(item), child, &format!("{path}[{i}]"), errors);
    }
}

/// Elements of an old list of type `map`, by their keys. Empty for other lists.
pub(super) struct OldElements<'a> {
    schema: &'a Structural,
    by_key: HashMap<Vec<Option<&'a Value>>, &'a Value>,
}

impl<'a> OldElements<'a> {
    /// Indexes the elements by key, so that the list is searched only once. Of several elements with the same key,
    /// it keeps the first.
    pub(super) fn new(schema: &'a Structural, old: Option<&'a Value>) -> Self {
        let mut by_key = HashMap::new();
        if schema.list_type == ListType::Map {
            for element in old.and_then(Value::as_array).into_iter().flatten() {
                by_key.entry(schema.key_of(element)).or_insert(element);
            }
        }
        Self { schema, by_key }
    }

    /// Returns the old element with the same key as `item`.
    pub(super) fn with_key_of(&self, item: &Value) -> Option<&'a Value> {
        if self.by_key.is_empty() {
            return None;
        }
        self.by_key.get(&self.schema.key_of(item)).copied()
    }
}

fn validate_object(
    value: &Value,
    old: Option<&Value>,
    schema: &Structural,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let Some(fields) = value.as_object() else { return };
    let count = fields.len() as u64;
    if let Some(min) = schema.min_properties.filter(|min| count < *min) {
        let why = format!("{path} in body should have at least {min} properties");
        errors.push(FieldError::invalid(path, count, why));
    }
    if let Some(max) = schema.max_properties.filter(|max| count > *max) {
        errors.push(FieldError::too_many(path, count, max));
    }
    for name in &schema.required {
        if !fields.contains_key(&**name) {
            errors.push(FieldError::required(child_path(path, name), ""));
        }
    }
    for (name, value) in fields {
        let Some(child) = schema.child(name) else { continue };
        // Upstream's paths of the entries of a map begin with a dot, even at the root.
        let child_path = match schema.properties.contains_key(name.as_str()) {
            true => child_path(path, name),
            false => format!("{path}.{name}"),
        };
        let old_field = if schema.atomic_map { None } else { old.and_then(|old| old.get(name)) };
        validate(value, old_field, child, &child_path, errors);
    }
}

/// Validates a value by the schemas in `anyOf`, `oneOf`, `not` and `allOf`. Their own errors have no field.
///
/// Upstream: `schemaPropsValidator`.
fn validate_junctors(value: &Value, schema: &Structural, path: &str, errors: &mut Vec<FieldError>) {
    // Upstream checks only the type of null.
    if value.is_null() {
        return;
    }
    let errors_of = |schema: &Structural| {
        let mut errors = Vec::new();
        validate(value, None, schema, path, &mut errors);
        errors
    };
    let quoted_path = evenkeel_apimachinery::status::quote(path);
    let composite =
        |why: &str| FieldError::invalid("<nil>", "", format!("{quoted_path} must {why}"));
    // With `x-kubernetes-int-or-string`, `anyOf` may only repeat the two types, which `validate_type` has checked.
    let types = schema.any_of.iter().map(|alternative| &*alternative.kind);
    let repeats_types = schema.int_or_string && types.eq(["integer", "string"]);
    if !schema.any_of.is_empty() && !repeats_types {
        let alternatives: Vec<Vec<FieldError>> = schema.any_of.iter().map(errors_of).collect();
        if alternatives.iter().all(|errors| !errors.is_empty()) {
            errors.push(composite("validate at least one schema (anyOf)"));
            // Also reports the errors of the alternative with the fewest.
            add_new(errors, alternatives.into_iter().min_by_key(Vec::len).unwrap_or_default());
        }
    }
    if !schema.one_of.is_empty() {
        let alternatives: Vec<Vec<FieldError>> = schema.one_of.iter().map(errors_of).collect();
        let n_valid = alternatives.iter().filter(|errors| errors.is_empty()).count();
        let rule = "validate one and only one schema (oneOf)";
        if n_valid == 0 {
            errors.push(composite(&format!("{rule}. Found none valid")));
            add_new(errors, alternatives.into_iter().min_by_key(Vec::len).unwrap_or_default());
        } else if n_valid > 1 {
            errors.push(composite(&format!("{rule}. Found {n_valid} valid alternatives")));
        }
    }
    let parts: Vec<Vec<FieldError>> = schema.all_of.iter().map(errors_of).collect();
    let n_valid = parts.iter().filter(|errors| errors.is_empty()).count();
    let is_valid = n_valid == parts.len();
    parts.into_iter().for_each(|part| add_new(errors, part));
    if !is_valid {
        let none = if n_valid == 0 { ". None validated" } else { "" };
        errors.push(composite(&format!("validate all the schemas (allOf){none}")));
    }
    if schema.not.as_deref().is_some_and(|schema| errors_of(schema).is_empty()) {
        errors.push(composite("not validate the schema (not)"));
    }
}

/// Adds errors that are not reported yet.
///
/// Upstream: `Result.AddErrors`.
fn add_new(errors: &mut Vec<FieldError>, more: Vec<FieldError>) {
    for error in more {
        if !errors.contains(&error) {
            errors.push(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn errors_of(schema: &Value, value: &Value, old: Option<&Value>) -> Vec<String> {
        let mut errors = Vec::new();
        validate(value, old, &Structural::new(schema), "", &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn integers_fit_an_int64() {
        let schema = Structural::new(&json!({"type": "object", "properties": {
            "i": {"type": "integer"}, "m": {"type": "integer", "multipleOf": 3},
            "p": {"x-kubernetes-int-or-string": true}}}));
        let is_valid = |text: &str| {
            let value: Value = serde_json::from_str(text).unwrap();
            let mut errors = Vec::new();
            validate(&value, None, &schema, "", &mut errors);
            errors.is_empty()
        };
        for (text, want) in [
            (r#"{"i": 9223372036854775807}"#, true),
            (r#"{"i": -9223372036854775808}"#, true),
            (r#"{"i": 9223372036854775808}"#, false),
            (r#"{"i": 1e19}"#, false),
            (r#"{"i": 1e300}"#, false),
            (r#"{"i": 1e3}"#, true),
            (r#"{"i": 1.5}"#, false),
            (r#"{"p": 12345678901234567890}"#, false),
            (r#"{"p": 5}"#, true),
            (r#"{"m": 9223372036854775807}"#, false),
            (r#"{"m": 9223372036854775806}"#, true),
        ] {
            assert_eq!(is_valid(text), want, "{text}");
        }
    }

    #[test]
    fn only_the_pattern_of_an_int_or_string_is_skipped() {
        let errors = |any_of: Value, value: Value| {
            let schema = json!({"x-kubernetes-int-or-string": true, "anyOf": any_of});
            errors_of(&json!({"type": "object", "properties": {"a": schema}}), &value, None)
        };
        let pattern = json!([{"type": "integer"}, {"type": "string"}]);
        assert_eq!(errors(pattern, json!({"a": "x"})), Vec::<String>::new());
        let bounds = json!([{"minimum": 5}, {"enum": [1]}]);
        assert_eq!(errors(bounds.clone(), json!({"a": 1})), Vec::<String>::new());
        assert!(!errors(bounds, json!({"a": 3})).is_empty());
    }

    #[test]
    fn errors_have_upstreams_texts_and_unchanged_values_are_not_validated() {
        let schema = json!({"type": "object", "required": ["a"], "properties": {
            "a": {"type": "string", "maxLength": 3, "pattern": "^a"}, "n": {"type": "integer", "minimum": 1},
            "e": {"type": "string", "enum": ["x", "y"]}, "i": {"x-kubernetes-int-or-string": true},
            "f": {"type": "string", "format": "date-time"}, "l": {"type": "array", "maxItems": 1, "items": {"type": "number"}},
            "z": {"type": "integer", "anyOf": [{"minimum": 5}, {"multipleOf": 3}]}}});
        let value =
            json!({"a": "bcde", "n": 0, "e": "q", "i": true, "f": "x", "l": ["s", 1], "z": 4});
        let found = errors_of(&schema, &value, None);
        let want = [
            "a: Too long: may not be more than 3 bytes",
            "e: Unsupported value: \"q\": supported values: \"x\", \"y\"",
            "f: Invalid value: \"x\": f in body must be of type date-time: \"x\"",
            "i: Invalid value: \"boolean\": i in body must be of type integer,string: \"boolean\"",
            "l: Too many: 2: must have at most 1 item",
            "l[0]: Invalid value: \"string\": l[0] in body must be of type number: \"string\"",
            "n: Invalid value: 0: n in body should be greater than or equal to 1",
            "<nil>: Invalid value: \"\": \"z\" must validate at least one schema (anyOf)",
        ];
        assert_eq!(found[..want.len()], want);
        assert_eq!(errors_of(&schema, &json!({}), None), ["a: Required value"]);
        assert!(errors_of(&schema, &value, Some(&value)).is_empty());
        let mut old = value.clone();
        old["n"] = json!(1);
        assert_eq!(errors_of(&schema, &value, Some(&old)), [want[6]]);
    }
}
