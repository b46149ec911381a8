//! Expansion of the macros that bind a variable: `cel.bind`, `optMap`, `optFlatMap` and `sortBy`.
//!
//! Upstream: cel-go's `ext/bindings.go`, `ext/lists.go` and `cel/library.go`.

use cel::common::ast::{
    CallExpr, ComprehensionExpr, Expr, ListExpr, LiteralValue, operators as op,
};
use cel::parser::Expression;

use crate::Extensions;
use crate::macros::{ACCUMULATOR, OLD_ACCUMULATOR};
use crate::parse::Offsets;
use crate::report::{Errors, Location};

/// Iteration variable of a comprehension over an empty list. It is not a valid identifier, so that it cannot clash with
/// a variable of the expression.
const UNUSED: &str = "#unused";
/// Variable that holds the list of `sortBy`. It is not a valid identifier, either.
const SORTED: &str = "@__sortBy_input__";
/// Method that sorts a list by a list of keys. Its name is not a valid identifier: only the expansion of `sortBy` calls
/// it.
pub(crate) const SORT_BY_KEYS: &str = "@sortByAssociatedKeys";

/// Maximum number of nodes in the syntax tree after the expansion. `optMap` and `optFlatMap` copy their target, so that
/// nested ones double it at each level.
const MAX_NODES: usize = 100_000;

/// State of an expansion.
struct Expansion<'e> {
    source: &'e str,
    extensions: Extensions,
    /// Offsets of the nodes by their ids. A new node gets its id here.
    offsets: &'e mut Offsets,
    errors: &'e mut Errors,
}

/// Expands all macros of an expression.
pub(crate) fn expand_macros(
    mut expression: Expression,
    source: &str,
    extensions: Extensions,
    offsets: &mut Offsets,
    errors: &mut Errors,
) -> Expression {
    Expansion { source, extensions, offsets, errors }.expand(&mut expression);
    expression
}

