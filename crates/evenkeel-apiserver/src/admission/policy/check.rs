//! Whether the expressions of policies and of webhooks' conditions can be asked at all.

use serde_json::Value;

use crate::admission::attributes::GROUP;
use crate::resource::ResourceType;
use evenkeel_apimachinery::status::FieldError;
use evenkeel_apimachinery::value::{list, text};
use evenkeel_cel::Program;
use evenkeel_cel::check::Type;
use evenkeel_cel::check::{Known, check};

/// What is wrong with the expressions of an object that is a policy or names webhooks.
pub(crate) fn expressions(resource: &ResourceType, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if resource.group() != GROUP {
        return errors;
    }
    match resource.plural() {
        "validatingadmissionpolicies" | "mutatingadmissionpolicies" => policy(object, &mut errors),
        "validatingwebhookconfigurations" | "mutatingwebhookconfigurations" => {
            for (i, webhook) in list(object, "webhooks").iter().enumerate() {
                let place = format!("webhooks[{i}].matchConditions");
                all(webhook, "matchConditions", &place, true, false, &mut errors);
            }
        }
        _ => {}
    }
    errors
}

fn policy(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    all(spec, "matchConditions", "spec.matchConditions", true, false, errors);
    all(spec, "variables", "spec.variables", false, true, errors);
    all(spec, "validations", "spec.validations", true, true, errors);
    for (i, mutation) in list(spec, "mutations").iter().enumerate() {
        for form in ["jsonPatch", "applyConfiguration"] {
            let Some(made) = mutation.get(form) else { continue };
            let place = format!("spec.mutations[{i}].{form}");
            one(made, &place, false, true, errors);
        }
    }
}

/// All expressions of a list.
fn all(
    of: &Value,
    name: &str,
    place: &str,
    wants_bool: bool,
    variables: bool,
    errors: &mut Vec<FieldError>,
) {
    for (i, item) in list(of, name).iter().enumerate() {
        one(item, &format!("{place}[{i}]"), wants_bool, variables, errors);
    }
}

fn one(item: &Value, place: &str, wants_bool: bool, variables: bool, errors: &mut Vec<FieldError>) {
    let expression = text(item, "expression");
    if expression.is_empty() {
        return;
    }
    let anything = || Known::of(Type::Dyn);
    let names = ["object", "oldObject", "request", "namespaceObject", "params", "authorizer"];
    let mut known: Vec<(&str, Known<'_>)> = names.into_iter().map(|n| (n, anything())).collect();
    if variables {
        known.push(("variables", anything()));
    }
    let field = format!("{place}.expression");
    let program = match Program::parse(expression) {
        Ok(program) => program,
        Err(error) => {
            errors.push(FieldError::invalid(field, expression, error));
            return;
        }
    };
    match check(&program, known) {
        Err(error) => errors.push(FieldError::invalid(field, expression, error)),
        Ok(found) if wants_bool && !matches!(found.known.kind, Type::Bool | Type::Dyn) => {
            let why = "must evaluate to bool";
            errors.push(FieldError::invalid(field, expression, why));
        }
        Ok(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::Table;

    #[test]
    fn bad_expressions_are_found() {
        let table = Table::builtin();
        let wrong = |plural: &str, object: &Value| -> Vec<String> {
            let row = table.get("admissionregistration.k8s.io/v1", plural).expect("it is there");
            expressions(&row, object).into_iter().map(|e| e.field).collect()
        };
        let policy = json!({"spec": {"matchConditions": [{"name": "a", "expression": "object.x == 1"}, {"name": "b", "expression": "'a'"}],
            "variables": [{"name": "v", "expression": "object.y.z"}], "validations": [{"expression": "variables.v > 1 &&"}, {"expression": "nope"}]}});
        assert_eq!(
            wrong("validatingadmissionpolicies", &policy),
            [
                "spec.matchConditions[1].expression",
                "spec.validations[0].expression",
                "spec.validations[1].expression"
            ]
        );
        let hooks = json!({"webhooks": [{"matchConditions": [{"name": "a", "expression": "request.operation == 'CREATE'"}, {"name": "b", "expression": "..."}]}]});
        assert_eq!(
            wrong("mutatingwebhookconfigurations", &hooks),
            ["webhooks[0].matchConditions[1].expression"]
        );
    }
}
