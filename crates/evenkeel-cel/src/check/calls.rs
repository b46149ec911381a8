//! Which forms of a function a call may mean.

use cel::common::ast::{CallExpr, Expr, LiteralValue, operators as op};
use cel::parser::Expression;

use super::Resolved;
use super::checker::Checker;
use super::functions::{self, Overload};
use super::types::Type;
use crate::names::{plain, spelled};

impl<'p> Checker<'_, 'p> {
    /// Determines the types of a call and of its arguments. Upstream: `checkCall`.
    pub(super) fn call(&mut self, id: u64, call: &'p CallExpr) {
        let name = call.func_name.as_str();
        if name == op::OPT_SELECT {
            return self.optional_field(id, call);
        }
        for argument in &call.args {
            self.expression(argument);
        }
        let extensions = self.program.extensions();
        let Some(target) = &call.target else {
            let name = plain(name);
            return match functions::find(name, extensions) {
                Some(forms) => self.resolved(id, name, forms, None, &call.args),
                None => {
                    self.undeclared(id, &call.func_name);
                    self.set(id, Type::Error);
                }
            };
        };
        if let Some(space) = namespace(target) {
            let full = format!("{}.{name}", plain(&space));
            if let Some(forms) = functions::find(&full, extensions) {
                return self.resolved(id, &full, forms, None, &call.args);
            }
        }
        self.expression(target);
        match functions::find(name, extensions) {
            Some(forms) => self.resolved(id, name, forms, Some(target), &call.args),
            None => {
                self.set(id, Type::Error);
                self.undeclared(id, name);
            }
        }
    }

    /// Checks `a.?b`, which the parser made a call.
    fn optional_field(&mut self, id: u64, call: &'p CallExpr) {
        let [operand, field] = call.args.as_slice() else {
            let what = "unsupported optional field selection: incorrect signature.";
            return self.report(id, format!("{what} argument count: {}", call.args.len()));
        };
        let Expr::Literal(LiteralValue::String(name)) = &field.expr else {
            return self.report(field.id, "unsupported optional field selection: ".to_owned());
        };
        let kind = self.field(id, operand, name.inner(), true);
        let kind = self.known.resolve(&kind);
        self.set(id, kind);
        let forms = functions::find(op::OPT_SELECT, self.program.extensions());
        let overloads = forms.unwrap_or_default().iter().collect();
        self.calls.insert(id, Resolved { overloads, is_member: false });
    }

    /// Upstream: `resolveOverload`.
    fn resolved(
        &mut self,
        id: u64,
        name: &str,
        forms: &'static [Overload],
        target: Option<&'p Expression>,
        args: &'p [Expression],
    ) {
        let is_member = target.is_some();
        if matches!(name, op::LOGICAL_AND | op::LOGICAL_OR) {
            return self.junction(id, forms, args);
        }
        let given: Vec<Type> =
            target.into_iter().chain(args).map(|argument| self.get(argument.id)).collect();
        let mut result: Option<Type> = None;
        let mut overloads = Vec::new();
        for form in forms.iter().filter(|form| form.is_member == is_member) {
            // Variables take numbers even where the counts of arguments differ, which changes no name.
            let fresh: Vec<Type> = (0..form.n_variables).map(|_| self.known.fresh()).collect();
            let wanted: Vec<Type> = form.args.iter().map(|arg| instance(arg, &fresh)).collect();
            if !self.known.are_assignable(&given, &wanted) {
                continue;
            }
            overloads.push(form);
            let found = self.known.resolve(&instance(&form.result, &fresh));
            result = Some(match result {
                None => found,
                Some(known @ (Type::Dyn | Type::Any)) => known,
                Some(known) if known == found => known,
                Some(_) => Type::Dyn,
            });
        }
        match result {
            Some(kind) => {
                self.set(id, kind);
                self.calls.insert(id, Resolved { overloads, is_member });
            }
            None => {
                let given: Vec<Type> = given.iter().map(|kind| self.known.settle(kind)).collect();
                let shown = signature(&given, is_member);
                let what = format!("found no matching overload for '{name}' applied to '{shown}'");
                self.report(id, what);
                self.set(id, Type::Error);
            }
        }
    }

    fn junction(&mut self, id: u64, forms: &'static [Overload], args: &'p [Expression]) {
        let mut kind = Type::Bool;
        for argument in args {
            let found = self.get(argument.id);
            if !self.known.is_assignable(&found, &Type::Bool) {
                self.mismatch(argument.id, &Type::Bool, &found);
                kind = Type::Error;
            }
        }
        self.set(id, kind);
        self.calls.insert(id, Resolved { overloads: forms.iter().collect(), is_member: false });
    }
}

/// Returns the qualified name that the target of a call spells.
pub(super) fn namespace(target: &Expression) -> Option<String> {
    match &target.expr {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) => spelled(select),
        _ => None,
    }
}

/// Returns a type of a form with fresh variables for its own.
fn instance(kind: &Type, fresh: &[Type]) -> Type {
    match kind {
        Type::Variable(number) => fresh.get(*number as usize).cloned().unwrap_or(Type::Dyn),
        other => other.with_parts(|part| instance(part, fresh)),
    }
}

fn signature(given: &[Type], is_member: bool) -> String {
    let shown: Vec<String> = given.iter().map(Type::to_string).collect();
    match shown.split_first() {
        Some((target, args)) if is_member => format!("{target}.({})", args.join(", ")),
        _ => format!("({})", shown.join(", ")),
    }
}
