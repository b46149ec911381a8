//! Expansion of the macros that bind a variable: `cel.bind`, `optMap`, `optFlatMap` and `sortBy`.
//!
//! Upstream: cel-go's `ext/bindings.go`, `ext/lists.go` and `cel/library.go`.

use cel::common::ast::{
    CallExpr, ComprehensionExpr, Expr, ListExpr, LiteralValue, operators as op,
};
use cel::parser::Expression;

use crate::Extensions;
use crate::macros::ACCUMULATOR;
use crate::parse::Offsets;
use crate::report::{Found, Location};

/// Variable of a loop over nothing, which expressions cannot spell.
const UNUSED: &str = "#unused";
/// Variable for the list of `sortBy`, which expressions cannot spell.
const SORTED: &str = "@__sortBy_input__";
/// Method that sorts a list by a list of keys. Expressions cannot spell it.
pub(crate) const SORT_BY_KEYS: &str = "@sortByAssociatedKeys";

/// Maximum number of parts of an expression that was expanded: `optMap` and `optFlatMap` repeat what is before them.
const MAX_PARTS: usize = 100_000;

/// State of an expansion.
struct Expansion<'e> {
    source: &'e str,
    extensions: Extensions,
    offsets: &'e mut Offsets,
    found: &'e mut Found,
}

/// Expands all macros of an expression.
pub(crate) fn macros(
    mut expression: Expression,
    source: &str,
    extensions: Extensions,
    offsets: &mut Offsets,
    found: &mut Found,
) -> Expression {
    Expansion { source, extensions, offsets, found }.expression(&mut expression);
    expression
}

