//! What is warned of when a definition is written: formats that nobody checks, sets of what is no scalar.

use std::collections::BTreeSet;

use serde_json::Value;

use evenkeel_apimachinery::value::{list, text};
use evenkeel_cel::formats;

/// What is new since `old`.
pub fn of(crd: &Value, old: Option<&Value>) -> Vec<String> {
    let before = old.map(all).unwrap_or_default();
    let (formats, sets) = all(crd);
    let new = |found: Vec<String>, known: &[String]| -> Vec<String> {
        found.into_iter().filter(|w| !known.contains(w)).collect()
    };
    let mut warnings = new(formats, &before.0);
    warnings.extend(new(sets, &before.1));
    warnings
}

fn all(crd: &Value) -> (Vec<String>, Vec<String>) {
    let (mut unknown, mut sets) = (Vec::new(), BTreeSet::new());
    for version in list(crd, "spec.versions") {
        each(&version["schema"]["openAPIV3Schema"], &mut |schema| {
            let format = text(schema, "format");
            if !format.is_empty() && !formats::is_known(text(schema, "type"), format) {
                unknown.push(format!(
                    "unrecognized format {}",
                    evenkeel_apimachinery::status::quote(format)
                ));
            }
            let items = text(schema, "items.type");
            if text(schema, "x-kubernetes-list-type") == "set"
                && matches!(items, "object" | "array")
            {
                sets.insert(format!(
                    "x-kubernetes-list-type: set for items of type \"{items}\" is not supported by server-side apply or CEL validation rules"
                ));
            }
        });
    }
    unknown.dedup();
    (unknown, sets.into_iter().collect())
}

/// Visits a schema and all within it.
pub(super) fn each(schema: &Value, visit: &mut dyn FnMut(&Value)) {
    if !schema.is_object() {
        return;
    }
    visit(schema);
    for name in ["items", "not", "additionalProperties"] {
        each(&schema[name], visit);
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        list(schema, name).iter().for_each(|s| each(s, visit));
    }
    for (_, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        each(property, visit);
    }
}
