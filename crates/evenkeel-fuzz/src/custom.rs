//! Fuzz target for custom resources: the first part is a schema, the second an object, the third its old version.

use evenkeel_api::json;
use evenkeel_apiextensions::structural::Structural;
use evenkeel_apiextensions::{
    cel, defaulting, definition, listtype, objectmeta, pruning, validation,
};
use serde_json::{Value, json};

use crate::input;

/// Cost budget of all rules of one object: a hundredth of a request's budget, because debug builds are slow.
const BUDGET: u64 = 100_000;

/// Applies an accepted schema to an object. Checks that pruning and defaulting are idempotent, and that rules stay
/// within their budget.
pub(crate) fn custom_resource(data: &[u8]) {
    let mut parts = input::parts(data);
    let mut value = || parts.next().and_then(|part| json::from_slice::<Value>(part).ok());
    let (Some(doc), Some(mut object)) = (value(), value()) else { return };
    let old = value();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": doc}}]},
        "status": {"storedVersions": ["v1"]},
    });
    if evenkeel_apimachinery::depth::check(&definition).is_err()
        || evenkeel_apimachinery::depth::check(&object).is_err()
    {
        return;
    }
    let mut errors = Vec::new();
    definition::validation::validate_custom_resource_definition(&definition, None, &mut errors);
    let schema = Structural::new(&doc);
    if !errors.is_empty() {
        return;
    }
    pruning::prune(&mut object, &schema, true);
    let mut again = object.clone();
    assert!(!pruning::prune(&mut again, &schema, true), "pruning is idempotent");
    assert_eq!(again, object);
    defaulting::prune_non_nullable_nulls(&mut object, &schema);
    defaulting::set_defaults(&mut object, &schema);
    let mut again = object.clone();
    defaulting::set_defaults(&mut again, &schema);
    assert_eq!(again, object, "defaulting is idempotent");
    let mut errors = Vec::new();
    validation::validate(&object, old.as_ref(), &schema, "", &mut errors);
    objectmeta::validate(&object, &schema, "", &mut errors);
    listtype::validate_list_sets_and_maps(&object, &schema, "", &mut errors);
    let mut left = BUDGET;
    cel::validate_expressions(&object, old.as_ref(), &schema, &mut left, &mut errors);
    assert!(left <= BUDGET);
}
