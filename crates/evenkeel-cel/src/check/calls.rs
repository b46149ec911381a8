//! Type check of calls: resolves which overloads of a function match the types of the arguments.

use cel::common::ast::{CallExpr, Expr, LiteralValue, operators as op};
use cel::parser::Expression;

use super::ResolvedCall;
use super::checker::Checker;
use super::functions::{self, Overload};
use super::types::Type;
use crate::names::{qualified_name, without_dot};

impl<'p> Checker<'_, 'p> {
    /// Determines the types of a call and of its arguments. Upstream: `checkCall`.
    pub(super) fn check_call(&mut self, id: u64, call: &'p CallExpr) {
        let name = call.func_name.as_str();
        if name == op::OPT_SELECT {
            return self.check_optional_field(id, call);
        }
        for argument in &call.args {
            self.check_expression(argument);
        }
        let extensions = self.program.extensions();
        let Some(target) = &call.target else {
            let name = without_dot(name);
            return match functions::find(name, extensions) {
                Some(overloads) => self.resolve_overload(id, name, overloads, None, &call.args),
                None => {
                    self.report_undeclared(id, &call.func_name);
                    self.set_type(id, Type::Error);
                }
            };
        };
        if let Some(namespace) = namespace(target) {
            let full_name = format!("{}.{name}", without_dot(&namespace));
            if let Some(overloads) = functions::find(&full_name, extensions) {
                return self.resolve_overload(id, &full_name, overloads, None, &call.args);
            }
        }
        self.check_expression(target);
        match functions::find(name, extensions) {
            Some(overloads) => self.resolve_overload(id, name, overloads, Some(target), &call.args),
            None => {
                self.set_type(id, Type::Error);
                self.report_undeclared(id, name);
            }
        }
    }

    /// Checks `a.?b`, which the parser represents as a call with the operand and the field's name.
    fn check_optional_field(&mut self, id: u64, call: &'p CallExpr) {
        let [operand, field] = call.args.as_slice() else {
            let message = "unsupported optional field selection: incorrect signature.";
            return self.report(id, format!("{message} argument count: {}", call.args.len()));
        };
        let Expr::Literal(LiteralValue::String(name)) = &field.expr else {
            return self.report(field.id, "unsupported optional field selection: ".to_owned());
        };
        let is_optional = true;
        let kind = self.check_select_field(id, operand, name.inner(), is_optional);
        let kind = self.substitution.resolve(&kind);
        self.set_type(id, kind);
        let overloads = functions::find(op::OPT_SELECT, self.program.extensions());
        let overloads = overloads.unwrap_or_default().iter().collect();
        self.calls.insert(id, ResolvedCall { overloads, is_member: false });
    }

    /// Selects the overloads that match the types of the target and the arguments. Reports a call without a match.
    ///
    /// Upstream: `resolveOverload`.
    fn resolve_overload(
        &mut self,
        id: u64,
        name: &str,
        candidates: &'static [Overload],
        target: Option<&'p Expression>,
        args: &'p [Expression],
    ) {
        let is_member = target.is_some();
        if matches!(name, op::LOGICAL_AND | op::LOGICAL_OR) {
            return self.check_logical_operator(id, candidates, args);
        }
        let argument_types: Vec<Type> =
            target.into_iter().chain(args).map(|argument| self.type_of(argument.id)).collect();
        let mut result: Option<Type> = None;
        let mut overloads = Vec::new();
        for overload in candidates.iter().filter(|overload| overload.is_member == is_member) {
            // This also creates variables for an overload with another number of arguments. Only the numbers of
            // variables therefore differ from upstream's.
            let variables: Vec<Type> =
                (0..overload.n_variables).map(|_| self.substitution.new_variable()).collect();
            let parameter_types: Vec<Type> =
                overload.args.iter().map(|arg| instantiate(arg, &variables)).collect();
            if !self.substitution.unify_all(&argument_types, &parameter_types) {
                continue;
            }
            overloads.push(overload);
            let kind = self.substitution.resolve(&instantiate(&overload.result, &variables));
            // Overloads with different results make the result `dyn`.
            result = Some(match result {
                None => kind,
                Some(earlier @ (Type::Dyn | Type::Any)) => earlier,
                Some(earlier) if earlier == kind => earlier,
                Some(_) => Type::Dyn,
            });
        }
        match result {
            Some(kind) => {
                self.set_type(id, kind);
                self.calls.insert(id, ResolvedCall { overloads, is_member });
            }
            None => {
                let argument_types: Vec<Type> = argument_types
                    .iter()
                    .map(|kind| self.substitution.resolve_with_dyn(kind))
                    .collect();
                let signature = signature(&argument_types, is_member);
                let message =
                    format!("found no matching overload for '{name}' applied to '{signature}'");
                self.report(id, message);
                self.set_type(id, Type::Error);
            }
        }
    }

    /// Checks the operands of `&&` or `||`.
    fn check_logical_operator(
        &mut self,
        id: u64,
        overloads: &'static [Overload],
        operands: &'p [Expression],
    ) {
        let mut kind = Type::Bool;
        for operand in operands {
            let actual = self.type_of(operand.id);
            if !self.substitution.unify(&actual, &Type::Bool) {
                self.report_mismatch(operand.id, &Type::Bool, &actual);
                kind = Type::Error;
            }
        }
        self.set_type(id, kind);
        let overloads = overloads.iter().collect();
        self.calls.insert(id, ResolvedCall { overloads, is_member: false });
    }
}

/// Returns the qualified name that the target of a call forms, which may be the namespace of a function: `sets` in
/// `sets.contains(a, b)`.
pub(super) fn namespace(target: &Expression) -> Option<String> {
    match &target.expr {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) => qualified_name(select),
        _ => None,
    }
}

/// Returns a type of an overload with `variables` in place of the overload's own type variables.
fn instantiate(kind: &Type, variables: &[Type]) -> Type {
    match kind {
        Type::Variable(number) => variables.get(*number as usize).cloned().unwrap_or(Type::Dyn),
        other => other.map_parameters(|parameter| instantiate(parameter, variables)),
    }
}

/// Formats the types of a call's arguments for an error message: `string.(int)` for a method call, else
/// `(string, int)`.
fn signature(argument_types: &[Type], is_member: bool) -> String {
    let names: Vec<String> = argument_types.iter().map(Type::to_string).collect();
    match names.split_first() {
        Some((target, args)) if is_member => format!("{target}.({})", args.join(", ")),
        _ => format!("({})", names.join(", ")),
    }
}
