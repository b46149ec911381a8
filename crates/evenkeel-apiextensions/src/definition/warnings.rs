//! Warnings about a written definition: unrecognized formats, and lists of type `set` with items that are not
//! scalars.

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use evenkeel_apimachinery::value::{list, text};

/// Returns the warnings about `crd`, except those that the stored definition `old` causes too.
///
/// Upstream: `WarningsOnCreate`, `WarningsOnUpdate` of `registry/customresourcedefinition`.
pub fn new_warnings(crd: &Value, old: Option<&Value>) -> Vec<String> {
    let old = old.map(all_warnings).unwrap_or_default();
    let current = all_warnings(crd);
    let without_old = |warnings: Vec<String>, old: &[String]| -> Vec<String> {
        let old: HashSet<&String> = old.iter().collect();
        warnings.into_iter().filter(|warning| !old.contains(warning)).collect()
    };
    let mut warnings = without_old(current.formats, &old.formats);
    warnings.extend(without_old(current.sets, &old.sets));
    warnings
}

/// Warnings about a definition.
#[derive(Default)]
struct Warnings {
    /// Warnings about unrecognized formats.
    formats: Vec<String>,
    /// Warnings about lists of type `set` with items that are not scalars.
    sets: Vec<String>,
}

/// Returns the warnings about unknown formats, and about lists of type `set` whose items are not scalars.
///
/// Upstream: `getUnrecognizedFormatsInCRD`, `getNonScalarListTypeSetWarnings`.
fn all_warnings(crd: &Value) -> Warnings {
    let (mut formats, mut sets) = (Vec::new(), BTreeSet::new());
    for version in list(crd, "spec.versions") {
        visit_schemas(&version["schema"]["openAPIV3Schema"], &mut |schema| {
            let format = text(schema, "format");
            if !format.is_empty() && !evenkeel_cel::formats::is_known(text(schema, "type"), format)
            {
                formats.push(format!(
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
    formats.dedup();
    Warnings { formats, sets: sets.into_iter().collect() }
}

/// Visits a schema and all nested schemas.
pub(super) fn visit_schemas(schema: &Value, visit: &mut dyn FnMut(&Value)) {
    if !schema.is_object() {
        return;
    }
    visit(schema);
    for name in ["items", "not", "additionalProperties"] {
        visit_schemas(&schema[name], visit);
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        list(schema, name).iter().for_each(|nested| visit_schemas(nested, visit));
    }
    for (_, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        visit_schemas(property, visit);
    }
}
