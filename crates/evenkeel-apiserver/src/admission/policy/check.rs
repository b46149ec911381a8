//! Checks that the CEL expressions of policies and of webhooks' match conditions compile.

mod types;

use serde_json::Value;

use crate::admission::attributes::GROUP;
use crate::resource::ResourceType;
use evenkeel_apiextensions::structural::Structural;
use evenkeel_apimachinery::status::FieldError;
use evenkeel_apimachinery::value::{get, list, text};
use evenkeel_cel::Program;
use evenkeel_cel::authorization::{AUTHORIZER, RESOURCE_CHECK};
use evenkeel_cel::check::{Declared, Type, check};
use types::{Variables, namespace, request};

/// Maximum number of match conditions of a webhook or a policy.
const MAX_MATCH_CONDITIONS: usize = 64;

/// Returns errors in the expressions of a policy or of a webhook configuration.
pub(crate) fn expressions(resource: &ResourceType, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if resource.group() != GROUP {
        return errors;
    }
    match resource.plural() {
        "validatingadmissionpolicies" => policy(object, false, &mut errors),
        "mutatingadmissionpolicies" => policy(object, true, &mut errors),
        "validatingwebhookconfigurations" | "mutatingwebhookconfigurations" => {
            let environment = Environment { params: false, authorizer: true, variables: None };
            for (i, webhook) in list(object, "webhooks").iter().enumerate() {
                let place = format!("webhooks[{i}].matchConditions");
                match_conditions(webhook, &environment, &place, &mut errors);
            }
        }
        _ => {}
    }
    errors
}

/// Upstream: `validateMatchConditions`.
fn match_conditions(
    of: &Value,
    environment: &Environment<'_>,
    place: &str,
    errors: &mut Vec<FieldError>,
) {
    let conditions = list(of, "matchConditions");
    if conditions.len() > MAX_MATCH_CONDITIONS {
        let (found, most) = (conditions.len() as u64, MAX_MATCH_CONDITIONS as u64);
        errors.push(FieldError::too_many(place, found, most));
    }
    for (i, condition) in conditions.iter().enumerate() {
        let expression = text(condition, "expression").trim();
        let place = format!("{place}[{i}].expression");
        environment.expression(expression, expression, ExpectedType::Bool, &place, errors);
    }
}

fn policy(object: &Value, mutates: bool, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    let params = get(spec, "paramKind").is_some();
    let plain = Environment { params, authorizer: true, variables: None };
    match_conditions(spec, &plain, "spec.matchConditions", errors);
    let mut variables = Variables::default();
    for (i, variable) in list(spec, "variables").iter().enumerate() {
        let known = variables.schema();
        let environment = Environment { variables: Some(&known), ..plain };
        let expression = text(variable, "expression");
        let place = format!("spec.variables[{i}].expression");
        if expression.trim().is_empty() {
            continue;
        }
        // Declare a variable that does not compile as `dyn`, so that its uses report no second error.
        let found =
            environment.expression(expression, expression, ExpectedType::Any, &place, errors);
        let schema = types::schema_of(&found.unwrap_or(Type::Dyn));
        variables.declare(text(variable, "name"), schema);
    }
    let known = (mutates || !list(spec, "variables").is_empty()).then(|| variables.schema());
    let environment = Environment { variables: known.as_ref(), ..plain };
    if mutates {
        mutations(spec, &environment, errors);
        return;
    }
    let messages = Environment { authorizer: false, ..environment };
    for (i, validation) in list(spec, "validations").iter().enumerate() {
        for (field, expected, environment) in [
            ("expression", ExpectedType::Bool, &environment),
            ("messageExpression", ExpectedType::Text, &messages),
        ] {
            let expression = text(validation, field);
            let place = format!("spec.validations[{i}].{field}");
            environment.expression(expression, expression, expected, &place, errors);
        }
    }
    for (i, annotation) in list(spec, "auditAnnotations").iter().enumerate() {
        let expression = text(annotation, "valueExpression");
        let place = format!("spec.auditAnnotations[{i}].valueExpression");
        let expected = ExpectedType::TextOrNull;
        environment.expression(expression.trim(), expression, expected, &place, errors);
    }
}

