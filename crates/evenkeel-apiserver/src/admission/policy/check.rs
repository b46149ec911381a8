//! Checks that the CEL expressions of policies and of webhooks' match conditions compile.

mod types;

use serde_json::Value;

use crate::admission::attributes::GROUP;
use crate::resource::ResourceType;
use evenkeel_apimachinery::status::FieldError;
use evenkeel_apimachinery::value::{get, list, text};
use evenkeel_cel::authorization::{AUTHORIZER, RESOURCE_CHECK};
use evenkeel_cel::check::{Type, Variable, check};
use evenkeel_cel::{Extensions, Program};
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
            let environment =
                Environment { params: false, authorizer: true, patches: false, variables: None };
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
    let plain = Environment { params, authorizer: true, patches: mutates, variables: None };
    match_conditions(spec, &plain, "spec.matchConditions", errors);
    let mut variables = Variables::default();
    for (i, variable) in list(spec, "variables").iter().enumerate() {
        let expression = text(variable, "expression");
        let place = format!("spec.variables[{i}].expression");
        if expression.trim().is_empty() {
            continue;
        }
        // Declare a variable that does not compile as `dyn`, so that its uses report no second error.
        let found = {
            let known = variables.kind();
            let environment = Environment { variables: Some(&known), ..plain };
            environment.expression(expression, expression, ExpectedType::Any, &place, errors)
        };
        variables.declare(text(variable, "name"), found.unwrap_or(Type::Dyn));
    }
    let known = (mutates || !list(spec, "variables").is_empty()).then(|| variables.kind());
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
        for (form, expected) in [
            ("jsonPatch", ExpectedType::Patch),
            ("applyConfiguration", ExpectedType::Configuration),
        ] {
            let Some(patch) = get(mutation, form) else { continue };
            let expression = text(patch, "expression").trim();
            let place = format!("spec.mutations[{i}].{form}.expression");
            environment.expression(expression, expression, expected, &place, errors);
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
    Patch,
    Configuration,
}

impl ExpectedType {
    /// Returns the error for an expression of type `found`.
    fn refuses(self, found: &Type) -> Option<String> {
        let (allowed, words) = match self {
            Self::Any => return None,
            Self::Bool => (matches!(found, Type::Bool), "bool"),
            Self::Text => (matches!(found, Type::Str), "string"),
            Self::TextOrNull => {
                (matches!(found, Type::Str | Type::Null), "one of [string null_type]")
            }
            Self::Patch => (found.declared_name() == "list(JSONPatch)", "list(JSONPatch)"),
            Self::Configuration => (found.declared_name() == "Object", "Object"),
        };
        let found = found.declared_name();
        (!allowed).then(|| format!("must evaluate to {words} but got {found}"))
    }
}

/// Optional variables of an expression, beside those of every request.
#[derive(Clone, Copy)]
struct Environment<'a> {
    params: bool,
    authorizer: bool,
    /// Whether it makes patches.
    patches: bool,
    /// Type of `variables`.
    variables: Option<&'a Type>,
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
    ) -> Option<Type> {
        if expression.trim().is_empty() {
            return None;
        }
        let extensions = Extensions { patches: self.patches, ..Extensions::default() };
        let wrong = |why: String| FieldError::invalid(field, value, why);
        let found =
            Program::parse_with(expression, extensions).map_err(wrong).and_then(|program| {
                let checked = check(&program, &self.known()).map_err(wrong)?;
                if let Some(why) = expected.refuses(checked.kind()) {
                    return Err(wrong(why));
                }
                checked.instantiate().map_err(|why| FieldError::internal(field, why))?;
                Ok(checked.kind().clone())
            });
        found.map_err(|error| errors.push(error)).ok()
    }

    fn known(&self) -> Vec<Variable> {
        let mut known = vec![
            Variable::new("object", Type::Dyn),
            Variable::new("oldObject", Type::Dyn),
            Variable::new("request", request()),
            Variable::new("namespaceObject", namespace()),
        ];
        if self.params {
            known.push(Variable::new("params", Type::Dyn));
        }
        if self.authorizer {
            known.push(Variable::new("authorizer", Type::Library(AUTHORIZER)));
            let check = Type::Library(RESOURCE_CHECK);
            known.push(Variable::new("authorizer.requestResource", check));
        }
        if let Some(variables) = self.variables {
            known.push(Variable::new("variables", variables.clone()));
        }
        known
    }
}

#[cfg(test)]
mod tests;