impl Expansion<'_> {
    /// Expands the macros of all subexpressions, then the expression itself if it is a macro.
    fn expand(&mut self, expression: &mut Expression) {
        crate::names::each_child_mut(expression, &mut |child| self.expand(child));
        let id = expression.id;
        let Expr::Call(call) = &mut expression.expr else { return };
        let Some(target) = call.target.as_deref() else { return };
        let is_cel = matches!(&target.expr, Expr::Ident(name) if name == "cel");
        let expanded = match (call.func_name.as_str(), call.args.len()) {
            ("bind", 3) if is_cel && self.extensions.bindings => self.expand_bind(id, call),
            ("optMap" | "optFlatMap", 2) => self.expand_opt_map(id, call),
            ("sortBy", 2) => self.expand_sort_by(id, call),
            _ => return,
        };
        // `None` if an error was reported.
        if let Some(expanded) = expanded {
            *expression = expanded;
        }
    }

    /// Reports an error about the node with this id.
    fn report(&mut self, id: u64, message: &str) {
        let offset = self.offsets.get(id);
        let location =
            || offset.map_or(Location::NONE, |offset| Location::of_offset(self.source, offset));
        self.errors.add(location, message.to_owned());
    }

    /// Returns a new node with the offset of the node `macro_id`, as all methods below do.
    fn node(&mut self, macro_id: u64, expr: Expr) -> Expression {
        Expression { id: self.offsets.new_id(macro_id), expr }
    }

    fn ident(&mut self, macro_id: u64, name: &str) -> Expression {
        self.node(macro_id, Expr::Ident(name.to_owned()))
    }

    fn boolean(&mut self, macro_id: u64, value: bool) -> Expression {
        self.node(macro_id, Expr::Literal(LiteralValue::Boolean(value.into())))
    }

    fn list(&mut self, macro_id: u64, elements: Vec<Expression>) -> Expression {
        self.node(macro_id, Expr::List(ListExpr::new(elements)))
    }

    /// Returns the call `name(args)`.
    fn global_call(&mut self, macro_id: u64, name: &str, args: Vec<Expression>) -> Expression {
        let call = CallExpr { func_name: name.to_owned(), target: None, args };
        self.node(macro_id, Expr::Call(call))
    }

    /// Returns the call `target.name(args)`.
    fn method_call(
        &mut self,
        macro_id: u64,
        target: Expression,
        name: &str,
        args: Vec<Expression>,
    ) -> Expression {
        let target = Some(Box::new(target));
        self.node(macro_id, Expr::Call(CallExpr { func_name: name.to_owned(), target, args }))
    }

    /// Returns the call `optional.name(args)`.
    fn optional_call(&mut self, macro_id: u64, name: &str, args: Vec<Expression>) -> Expression {
        let namespace = self.ident(macro_id, "optional");
        self.method_call(macro_id, namespace, name, args)
    }

    /// Returns a copy of an expression whose nodes have new ids.
    fn copy(&mut self, original: &Expression) -> Expression {
        let mut copy = original.clone();
        self.renumber(&mut copy);
        copy
    }

    fn renumber(&mut self, expression: &mut Expression) {
        expression.id = self.offsets.new_id(expression.id);
        crate::names::each_child_mut(expression, &mut |child| self.renumber(child));
    }

    /// Returns an expression that evaluates `result` with a variable bound to a value.
    ///
    /// CEL has no node for this, so that it is a comprehension over an empty list: the variable is the accumulator,
    /// which keeps its initial value because no iteration runs.
    fn binding(
        &mut self,
        macro_id: u64,
        variable: &str,
        value: Expression,
        result: Expression,
    ) -> Expression {
        let comprehension = ComprehensionExpr {
            iter_range: self.list(macro_id, Vec::new()),
            iter_var: UNUSED.to_owned(),
            iter_var2: None,
            accu_var: variable.to_owned(),
            accu_init: value,
            loop_cond: self.boolean(macro_id, false),
            loop_step: self.ident(macro_id, variable),
            result,
        };
        self.node(macro_id, Expr::Comprehension(Box::new(comprehension)))
    }

    /// Returns the name if an argument is an identifier; else reports the error `message`.
    fn variable_name(&mut self, argument: &Expression, message: &str) -> Option<String> {
        if let Expr::Ident(name) = &argument.expr {
            return Some(name.clone());
        }
        self.report(argument.id, message);
        None
    }

    /// Expands `cel.bind(variable, value, result)`.
    fn expand_bind(&mut self, id: u64, call: &mut CallExpr) -> Option<Expression> {
        let message = "cel.bind() variable names must be simple identifiers";
        let name = self.variable_name(call.args.first()?, message)?;
        let (result, value) = (call.args.pop()?, call.args.pop()?);
        Some(self.binding(id, &name, value, result))
    }

    /// Expands `target.optMap(variable, body)` to
    /// `target.hasValue() ? optional.of(<body with variable bound to target.value()>) : optional.none()`. `optFlatMap`
    /// has the body without `optional.of`, because its body is an optional value itself.
    fn expand_opt_map(&mut self, id: u64, call: &mut CallExpr) -> Option<Expression> {
        let wraps_result = call.func_name == "optMap";
        let message = format!("{}() variable name must be a simple identifier", call.func_name);
        let name = self.variable_name(call.args.first()?, &message)?;
        let (body, target) = (call.args.pop()?, *call.target.take()?);
        if self.offsets.len() + count_nodes(&target) > MAX_NODES {
            self.report(id, "expression size exceeds limit after the expansion of macros");
            return None;
        }
        let target_copy = self.copy(&target);
        let has_value = self.method_call(id, target, "hasValue", Vec::new());
        let value = self.method_call(id, target_copy, "value", Vec::new());
        let mut mapped = self.binding(id, &name, value, body);
        if wraps_result {
            mapped = self.optional_call(id, "of", vec![mapped]);
        }
        let none = self.optional_call(id, "none", Vec::new());
        Some(self.global_call(id, op::CONDITIONAL, vec![has_value, mapped, none]))
    }

    /// Expands `target.sortBy(variable, key)` to a call of [`SORT_BY_KEYS`] with the key of each element. [`SORTED`] is
    /// bound to the target, so that it is evaluated once.
    fn expand_sort_by(&mut self, id: u64, call: &mut CallExpr) -> Option<Expression> {
        let target = *call.target.take()?;
        if matches!(target.expr, Expr::Literal(_) | Expr::Map(_) | Expr::Struct(_)) {
            let message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            self.report(target.id, message);
            return None;
        }
        let name = self.variable_name(call.args.first()?, "argument is not an identifier")?;
        if matches!(name.as_str(), ACCUMULATOR | OLD_ACCUMULATOR) {
            let argument_id = call.args.first()?.id;
            self.report(argument_id, "iteration variable overwrites accumulator variable");
            return None;
        }
        let key = call.args.pop()?;
        let keys = self.sort_keys(id, name, key);
        let list = self.ident(id, SORTED);
        let sorted = self.method_call(id, list, SORT_BY_KEYS, vec![keys]);
        Some(self.binding(id, SORTED, target, sorted))
    }

    /// Returns a comprehension that maps each element of [`SORTED`] to its sort key.
    fn sort_keys(&mut self, macro_id: u64, variable: String, key: Expression) -> Expression {
        let iter_range = self.ident(macro_id, SORTED);
        let keys_so_far = self.ident(macro_id, ACCUMULATOR);
        let next_key = self.list(macro_id, vec![key]);
        let comprehension = ComprehensionExpr {
            iter_range,
            iter_var: variable,
            iter_var2: None,
            accu_var: ACCUMULATOR.to_owned(),
            accu_init: self.list(macro_id, Vec::new()),
            loop_cond: self.boolean(macro_id, true),
            loop_step: self.global_call(macro_id, op::ADD, vec![keys_so_far, next_key]),
            result: self.ident(macro_id, ACCUMULATOR),
        };
        self.node(macro_id, Expr::Comprehension(Box::new(comprehension)))
    }
}

/// Returns the number of nodes in the syntax tree of an expression.
fn count_nodes(expression: &Expression) -> usize {
    let mut nodes = 1;
    crate::names::each_child(expression, &mut |child| nodes += count_nodes(child));
    nodes
}
