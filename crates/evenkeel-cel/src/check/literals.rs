//! Checks of literals after the types are known: durations, timestamps, patterns, formats and mixed lists.
//!
//! Upstream: cel-go's `cel/validator.go`.

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedEntryExpr, ListExpr, LiteralValue};
use cel::parser::Expression;

use super::{Checked, Type, format_strings};
use crate::report::Errors;
use crate::{Val, functions};

/// Validator of the literals in an expression.
struct Validator<'c> {
    checked: &'c Checked<'c>,
    errors: &'c mut Errors,
}

/// Adds the errors in the literals of an expression to `errors`.
pub(super) fn validate(checked: &Checked<'_>, errors: &mut Errors) {
    let within_format = false;
    Validator { checked, errors }.check_expression(checked.program.expression(), within_format);
}

impl Validator<'_> {
    /// Checks an expression and its subexpressions. Within the arguments of `format`, the elements of a list or map may
    /// have different types.
    fn check_expression(&mut self, expression: &Expression, within_format: bool) {
        match &expression.expr {
            Expr::Call(call) => self.check_call(expression.id, call),
            Expr::List(list) if !within_format => self.check_list(list),
            Expr::Map(map) if !within_format => self.check_map(&map.entries),
            _ => {}
        }
        let is_format = matches!(&expression.expr, Expr::Call(call) if call.func_name == "format");
        let within_format = within_format || is_format;
        crate::names::each_child(expression, &mut |child| {
            self.check_expression(child, within_format);
        });
    }

    fn report(&mut self, id: u64, message: String) {
        self.errors.add(|| self.checked.program.location(id), message);
    }

    /// Checks a constant first argument, and the arguments of `format`.
    fn check_call(&mut self, id: u64, call: &CallExpr) {
        let name = crate::names::without_dot(&call.func_name);
        if let Some(argument) = call.args.first()
            && let Expr::Literal(value) = &argument.expr
            && !is_valid(name, value)
        {
            self.report(argument.id, format!("invalid {name} argument"));
        }
        if name == "format"
            && let Some(target) = &call.target
            && let Expr::Literal(LiteralValue::String(text)) = &target.expr
            && let [argument] = call.args.as_slice()
            && let Expr::List(list) = &argument.expr
            && let Err(error) = format_strings::check(self.checked, text.inner(), &list.elements)
        {
            self.report(error.argument_id.unwrap_or(id), error.message);
        }
    }

    /// Reports the first element whose type differs from that of the first element.
    fn check_list(&mut self, list: &ListExpr) {
        let mut first: Option<Type> = None;
        for (i, element) in list.elements.iter().enumerate() {
            let is_optional = list.optional_indices.contains(&i);
            let kind = self.kind_of(element.id, is_optional);
            match &first {
                None => first = Some(kind),
                Some(first) if *first == kind => {}
                Some(first) => return self.mismatch(element.id, first, &kind),
            }
        }
    }

    /// Reports all keys and values whose types differ from those of the first entry.
    fn check_map(&mut self, entries: &[IdedEntryExpr]) {
        let mut first: Option<(Type, Type)> = None;
        for entry in entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
            let key = self.kind_of(entry.key.id, false);
            let value = self.kind_of(entry.value.id, entry.optional);
            let Some((first_key, first_value)) = &first else {
                first = Some((key, value));
                continue;
            };
            if *first_key != key {
                self.mismatch(entry.key.id, first_key, &key);
            }
            if *first_value != value {
                self.mismatch(entry.value.id, first_value, &value);
            }
        }
    }

    /// Returns the type of an element. For an optional element such as `?x`, returns the type of the value in `x`.
    fn kind_of(&self, id: u64, is_optional: bool) -> Type {
        match self.checked.kind_of(id) {
            Type::Optional(parameter) if is_optional => (**parameter).clone(),
            kind => kind.clone(),
        }
    }

    fn mismatch(&mut self, id: u64, expected: &Type, actual: &Type) {
        self.report(id, format!("expected type '{expected}' but found '{actual}'"));
    }
}

/// Returns whether a literal is a valid first argument of a function. In `matches(text, pattern)`, upstream checks
/// `text` as if it were the pattern, and so does this function.
fn is_valid(name: &str, value: &LiteralValue) -> bool {
    let argument = match (name, value) {
        ("duration" | "timestamp", LiteralValue::String(text)) => Val::borrowed(text.inner()),
        ("timestamp", LiteralValue::Int(seconds)) => Val::Int(*seconds.inner()),
        ("matches", LiteralValue::String(pattern)) => {
            return functions::is_pattern(pattern.inner());
        }
        _ => return true,
    };
    functions::global(name, &[argument]).is_none_or(|result| result.is_ok())
}
