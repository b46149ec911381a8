//! Evaluation of constant conversions and patterns before an expression is first evaluated.
//!
//! Upstream: `decOptimize` and `decRegexOptimizer` of cel-go's `interpreter`.

use cel::common::ast::{CallExpr, EntryExpr, Expr};
use cel::parser::Expression;

use crate::eval::literal;
use crate::{Val, functions, names, patterns};

/// Functions that convert one value.
const CONVERSIONS: [&str; 10] =
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

/// Returns the first error of a conversion of a constant, or of a constant pattern.
pub(super) fn instantiate(e: &Expression) -> Result<(), String> {
    constant(e).map(|_| ())
}

/// Returns the value of an expression that is constant; `None` for others.
fn constant(e: &Expression) -> Result<Option<Val<'_>>, String> {
    match &e.expr {
        Expr::Literal(value) => Ok(Some(literal(value))),
        Expr::Call(call) => of_call(call),
        Expr::List(list) => {
            let mut items = Vec::new();
            let mut is_constant = list.optional_indices.is_empty();
            for element in &list.elements {
                match constant(element)? {
                    Some(item) => items.push(item),
                    None => is_constant = false,
                }
            }
            Ok(is_constant.then(|| Val::list(items)))
        }
        Expr::Map(map) => {
            for entry in &map.entries {
                if let EntryExpr::MapEntry(entry) = &entry.expr {
                    constant(&entry.key)?;
                    constant(&entry.value)?;
                }
            }
            Ok(None)
        }
        _ => {
            let mut result = Ok(());
            names::each_part(e, &mut |part| {
                if result.is_ok() {
                    result = instantiate(part);
                }
            });
            result.map(|()| None)
        }
    }
}

fn of_call(call: &CallExpr) -> Result<Option<Val<'_>>, String> {
    if let Some(target) = &call.target {
        constant(target)?;
    }
    let args: Vec<Option<Val<'_>>> = call.args.iter().map(constant).collect::<Result<_, _>>()?;
    let name = names::plain(&call.func_name);
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
