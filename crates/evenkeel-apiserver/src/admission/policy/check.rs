//! Checks that the CEL expressions of policies and webhook configurations compile and have the expected types.

use serde_json::Value;

use crate::admission::attributes::GROUP;
use crate::resource::ResourceType;
use evenkeel_apimachinery::status::FieldError;
use evenkeel_apimachinery::value::{get, list, text};
use evenkeel_cel::admission::{Variables, namespace, request};
use evenkeel_cel::authorization::{AUTHORIZER, RESOURCE_CHECK};
use evenkeel_cel::check::{Type, Variable, check};
use evenkeel_cel::{Extensions, Program};

/// Maximum number of match conditions of a webhook or a policy.
const MAX_MATCH_CONDITIONS: usize = 64;

/// Returns errors in the expressions of a policy or of a webhook configuration.
pub(crate) fn expression_errors(resource: &ResourceType, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if resource.group() != GROUP {
        return errors;
    }
    match resource.plural() {
        "validatingadmissionpolicies" => check_policy(object, false, &mut errors),
        "mutatingadmissionpolicies" => check_policy(object, true, &mut errors),
        "validatingwebhookconfigurations" | "mutatingwebhookconfigurations" => {
            let environment = Environment {
                params: false,
                authorizer: true,
                has_patch_types: false,
                variables: None,
            };
            for (i, webhook) in list(object, "webhooks").iter().enumerate() {
                let path = format!("webhooks[{i}].matchConditions");
                check_match_conditions(webhook, &environment, &path, &mut errors);
            }
        }
        _ => {}
    }
    errors
}

/// Checks the `matchConditions` of a policy's spec or of a webhook. `path` is the path of the list in errors.
///
/// Upstream: `validateMatchConditions`.
fn check_match_conditions(
    spec_or_webhook: &Value,
    environment: &Environment<'_>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let conditions = list(spec_or_webhook, "matchConditions");
    if conditions.len() > MAX_MATCH_CONDITIONS {
        let (count, max) = (conditions.len() as u64, MAX_MATCH_CONDITIONS as u64);
        errors.push(FieldError::too_many(path, count, max));
    }
    for (i, condition) in conditions.iter().enumerate() {
        let expression = text(condition, "expression").trim();
        let path = format!("{path}[{i}].expression");
        environment.check_expression(expression, expression, ExpectedType::Bool, &path, errors);
    }
}

/// Checks the expressions of a policy. `mutates` is whether it is a MutatingAdmissionPolicy, and not a
/// ValidatingAdmissionPolicy.
fn check_policy(object: &Value, mutates: bool, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    let params = get(spec, "paramKind").is_some();
    let without_variables =
        Environment { params, authorizer: true, has_patch_types: mutates, variables: None };
    check_match_conditions(spec, &without_variables, "spec.matchConditions", errors);
    let mut variables = Variables::default();
    for (i, variable) in list(spec, "variables").iter().enumerate() {
        let expression = text(variable, "expression");
        let path = format!("spec.variables[{i}].expression");
        if expression.trim().is_empty() {
            continue;
        }
        // A variable may use the variables before it.
        let variable_type = {
            let declared = variables.kind();
            let environment = Environment { variables: Some(&declared), ..without_variables };
            environment.check_expression(expression, expression, ExpectedType::Any, &path, errors)
        };
        // A variable that does not compile gets the type `dyn`, so that its uses report no further errors.
        variables.declare(text(variable, "name"), &variable_type.unwrap_or(Type::Dyn));
    }
    let has_variables = mutates || !list(spec, "variables").is_empty();
    let declared = has_variables.then(|| variables.kind());
    let environment = Environment { variables: declared.as_ref(), ..without_variables };
    if mutates {
        check_mutations(spec, &environment, errors);
        return;
    }
    let message_environment = Environment { authorizer: false, ..environment };
    for (i, validation) in list(spec, "validations").iter().enumerate() {
        for (field, expected, environment) in [
            ("expression", ExpectedType::Bool, &environment),
            ("messageExpression", ExpectedType::Text, &message_environment),
        ] {
            let expression = text(validation, field);
            let path = format!("spec.validations[{i}].{field}");
            environment.check_expression(expression, expression, expected, &path, errors);
        }
    }
    for (i, annotation) in list(spec, "auditAnnotations").iter().enumerate() {
        let expression = text(annotation, "valueExpression");
        let path = format!("spec.auditAnnotations[{i}].valueExpression");
        let expected = ExpectedType::TextOrNull;
        environment.check_expression(expression.trim(), expression, expected, &path, errors);
    }
}

