//! Checks of the arguments that a literal passes to the method `format`.
//!
//! Upstream: `stringFormatValidator` of cel-go's `ext/formatting.go`.

use cel::common::ast::{EntryExpr, Expr};
use cel::parser::Expression;

use super::{Checked, Type};
use crate::functions::format_clause;

/// What is wrong, and the part of the expression that it is about if it is not the call.
type Wrong = (Option<u64>, String);

/// Checks that each clause of a format has an argument of a type that it can show.
pub(super) fn check(checked: &Checked<'_>, text: &str, args: &[Expression]) -> Result<(), Wrong> {
    let call = |what: String| (None, what);
    let mut rest = text;
    let mut index = 0;
    while let Some((_, after)) = rest.split_once('%') {
        if let Some(after) = after.strip_prefix('%') {
            rest = after;
            continue;
        }
        if after.is_empty() {
            return Err(call("unexpected end of string".to_owned()));
        }
        let argument =
            args.get(index).ok_or_else(|| call(format!("index {index} out of range")))?;
        let (verb, _, after) = format_clause(after)
            .map_err(|error| call(format!("could not parse formatting clause: {error}")))?;
        takes(checked, verb, argument)
            .map_err(|(place, what)| (place, format!("error during formatting: {what}")))?;
        rest = after;
        index += 1;
    }
    if args.len() > index {
        let what = "too many arguments supplied to string.format";
        return Err(call(format!("{what} (expected {index}, got {})", args.len())));
    }
    Ok(())
}

fn takes(checked: &Checked<'_>, verb: char, argument: &Expression) -> Result<(), Wrong> {
    let kind = checked.kind_of(argument.id);
    let (fits, what) = match verb {
        's' => return shown(checked, argument),
        'd' => {
            (matches!(kind, Type::Int | Type::Uint), "decimal clause can only be used on integers")
        }
        'f' => (
            matches!(kind, Type::Double | Type::Str),
            "fixed-point clause can only be used on doubles",
        ),
        'e' => (
            matches!(kind, Type::Double | Type::Str),
            "scientific clause can only be used on doubles",
        ),
        'b' => (
            matches!(kind, Type::Int | Type::Uint | Type::Bool),
            "only integers and bools can be formatted as binary",
        ),
        'o' => {
            (matches!(kind, Type::Int | Type::Uint), "octal clause can only be used on integers")
        }
        _ => (
            matches!(kind, Type::Int | Type::Uint | Type::Str | Type::Bytes),
            "only integers, byte buffers, and strings can be formatted as hex",
        ),
    };
    if fits || *kind == Type::Dyn {
        return Ok(());
    }
    Err((Some(argument.id), format!("{what}, was given {}", kind.runtime_name())))
}

/// Checks an argument of `%s`, and the elements of a literal that it is.
fn shown(checked: &Checked<'_>, e: &Expression) -> Result<(), Wrong> {
    let kind = checked.kind_of(e.id);
    if matches!(kind, Type::Object(_) | Type::Library(_) | Type::Optional(_)) {
        let what = "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps";
        return Err((Some(e.id), format!("{what}, was given {}", kind.runtime_name())));
    }
    match &e.expr {
        Expr::List(list) => list.elements.iter().try_for_each(|item| shown(checked, item)),
        Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => {
                shown(checked, &entry.key)?;
                shown(checked, &entry.value)
            }
            EntryExpr::StructField(_) => Ok(()),
        }),
        _ => Ok(()),
    }
}
