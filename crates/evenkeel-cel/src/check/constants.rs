//! Evaluation of constant conversions and patterns before an expression is first evaluated.
//!
//! Upstream: `decOptimize` and `decRegexOptimizer` of cel-go's `interpreter`.

use cel::common::ast::{CallExpr, EntryExpr, Expr};
use cel::parser::Expression;

use crate::eval::literal;
use crate::{Val, functions, names, patterns};

/// Functions that convert one value. Calls with a constant argument are evaluated before the first evaluation.
const CONVERSIONS: [&str; 10] =
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

/// Evaluates the conversions of constants and compiles the constant patterns in an expression. Returns the first error.
pub(super) fn instantiate(expression: &Expression) -> Result<(), String> {
    constant_value(expression).map(|_| ())
}

/// Returns the value of a constant expression; `None` for others. Fails with the first error of a constant within it.
fn constant_value(expression: &Expression) -> Result<Option<Val<'_>>, String> {
    match &expression.expr {
        Expr::Literal(value) => Ok(Some(literal(value))),
        Expr::Call(call) => converted_constant(call),
        Expr::List(list) => {
            let mut items = Vec::new();
            let mut is_constant = list.optional_indices.is_empty();
            for element in &list.elements {
                match constant_value(element)? {
                    Some(item) => items.push(item),
                    None => is_constant = false,
                }
            }
            Ok(is_constant.then(|| Val::list(items)))
        }
        Expr::Map(map) => {
            for entry in &map.entries {
                if let EntryExpr::MapEntry(entry) = &entry.expr {
                    constant_value(&entry.key)?;
                    constant_value(&entry.value)?;
                }
            }
            Ok(None)
        }
        _ => {
            let mut result = Ok(());
            names::each_child(expression, &mut |child| {
                if result.is_ok() {
                    result = instantiate(child);
                }
            });
            result.map(|()| None)
        }
    }
}

/// Returns the value of a call that converts a constant; `None` for other calls.
fn converted_constant(call: &CallExpr) -> Result<Option<Val<'_>>, String> {
    if let Some(target) = &call.target {
        constant_value(target)?;
    }
    let args: Vec<Option<Val<'_>>> =
        call.args.iter().map(constant_value).collect::<Result<_, _>>()?;
    let name = names::without_dot(&call.func_name);
    let pattern = match (name, &call.target, args.as_slice()) {
        ("matches", None, [_, pattern])
        | ("find" | "findAll" | "matches", Some(_), [pattern, ..]) => pattern.as_ref(),
        _ => None,
    };
    if let Some(Val::Str(pattern)) = pattern {
        patterns::check(pattern)?;
    }
    match (&call.target, args.as_slice()) {
        (None, [Some(value)]) if CONVERSIONS.contains(&name) => {
            functions::global(name, std::slice::from_ref(value)).transpose()
        }
        _ => Ok(None),
    }
}