fn mutations(spec: &Value, environment: &Environment<'_>, errors: &mut Vec<FieldError>) {
    for (i, mutation) in list(spec, "mutations").iter().enumerate() {
        for form in ["jsonPatch", "applyConfiguration"] {
            let Some(patch) = get(mutation, form) else { continue };
            let expression = text(patch, "expression").trim();
            let place = format!("spec.mutations[{i}].{form}.expression");
            environment.expression(expression, expression, ExpectedType::Any, &place, errors);
        }
    }
}

/// Type that an expression must evaluate to.
#[derive(Clone, Copy)]
enum ExpectedType {
    Any,
    Bool,
    Text,
    TextOrNull,
}

impl ExpectedType {
    /// Returns the error for an expression of type `found`. `dyn` passes unless cel-go is certain of the type, too.
    fn refuses(self, found: &Type<'_>, expression: &str) -> Option<String> {
        let (allowed, words) = match self {
            Self::Any => return None,
            Self::Bool => (matches!(found, Type::Bool), "bool"),
            Self::Text => (matches!(found, Type::Str), "string"),
            Self::TextOrNull => {
                (matches!(found, Type::Str | Type::Null), "one of [string null_type]")
            }
        };
        let is_certain = !matches!(found, Type::Dyn) || is_path_of_dyn(expression);
        (!allowed && is_certain)
            .then(|| format!("must evaluate to {words} but got {}", types::name(found)))
    }
}

/// Returns whether an expression only reads a field of an untyped variable.
fn is_path_of_dyn(expression: &str) -> bool {
    let mut parts = expression.trim().split('.');
    let root = parts.next().unwrap_or_default();
    ["object", "oldObject", "params"].contains(&root)
        && parts.all(|part| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        })
}

/// Optional variables of an expression, beside those of every request.
#[derive(Clone, Copy)]
struct Environment<'a> {
    params: bool,
    authorizer: bool,
    /// Schema of `variables`.
    variables: Option<&'a Structural>,
}

impl Environment<'_> {
    /// Compiles an expression and returns its type; `None` if it is blank or invalid. The error shows `value`.
    ///
    /// Upstream: `CompileCELExpression`.
    fn expression(
        &self,
        expression: &str,
        value: &str,
        expected: ExpectedType,
        field: &str,
        errors: &mut Vec<FieldError>,
    ) -> Option<Type<'static>> {
        if expression.trim().is_empty() {
            return None;
        }
        let found = Program::parse(expression).and_then(|program| {
            let found = check(&program, self.known())?;
            match expected.refuses(&found.known.kind, expression) {
                Some(why) => Err(why),
                None => Ok(types::owned(&found.known.kind)),
            }
        });
        found.map_err(|why| errors.push(FieldError::invalid(field, value, why))).ok()
    }

    fn known(&self) -> Vec<(&str, Declared<'_>)> {
        let anything = || Declared::of(Type::Dyn);
        let typed = |schema| Declared::schema(schema, false).unwrap_or_else(anything);
        let mut known = vec![
            ("object", anything()),
            ("oldObject", anything()),
            ("request", typed(request())),
            ("namespaceObject", typed(namespace())),
        ];
        if self.params {
            known.push(("params", anything()));
        }
        if self.authorizer {
            known.push(("authorizer", Declared::of(Type::Library(AUTHORIZER))));
            let check = Declared::of(Type::Library(RESOURCE_CHECK));
            known.push(("authorizer.requestResource", check));
        }
        if let Some(variables) = self.variables {
            known.push(("variables", typed(variables)));
        }
        known
    }
}

#[cfg(test)]
mod tests;
