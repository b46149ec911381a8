//! Operators and methods that do not evaluate all of their operands.

use cel::common::ast::{CallExpr, operators as op};
use cel::parser::Expression;

use super::eval::{Failure, Result_, Run, STEP};
use super::value::Val;

impl<'a> Run<'a> {
    /// Evaluates an operator that does not evaluate all operands; `None` for other operators.
    pub(super) fn logic(&mut self, name: &str, args: &'a [Expression]) -> Option<Result_<'a>> {
        Some(match (name, args) {
            (op::LOGICAL_AND, [a, b]) => self.junction(a, b, false),
            (op::LOGICAL_OR, [a, b]) => self.junction(a, b, true),
            (op::CONDITIONAL, [condition, a, b]) => match self.value(condition) {
                Ok(Val::Bool(true)) => self.value(a),
                Ok(Val::Bool(false)) => self.value(b),
                Ok(_) => Err(Failure::Error("no such overload".to_owned())),
                Err(failure) => Err(failure),
            },
            (op::NOT_STRICTLY_FALSE, [a]) => match (self.value(a), self.pay(STEP)) {
                (Err(Failure::Cost), _) | (_, Err(_)) => Err(Failure::Cost),
                (Ok(Val::Bool(false)), _) => Ok(Val::Bool(false)),
                _ => Ok(Val::Bool(true)),
            },
            _ => return None,
        })
    }

    /// Evaluates `or` and `orValue`, whose argument is evaluated only without a value; `None` for other calls.
    pub(super) fn alternative(&mut self, call: &'a CallExpr) -> Option<Result_<'a>> {
        let (Some(target), [other]) = (call.target.as_deref(), call.args.as_slice()) else {
            return None;
        };
        if !matches!(call.func_name.as_str(), "or" | "orValue") {
            return None;
        }
        let found = match self.value(target) {
            Ok(found) => found,
            Err(failure) => return Some(Err(failure)),
        };
        if let Err(failure) = self.pay(STEP) {
            return Some(Err(failure));
        }
        Some(match found {
            Val::Optional(None) => self.value(other),
            found @ Val::Optional(Some(_)) if call.func_name == "or" => Ok(found),
            Val::Optional(Some(value)) => Ok((*value).clone()),
            _ => Err(Failure::Error("no such overload".to_owned())),
        })
    }

    /// Evaluates `&&` or `||`: one operand may decide the result even if the other fails.
    fn junction(&mut self, a: &'a Expression, b: &'a Expression, decides: bool) -> Result_<'a> {
        let first = self.value(a);
        match &first {
            Ok(Val::Bool(value)) if *value == decides => return Ok(Val::Bool(decides)),
            Err(Failure::Cost) => return first,
            _ => {}
        }
        let second = self.value(b);
        match (&first, second) {
            (_, Ok(Val::Bool(value))) if value == decides => Ok(Val::Bool(decides)),
            (_, Err(Failure::Cost)) => Err(Failure::Cost),
            (Ok(Val::Bool(_)), Ok(Val::Bool(_))) => Ok(Val::Bool(!decides)),
            (Err(_), _) => first,
            (_, Err(failure)) => Err(failure),
            _ => Err(Failure::Error("no such overload".to_owned())),
        }
    }
}
