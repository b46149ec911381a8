//! Checks of the arguments that a literal passes to the method `format`.
//!
//! Upstream: `stringFormatValidator` of cel-go's `ext/formatting.go`.

use cel::common::ast::{EntryExpr, Expr};
use cel::parser::Expression;

use super::{Checked, Type};
use crate::functions::format_clause;

/// Error in a call of `format`.
pub(super) struct FormatError {
    /// ID of the argument with the error; `None` for an error of the call.
    pub(super) argument_id: Option<u64>,
    pub(super) message: String,
}

/// Checks that each formatting clause of `text` has an argument of a type that it can format.
pub(super) fn check(
    checked: &Checked<'_>,
    text: &str,
    args: &[Expression],
) -> Result<(), FormatError> {
    let about_call = |message: String| FormatError { argument_id: None, message };
    let mut rest = text;
    let mut index = 0;
    while let Some((_, after)) = rest.split_once('%') {
        if let Some(after) = after.strip_prefix('%') {
            rest = after;
            continue;
        }
        if after.is_empty() {
            return Err(about_call("unexpected end of string".to_owned()));
        }
        let argument =
            args.get(index).ok_or_else(|| about_call(format!("index {index} out of range")))?;
        let (verb, _, after) = format_clause(after)
            .map_err(|error| about_call(format!("could not parse formatting clause: {error}")))?;
        check_argument(checked, verb, argument).map_err(|error| FormatError {
            message: format!("error during formatting: {}", error.message),
            ..error
        })?;
        rest = after;
        index += 1;
    }
    if args.len() > index {
        let message = "too many arguments supplied to string.format";
        return Err(about_call(format!("{message} (expected {index}, got {})", args.len())));
    }
    Ok(())
}

/// Checks that the verb of a clause, such as `d` of `%d`, can format an argument of this type.
fn check_argument(
    checked: &Checked<'_>,
    verb: char,
    argument: &Expression,
) -> Result<(), FormatError> {
    let kind = checked.kind_of(argument.id);
    let (fits, requirement) = match verb {
        's' => return check_string_argument(checked, argument),
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
    Err(unsupported(argument, requirement, kind))
}

/// Returns the error of an argument whose type does not meet the requirement of its clause.
fn unsupported(argument: &Expression, requirement: &str, kind: &Type) -> FormatError {
    let message = format!("{requirement}, was given {}", kind.runtime_name());
    FormatError { argument_id: Some(argument.id), message }
}

/// Checks an argument of `%s`. If it is a list or map literal, checks its elements, too.
fn check_string_argument(checked: &Checked<'_>, e: &Expression) -> Result<(), FormatError> {
    let kind = checked.kind_of(e.id);
    if matches!(kind, Type::Object(_) | Type::Library(_) | Type::Optional(_)) {
        let requirement = "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps";
        return Err(unsupported(e, requirement, kind));
    }
    match &e.expr {
        Expr::List(list) => {
            for element in &list.elements {
                check_string_argument(checked, element)?;
            }
        }
        Expr::Map(map) => {
            for entry in &map.entries {
                if let EntryExpr::MapEntry(entry) = &entry.expr {
                    check_string_argument(checked, &entry.key)?;
                    check_string_argument(checked, &entry.value)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}