/// Checks the mutations of a MutatingAdmissionPolicy.
fn check_mutations(spec: &Value, environment: &Environment<'_>, errors: &mut Vec<FieldError>) {
    for (i, mutation) in list(spec, "mutations").iter().enumerate() {
        for (patch_field, expected) in [
            ("jsonPatch", ExpectedType::Patch),
            ("applyConfiguration", ExpectedType::Configuration),
        ] {
            let Some(patch) = get(mutation, patch_field) else { continue };
            let expression = text(patch, "expression").trim();
            let path = format!("spec.mutations[{i}].{patch_field}.expression");
            environment.check_expression(expression, expression, expected, &path, errors);
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
    /// Returns the error for an expression of type `found`; `None` if the type is allowed.
    fn type_error(self, found: &Type) -> Option<String> {
        let (is_allowed, expected_name) = match self {
            Self::Any => return None,
            Self::Bool => (matches!(found, Type::Bool), "bool"),
            Self::Text => (matches!(found, Type::Str), "string"),
            Self::TextOrNull => {
                (matches!(found, Type::Str | Type::Null), "one of [string null_type]")
            }
            Self::Patch => (found.declared_name() == "list(JSONPatch)", "list(JSONPatch)"),
            Self::Configuration => (found.declared_name() == "Object", "Object"),
        };
        if is_allowed {
            return None;
        }
        let found = found.declared_name();
        Some(format!("must evaluate to {expected_name} but got {found}"))
    }
}

/// CEL environment of an expression: the optional variables and types, in addition to the variables that every
/// expression has.
#[derive(Clone, Copy)]
struct Environment<'a> {
    /// Whether `params` is declared.
    params: bool,
    /// Whether `authorizer` is declared.
    authorizer: bool,
    /// Whether the types of patches (`JSONPatch`, `Object`) are declared.
    has_patch_types: bool,
    /// Type of `variables`; `None` if it is not declared.
    variables: Option<&'a Type>,
}

impl Environment<'_> {
    /// Compiles an expression and returns its type; `None` if it is blank or invalid. Errors show `value` in place of
    /// `expression`.
    ///
    /// Upstream: `CompileCELExpression`.
    fn check_expression(
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
        let extensions = Extensions { patches: self.has_patch_types, ..Extensions::default() };
        let invalid = |why: String| FieldError::invalid(field, value, why);
        let compiled =
            Program::parse_with(expression, extensions).map_err(invalid).and_then(|program| {
                let checked = check(&program, &self.declarations()).map_err(invalid)?;
                if let Some(why) = expected.type_error(checked.kind()) {
                    return Err(invalid(why));
                }
                checked.instantiate().map_err(|why| FieldError::internal(field, why))?;
                Ok(checked.kind().clone())
            });
        compiled.map_err(|error| errors.push(error)).ok()
    }

    /// Returns the declared variables.
    fn declarations(&self) -> Vec<Variable> {
        let mut declarations = vec![
            Variable::new("object", Type::Dyn),
            Variable::new("oldObject", Type::Dyn),
            Variable::new("request", request()),
            Variable::new("namespaceObject", namespace()),
        ];
        if self.params {
            declarations.push(Variable::new("params", Type::Dyn));
        }
        if self.authorizer {
            declarations.push(Variable::new("authorizer", Type::Library(AUTHORIZER)));
            let check = Type::Library(RESOURCE_CHECK);
            declarations.push(Variable::new("authorizer.requestResource", check));
        }
        if let Some(variables) = self.variables {
            declarations.push(Variable::new("variables", variables.clone()));
        }
        declarations
    }
}

#[cfg(test)]
mod tests;
