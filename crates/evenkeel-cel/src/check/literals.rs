//! Checks of literals after the types are known: durations, timestamps, patterns, formats and mixed lists.
//!
//! Upstream: cel-go's `cel/validator.go`.

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedEntryExpr, ListExpr, LiteralValue};
use cel::parser::Expression;

use super::{Checked, Type, format_strings};
use crate::report::Found;
use crate::{Val, functions};

/// State of a walk through an expression.
struct Walk<'c> {
    checked: &'c Checked<'c>,
    found: &'c mut Found,
}

/// Notes what is wrong with the literals of an expression.
pub(super) fn validate(checked: &Checked<'_>, found: &mut Found) {
    Walk { checked, found }.expression(checked.program.expression(), false);
}

impl Walk<'_> {
    /// Walks through an expression. Within the arguments of `format`, lists may be mixed.
    fn expression(&mut self, e: &Expression, is_exempt: bool) {
        match &e.expr {
            Expr::Call(call) => self.call(e.id, call),
            Expr::List(list) if !is_exempt => self.list(list),
            Expr::Map(map) if !is_exempt => self.map(&map.entries),
            _ => {}
        }
        let is_format = matches!(&e.expr, Expr::Call(call) if call.func_name == "format");
        let is_exempt = is_exempt || is_format;
        crate::names::each_part(e, &mut |part| self.expression(part, is_exempt));
    }

    fn report(&mut self, id: u64, what: String) {
        self.found.add(|| self.checked.program.offset(id), what);
    }

    fn call(&mut self, id: u64, call: &CallExpr) {
        let name = crate::names::plain(&call.func_name);
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
            && let Err((place, what)) =
                format_strings::check(self.checked, text.inner(), &list.elements)
        {
            self.report(place.unwrap_or(id), what);
        }
    }

    /// Reports the first element of another type than the first one's.
    fn list(&mut self, list: &ListExpr) {
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

    /// Reports all keys and values of other types than those of the first entry.
    fn map(&mut self, entries: &[IdedEntryExpr]) {
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

    fn kind_of(&self, id: u64, is_optional: bool) -> Type {
        match self.checked.kind_of(id) {
            Type::Optional(of) if is_optional => (**of).clone(),
            kind => kind.clone(),
        }
    }

    fn mismatch(&mut self, id: u64, expected: &Type, actual: &Type) {
        self.report(id, format!("expected type '{expected}' but found '{actual}'"));
    }
}

/// Whether a function can take a literal as its first argument. For `matches` as a function this is the text, which
/// upstream takes for the pattern.
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