impl Expansion<'_> {
    /// Expands an expression, its parts first.
    fn expression(&mut self, e: &mut Expression) {
        crate::names::each_part_mut(e, &mut |part| self.expression(part));
        let id = e.id;
        let Expr::Call(call) = &mut e.expr else { return };
        let Some(target) = call.target.as_deref() else { return };
        let is_cel = matches!(&target.expr, Expr::Ident(name) if name == "cel");
        let made = match (call.func_name.as_str(), call.args.len()) {
            ("bind", 3) if is_cel && self.extensions.bindings => self.bind(id, call),
            ("optMap", 2) => self.optional(id, call, true),
            ("optFlatMap", 2) => self.optional(id, call, false),
            ("sortBy", 2) => self.sort_by(id, call),
            _ => return,
        };
        if let Some(made) = made {
            *e = made;
        }
    }

    fn report(&mut self, id: u64, what: &str) {
        let offset = self.offsets.get(id);
        let place =
            || offset.map_or(Location::NONE, |offset| Location::of_offset(self.source, offset));
        self.found.add(place, what.to_owned());
    }

    fn make(&mut self, at: u64, expr: Expr) -> Expression {
        Expression { id: self.offsets.next(at), expr }
    }

    fn call(&mut self, at: u64, name: &str, args: Vec<Expression>) -> Expression {
        let call = CallExpr { func_name: name.to_owned(), target: None, args };
        self.make(at, Expr::Call(call))
    }

    fn method(&mut self, at: u64, name: &str, target: Expression) -> Expression {
        let target = Some(Box::new(target));
        self.make(at, Expr::Call(CallExpr { func_name: name.to_owned(), target, args: Vec::new() }))
    }

    /// Returns the call of a function with a namespace.
    fn function(&mut self, at: u64, space: &str, name: &str, args: Vec<Expression>) -> Expression {
        let target = Some(Box::new(self.make(at, Expr::Ident(space.to_owned()))));
        self.make(at, Expr::Call(CallExpr { func_name: name.to_owned(), target, args }))
    }

    /// Returns a copy of an expression whose parts have numbers of their own.
    fn copy(&mut self, of: &Expression) -> Expression {
        let mut copy = of.clone();
        self.renumber(&mut copy);
        copy
    }

    fn renumber(&mut self, e: &mut Expression) {
        e.id = self.offsets.next(e.id);
        crate::names::each_part_mut(e, &mut |part| self.renumber(part));
    }

    /// Returns an expression in which a variable has a value.
    fn binding(
        &mut self,
        at: u64,
        variable: &str,
        value: Expression,
        result: Expression,
    ) -> Expression {
        let comprehension = ComprehensionExpr {
            iter_range: self.make(at, Expr::List(ListExpr::new(Vec::new()))),
            iter_var: UNUSED.to_owned(),
            iter_var2: None,
            accu_var: variable.to_owned(),
            accu_init: value,
            loop_cond: self.make(at, Expr::Literal(LiteralValue::Boolean(false.into()))),
            loop_step: self.make(at, Expr::Ident(variable.to_owned())),
            result,
        };
        self.make(at, Expr::Comprehension(Box::new(comprehension)))
    }

    /// Returns the name that an argument is.
    fn variable(&mut self, argument: &Expression, what: &str) -> Option<String> {
        if let Expr::Ident(name) = &argument.expr {
            return Some(name.clone());
        }
        self.report(argument.id, what);
        None
    }

    fn bind(&mut self, id: u64, call: &mut CallExpr) -> Option<Expression> {
        let what = "cel.bind() variable names must be simple identifiers";
        let name = self.variable(call.args.first()?, what)?;
        let (result, value) = (call.args.pop()?, call.args.pop()?);
        Some(self.binding(id, &name, value, result))
    }

    fn optional(&mut self, id: u64, call: &mut CallExpr, wraps: bool) -> Option<Expression> {
        let what = format!("{}() variable name must be a simple identifier", call.func_name);
        let name = self.variable(call.args.first()?, &what)?;
        let (body, target) = (call.args.pop()?, *call.target.take()?);
        if self.offsets.len() + count(&target) > MAX_PARTS {
            self.report(id, "expression size exceeds limit after the expansion of macros");
            return None;
        }
        let again = self.copy(&target);
        let has_value = self.method(id, "hasValue", target);
        let value = self.method(id, "value", again);
        let mut mapped = self.binding(id, &name, value, body);
        if wraps {
            mapped = self.function(id, "optional", "of", vec![mapped]);
        }
        let none = self.function(id, "optional", "none", Vec::new());
        Some(self.call(id, op::CONDITIONAL, vec![has_value, mapped, none]))
    }

    fn sort_by(&mut self, id: u64, call: &mut CallExpr) -> Option<Expression> {
        let target = *call.target.take()?;
        if matches!(target.expr, Expr::Literal(_) | Expr::Map(_) | Expr::Struct(_)) {
            let what = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            self.report(target.id, what);
            return None;
        }
        let name = self.variable(call.args.first()?, "argument is not an identifier")?;
        if matches!(name.as_str(), ACCUMULATOR | "__result__") {
            let at = call.args.first()?.id;
            self.report(at, "iteration variable overwrites accumulator variable");
            return None;
        }
        let body = call.args.pop()?;
        let keys = self.mapped(id, name, body);
        let list = self.make(id, Expr::Ident(SORTED.to_owned()));
        let sorted = CallExpr {
            func_name: SORT_BY_KEYS.to_owned(),
            target: Some(Box::new(list)),
            args: vec![keys],
        };
        let sorted = self.make(id, Expr::Call(sorted));
        Some(self.binding(id, SORTED, target, sorted))
    }

    /// Returns the list of what an expression is for each element of the list of `sortBy`.
    fn mapped(&mut self, at: u64, variable: String, body: Expression) -> Expression {
        let iter_range = self.make(at, Expr::Ident(SORTED.to_owned()));
        let so_far = self.make(at, Expr::Ident(ACCUMULATOR.to_owned()));
        let one = self.make(at, Expr::List(ListExpr::new(vec![body])));
        let comprehension = ComprehensionExpr {
            iter_range,
            iter_var: variable,
            iter_var2: None,
            accu_var: ACCUMULATOR.to_owned(),
            accu_init: self.make(at, Expr::List(ListExpr::new(Vec::new()))),
            loop_cond: self.make(at, Expr::Literal(LiteralValue::Boolean(true.into()))),
            loop_step: self.call(at, op::ADD, vec![so_far, one]),
            result: self.make(at, Expr::Ident(ACCUMULATOR.to_owned())),
        };
        self.make(at, Expr::Comprehension(Box::new(comprehension)))
    }
}

/// Returns the number of parts of an expression.
fn count(e: &Expression) -> usize {
    let mut parts = 1;
    crate::names::each_part(e, &mut |part| parts += count(part));
    parts
}
