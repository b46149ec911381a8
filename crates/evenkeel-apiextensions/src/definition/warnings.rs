//! Warnings about a written definition: unrecognized formats, and lists of type `set` with items that are not
//! scalars.

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use evenkeel_apimachinery::value::{list, text};
use evenkeel_cel::formats;

/// Returns the warnings about `crd`, except those that the stored definition `old` causes too.
///
/// Upstream: `WarningsOnCreate`, `WarningsOnUpdate` of `registry/customresourcedefinition`.
pub fn new_warnings(crd: &Value, old: Option<&Value>) -> Vec<String> {
    let before = old.map(all_warnings).unwrap_or_default();
    let (formats, sets) = all_warnings(crd);
    let new = |found: Vec<String>, known: &[String]| -> Vec<String> {
        let known: HashSet<&String> = known.iter().collect();
        found.into_iter().filter(|w| !known.contains(w)).collect()
    };
    let mut warnings = new(formats, &before.0);
    warnings.extend(new(sets, &before.1));
    warnings
}

/// Upstream: `getUnrecognizedFormatsInCRD`, `getNonScalarListTypeSetWarnings`.
fn all_warnings(crd: &Value) -> (Vec<String>, Vec<String>) {
    let (mut unknown, mut sets) = (Vec::new(), BTreeSet::new());
    for version in list(crd, "spec.versions") {
        visit_schemas(&version["schema"]["openAPIV3Schema"], &mut |schema| {
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

/// Visits a schema and all schemas below it.
pub(super) fn visit_schemas(schema: &Value, visit: &mut dyn FnMut(&Value)) {
    if !schema.is_object() {
        return;
    }
    visit(schema);
    for name in ["items", "not", "additionalProperties"] {
        visit_schemas(&schema[name], visit);
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        list(schema, name).iter().for_each(|s| visit_schemas(s, visit));
    }
    for (_, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        visit_schemas(property, visit);
    }
}
