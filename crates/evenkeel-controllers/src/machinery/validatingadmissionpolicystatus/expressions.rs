//! Type checks of a policy's expressions with each of its kinds. Upstream: `TypeChecker`.

use super::kinds::GroupVersionKind;
use evenkeel_cel::{
    Extensions, Program,
    admission::{self, Variables},
    authorization::AUTHORIZER,
    check::{self, Type, Variable},
};
use k8s_openapi::api::admissionregistration::v1::{
    ExpressionWarning, ValidatingAdmissionPolicySpec,
};

/// Begin of the message of an expression that does not compile.
const ERROR_PREFIX: &str = "compilation failed: ";

/// A kind, and its type in expressions.
pub(super) struct TypedKind {
    pub(super) kind: GroupVersionKind,
    pub(super) object: Type,
}

/// Returns the warnings about a policy's validations. `params` is the type of the parameters; `None` without parameters.
/// Upstream: `TypeChecker.Check`.
pub(super) fn warnings(
    spec: &ValidatingAdmissionPolicySpec,
    kinds: &[TypedKind],
    params: Option<&Type>,
) -> Vec<ExpressionWarning> {
    let environments: Vec<_> =
        kinds.iter().map(|kind| (&kind.kind, variables(spec, &kind.object, params))).collect();
    let mut warnings = Vec::new();
    let mut check = |field_ref: String, expression: &str| {
        let errors = environments.iter().filter_map(|(kind, variables)| {
            let error = type_of(expression, variables).err()?;
            Some(format!("{kind}: {error}\n"))
        });
        let errors: Vec<String> = errors.collect();
        if !errors.is_empty() {
            warnings.push(ExpressionWarning { field_ref, warning: errors.join("\n") });
        }
    };
    for (index, validation) in spec.validations.iter().flatten().enumerate() {
        let path = format!("spec.validations[{index}]");
        check(format!("{path}.expression"), &validation.expression);
        if let Some(message) = validation.message_expression.as_deref().filter(|m| !m.is_empty()) {
            check(format!("{path}.messageExpression"), message);
        }
    }
    warnings
}

/// Returns the variables of a policy's expressions, if `object` is the type of the objects. The policy's own variables are
/// dynamic if they do not compile. Upstream: `buildEnvSet`.
fn variables(
    spec: &ValidatingAdmissionPolicySpec,
    object: &Type,
    params: Option<&Type>,
) -> Vec<Variable> {
    let mut all = vec![
        Variable::new("object", object.clone()),
        Variable::new("oldObject", object.clone()),
        Variable::new("request", admission::request()),
        Variable::new("namespaceObject", admission::namespace()),
        Variable::new("authorizer", Type::Library(AUTHORIZER)),
    ];
    all.extend(params.map(|params| Variable::new("params", params.clone())));
    let mut own = Variables::default();
    for variable in spec.variables.iter().flatten() {
        // A variable may use the variables before it.
        all.push(Variable::new("variables", own.kind()));
        let kind = type_of(&variable.expression, &all);
        all.pop();
        own.declare(&variable.name, &kind.unwrap_or(Type::Dyn));
    }
    all.push(Variable::new("variables", own.kind()));
    all
}

/// Compiles an expression, and returns its type.
///
/// # Errors
/// Returns the errors of the expression, with the messages of cel-go.
fn type_of(expression: &str, variables: &[Variable]) -> Result<Type, String> {
    let program = Program::parse_with(expression, Extensions::default());
    let kind = program.and_then(|program| {
        check::check(&program, variables).map(|checked| checked.kind().clone())
    });
    // Warnings have the errors only.
    kind.map_err(|error| error.strip_prefix(ERROR_PREFIX).map(str::to_owned).unwrap_or(error))
}

#[cfg(test)]
mod tests;
