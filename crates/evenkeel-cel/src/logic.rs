//! Operators and methods that do not evaluate all of their operands.

use cel::common::ast::{CallExpr, operators as op};
use cel::parser::Expression;

use super::eval::{EvalResult, Evaluator, Failure, STEP_COST};
use super::value::Val;

impl<'a> Evaluator<'a> {
    /// Evaluates an operator that does not evaluate all operands; `None` for other operators.
    pub(super) fn lazy_operator(
        &mut self,
        name: &str,
        args: &'a [Expression],
    ) -> Option<EvalResult<'a>> {
        Some(match (name, args) {
            (op::LOGICAL_AND, [a, b]) => self.junction(a, b, false),
            (op::LOGICAL_OR, [a, b]) => self.junction(a, b, true),
            (op::CONDITIONAL, [condition, a, b]) => match self.evaluate(condition) {
                Ok(Val::Bool(true)) => self.evaluate(a),
                Ok(Val::Bool(false)) => self.evaluate(b),
                Ok(_) => Err(Failure::Error("no such overload".to_owned())),
                Err(failure) => Err(failure),
            },
            (op::NOT_STRICTLY_FALSE, [a]) => match (self.evaluate(a), self.charge(STEP_COST)) {
                (Err(Failure::BudgetExceeded), _) | (_, Err(_)) => Err(Failure::BudgetExceeded),
                (Ok(Val::Bool(false)), _) => Ok(Val::Bool(false)),
                _ => Ok(Val::Bool(true)),
            },
            _ => return None,
        })
    }

    /// Evaluates the methods `or` and `orValue` of an optional value, which evaluate their argument only if the value
    /// is absent; `None` for other calls.
    pub(super) fn lazy_method(&mut self, call: &'a CallExpr) -> Option<EvalResult<'a>> {
        let (Some(target), [alternative]) = (call.target.as_deref(), call.args.as_slice()) else {
            return None;
        };
        if !matches!(call.func_name.as_str(), "or" | "orValue") {
            return None;
        }
        let found = match self.evaluate(target) {
            Ok(found) => found,
            Err(failure) => return Some(Err(failure)),
        };
        if let Err(failure) = self.charge(STEP_COST) {
            return Some(Err(failure));
        }
        Some(match found {
            Val::Optional(None) => self.evaluate(alternative),
            found @ Val::Optional(Some(_)) if call.func_name == "or" => Ok(found),
            Val::Optional(Some(value)) => Ok((*value).clone()),
            _ => Err(Failure::Error("no such overload".to_owned())),
        })
    }

    /// Evaluates `&&` or `||`. An operand with the value `decisive`, false for `&&` and true for `||`, decides the
    /// result even if the other operand fails.
    fn junction(&mut self, a: &'a Expression, b: &'a Expression, decisive: bool) -> EvalResult<'a> {
        let first = self.evaluate(a);
        match &first {
            Ok(Val::Bool(value)) if *value == decisive => return Ok(Val::Bool(decisive)),
            Err(Failure::BudgetExceeded) => return first,
            _ => {}
        }
        let second = self.evaluate(b);
        match (&first, second) {
            (_, Ok(Val::Bool(value))) if value == decisive => Ok(Val::Bool(decisive)),
            (_, Err(Failure::BudgetExceeded)) => Err(Failure::BudgetExceeded),
            (Ok(Val::Bool(_)), Ok(Val::Bool(_))) => Ok(Val::Bool(!decisive)),
            (Err(_), _) => first,
            (_, Err(failure)) => Err(failure),
            _ => Err(Failure::Error("no such overload".to_owned())),
        }
    }
}
