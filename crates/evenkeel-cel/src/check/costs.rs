//! Estimated maximum cost of an expression.
//!
//! Upstream: cel-go's `checker/cost.go`.

use std::collections::HashMap;

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, ListExpr, LiteralValue,
    SelectExpr, operators as op,
};
use cel::parser::Expression;

use super::estimates::{Argument, Estimate};
use super::range::Range;
use super::{Checked, DeclType, Type};
use crate::eval::{LIST_COST, MAP_COST, STEP_COST, STRUCT_COST};
use crate::names::{qualified_name, without_dot};

/// Sizes of the keys and values of a map, or of the elements of a list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entries {
    is_list: bool,
    key: Range,
    pub(super) value: Range,
}

impl Entries {
    fn union(self, other: Self) -> Self {
        Self {
            is_list: self.is_list,
            key: self.key.union(other.key),
            value: self.value.union(other.value),
        }
    }
}

/// Path of an expression from a variable, such as `self.spec.replicas`, represented by the declaration of its value.
#[derive(Clone, Copy)]
pub(super) enum DeclaredPath<'c> {
    /// The expression has no path, such as `a + b`.
    NoPath,
    /// The path leads to a value without a declaration.
    Undeclared,
    DeclType(&'c DeclType),
}

impl<'c> DeclaredPath<'c> {
    fn from_declaration(declared: Option<&'c DeclType>) -> Self {
        declared.map_or(Self::Undeclared, Self::DeclType)
    }

    fn declaration(self) -> Option<&'c DeclType> {
        match self {
            Self::DeclType(declared) => Some(declared),
            Self::NoPath | Self::Undeclared => None,
        }
    }

    /// Returns the path with one more step, such as a field or an element. An expression without a path has none
    /// after it, either.
    pub(super) fn then(self, step: impl FnOnce(&'c DeclType) -> Option<&'c DeclType>) -> Self {
        match self {
            Self::DeclType(declared) => Self::from_declaration(step(declared)),
            Self::NoPath | Self::Undeclared => self,
        }
    }

    /// Returns the range of sizes that the declaration allows.
    pub(super) fn declared_size(self) -> Option<Range> {
        self.declaration().map(|declared| Range::new(0, declared.max_size()))
    }
}

/// Variable of a macro.
#[derive(Clone, Copy)]
struct Local<'c> {
    name: &'c str,
    path: DeclaredPath<'c>,
    size: Option<Range>,
    entries: Option<Entries>,
}

/// State of an estimate. The maps have the ids of nodes as keys.
pub(super) struct Coster<'c> {
    pub(super) checked: &'c Checked<'c>,
    root: &'c DeclType,
    /// Name of the only variable that `root` declares. If it is `None`, `root` declares every variable, and the
    /// result of every selection from an expression without a path.
    variable: Option<&'c str>,
    paths: HashMap<u64, DeclaredPath<'c>>,
    locals: Vec<Local<'c>>,
    sizes: HashMap<u64, Range>,
    entries: HashMap<u64, Entries>,
}

/// Size of the keys of a declared map: upstream declares them without a maximum size, which counts as 0.
const MAP_KEY_SIZE: Range = Range { min: 0, max: 0 };

/// Returns the estimated maximum cost of an evaluation. See [`Coster::variable`] for the meaning of `variable`.
pub(super) fn max_cost(checked: &Checked<'_>, root: &DeclType, variable: Option<&str>) -> u64 {
    let mut coster = Coster {
        checked,
        root,
        variable,
        paths: HashMap::new(),
        locals: Vec::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
    };
    coster.cost(checked.program.expression()).max
}

impl<'c> Coster<'c> {
    /// Estimates the cost of an expression. Records its path, and the size of its value, for the expressions that use
    /// it.
    fn cost(&mut self, expression: &'c Expression) -> Range {
        match &expression.expr {
            Expr::Literal(_) | Expr::Unspecified => Range::fixed(0),
            Expr::Ident(name) => {
                let local_path = self.local(name).map(|local| local.path);
                let path = local_path.unwrap_or_else(|| self.variable_path(name));
                self.paths.insert(expression.id, path);
                Range::fixed(STEP_COST)
            }
            Expr::Select(select) => self.select_cost(expression.id, select),
            Expr::Call(call) => self.call_cost(expression, call),
            Expr::List(list) => self.list_cost(expression.id, list),
            Expr::Map(map) => self.map_cost(expression.id, &map.entries),
            Expr::Struct(literal) => {
                let mut sum = Range::fixed(STRUCT_COST);
                for entry in &literal.entries {
                    if let EntryExpr::StructField(field) = &entry.expr {
                        sum = sum.plus(self.cost(&field.value));
                    }
                }
                sum
            }
            Expr::Comprehension(comprehension) if is_binding(comprehension) => {
                self.binding_cost(expression.id, comprehension)
            }
            Expr::Comprehension(comprehension) => {
                self.comprehension_cost(expression.id, comprehension)
            }
        }
    }

    /// Returns the innermost macro variable of this name.
    fn local(&self, name: &str) -> Option<&Local<'c>> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn path(&self, expression: &Expression) -> DeclaredPath<'c> {
        if let Expr::Ident(name) = &expression.expr
            && let Some(local) = self.local(name)
        {
            return local.path;
        }
        self.paths.get(&expression.id).copied().unwrap_or(DeclaredPath::NoPath)
    }

    /// Returns the path that consists of a variable only.
    fn variable_path(&self, name: &str) -> DeclaredPath<'c> {
        let is_declared = self.variable.is_none_or(|variable| variable == name);
        if is_declared { DeclaredPath::DeclType(self.root) } else { DeclaredPath::Undeclared }
    }

    /// Returns a path with one more step.
    ///
    /// Upstream ignores the first element of a path, which is usually the variable. In a path from an expression
    /// without a path, it ignores the step instead, so that this path leads to the root.
    fn path_after(
        &self,
        path: DeclaredPath<'c>,
        step: impl FnOnce(&'c DeclType) -> Option<&'c DeclType>,
    ) -> DeclaredPath<'c> {
        match path {
            DeclaredPath::NoPath if self.variable.is_none() => DeclaredPath::DeclType(self.root),
            DeclaredPath::NoPath => DeclaredPath::Undeclared,
            path => path.then(step),
        }
    }

    fn select_cost(&mut self, id: u64, select: &'c SelectExpr) -> Range {
        // Upstream configures `has` to cost nothing.
        if select.test {
            return self.cost(&select.operand);
        }
        // The type checker does not visit the operand of a selection that refers to a variable by its qualified name.
        if !self.checked.types.contains_key(&select.operand.id)
            && let Some(name) = qualified_name(select)
        {
            self.paths.insert(id, self.variable_path(&name));
            return Range::fixed(STEP_COST);
        }
        let mut sum = self.cost(&select.operand);
        if matches!(
            self.checked.kind_of(select.operand.id),
            Type::Map(..) | Type::Object(_) | Type::Library(_)
        ) {
            sum = sum.plus(Range::fixed(STEP_COST));
        }
        let path = self.path_after(self.path(&select.operand), |declared| {
            let any_value = declared.element().filter(|value| value.kind == Type::Any);
            declared.field(&select.field).or(any_value)
        });
        self.paths.insert(id, path);
        sum
    }

    fn call_cost(&mut self, expression: &'c Expression, call: &'c CallExpr) -> Range {
        if let ("dyn", [argument]) = (call.func_name.as_str(), call.args.as_slice()) {
            let cost = self.cost(argument);
            self.copy_size(expression.id, argument);
            return cost.plus(Range::fixed(1));
        }
        let arg_costs: Vec<Range> = call.args.iter().map(|argument| self.cost(argument)).collect();
        let args: Vec<Argument<'c>> =
            call.args.iter().map(|argument| self.argument(argument)).collect();
        let checked = self.checked;
        let Some(resolved) = checked.calls.get(&expression.id) else { return Range::fixed(0) };
        let mut target_cost = Range::fixed(0);
        let mut target = None;
        if let Some(expression) = call.target.as_deref().filter(|_| resolved.is_member) {
            target_cost = self.cost(expression);
            target = Some(self.argument(expression));
        }
        let cost_of_args = arg_costs.iter().fold(Range::fixed(0), |sum, cost| sum.plus(*cost));
        // The union of the costs of all overloads. It begins with the neutral element of the union.
        let mut cost_of_overloads = Range::new(u64::MAX, 0);
        let mut size: Option<Range> = None;
        let name = without_dot(&call.func_name);
        let full_name = full_name(call, resolved.is_member);
        for overload in &resolved.overloads {
            let (cost, result_size) = match (name, arg_costs.as_slice(), args.as_slice()) {
                (op::LOGICAL_AND | op::LOGICAL_OR, [a, b], _) => {
                    (Range::new(a.min, a.plus(*b).max), None)
                }
                (op::CONDITIONAL, [condition, a, b], [_, yes, no]) => {
                    let entries = (self.entries_of(yes.expression), self.entries_of(no.expression));
                    if let (Some(yes), Some(no)) = entries {
                        self.entries.insert(expression.id, yes.union(no));
                    }
                    let result_size = yes.size_or_unknown().union(no.size_or_unknown());
                    (condition.plus(a.union(*b)), Some(result_size))
                }
                _ => {
                    if let (op::ADD, [a, b]) = (name, args.as_slice())
                        && let (Some(a), Some(b)) =
                            (self.entries_of(a.expression), self.entries_of(b.expression))
                        && matches!(overload.args[0], Type::Str | Type::Bytes | Type::List(_))
                    {
                        self.entries.insert(expression.id, a.union(b));
                    }
                    let estimate = Estimate {
                        name: &full_name,
                        overload,
                        target: target.as_ref(),
                        args: &args,
                    };
                    let call = estimate.cost();
                    (call.cost.plus(cost_of_args), call.result_size)
                }
            };
            cost_of_overloads = cost_of_overloads.union(cost);
            size = match (size, result_size) {
                (Some(a), Some(b)) => Some(a.union(b)),
                (a, b) => a.or(b),
            };
            if let (op::INDEX, [container, _], Some(Type::List(_) | Type::Map(..))) =
                (name, args.as_slice(), overload.args.first())
            {
                size = self.entries_of(container.expression).map(|entries| entries.value);
                let path = self.path_after(self.path(container.expression), DeclType::element);
                self.paths.insert(expression.id, path);
            }
            size = size.or_else(|| self.size(expression));
        }
        self.set_size(expression.id, size);
        target_cost.plus(cost_of_overloads)
    }

    fn argument(&mut self, expression: &'c Expression) -> Argument<'c> {
        let size = self.size(expression);
        Argument {
            expression,
            kind: self.checked.kind_of(expression.id),
            path: self.path(expression),
            size,
        }
    }

    fn list_cost(&mut self, id: u64, list: &'c ListExpr) -> Range {
        let mut sum = Range::fixed(LIST_COST);
        let mut value = Self::initial_union(list.elements.is_empty());
        for element in &list.elements {
            sum = sum.plus(self.cost(element));
            value = value.union(self.size(element).unwrap_or(Range::UNKNOWN));
        }
        self.entries.insert(id, Entries { is_list: true, key: Range::fixed(1), value });
        sum
    }

    /// Returns the initial range of a union of the sizes of elements: the neutral element of the union, or 0 without
    /// elements.
    fn initial_union(is_empty: bool) -> Range {
        Range::new(if is_empty { 0 } else { u64::MAX }, 0)
    }

    fn map_cost(&mut self, id: u64, entries: &'c [IdedEntryExpr]) -> Range {
        let mut sum = Range::fixed(MAP_COST);
        let mut key = Self::initial_union(entries.is_empty());
        let mut value = key;
        for entry in entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
            sum = sum.plus(self.cost(&entry.key)).plus(self.cost(&entry.value));
            key = key.union(self.size(&entry.key).unwrap_or(Range::UNKNOWN));
            value = value.union(self.size(&entry.value).unwrap_or(Range::UNKNOWN));
        }
        self.entries.insert(id, Entries { is_list: false, key, value });
        sum
    }

    /// Adds a macro variable with the value of an expression.
    fn push_local(&mut self, name: &'c str, expression: &'c Expression) {
        let (path, size, entries) =
            (self.path(expression), self.size(expression), self.entries_of(expression));
        self.locals.push(Local { name, path, size, entries });
    }

    /// Estimates an expression that binds a variable to a value.
    fn binding_cost(&mut self, id: u64, comprehension: &'c ComprehensionExpr) -> Range {
        let sum = self.cost(&comprehension.iter_range).plus(self.cost(&comprehension.accu_init));
        self.push_local(&comprehension.accu_var, &comprehension.accu_init);
        let sum = sum.plus(self.cost(&comprehension.result));
        self.copy_size(id, &comprehension.result);
        self.locals.pop();
        sum
    }

    fn comprehension_cost(&mut self, id: u64, comprehension: &'c ComprehensionExpr) -> Range {
        let sum = self.cost(&comprehension.iter_range).plus(self.cost(&comprehension.accu_init));
        self.push_local(&comprehension.accu_var, &comprehension.accu_init);
        let first_iter_var = self.locals.len();
        let entries = self.entries_of(&comprehension.iter_range);
        let is_list = match entries {
            Some(entries) => entries.is_list,
            None => matches!(self.checked.kind_of(comprehension.iter_range.id), Type::List(_)),
        };
        let range_path = self.path(&comprehension.iter_range);
        let value = Local {
            name: &comprehension.iter_var,
            path: self.path_after(range_path, DeclType::element),
            size: entries.map(|entries| entries.value),
            entries: None,
        };
        // The index of a list, or the key of a map, has no declaration.
        let key = Local {
            path: self.path_after(range_path, |_| None),
            size: entries.map(|entries| entries.key),
            ..value
        };
        match &comprehension.iter_var2 {
            Some(name) => {
                self.locals.push(key);
                self.locals.push(Local { name, ..value });
            }
            None => self.locals.push(if is_list { value } else { key }),
        }
        let is_declared_map =
            !is_list && range_path.declaration().is_some_and(super::declared::DeclType::is_map);
        if let Some(key) = self.locals.get_mut(first_iter_var)
            && is_declared_map
        {
            // The declared size takes precedence over that of the entries.
            key.size = Some(MAP_KEY_SIZE);
        }
        let cost_of_condition = self.cost(&comprehension.loop_cond);
        let cost_of_iteration = self.cost(&comprehension.loop_step).plus(cost_of_condition);
        // The accumulator is in scope of the result, but the iteration variables are not.
        self.locals.truncate(first_iter_var);
        let sum = sum.plus(self.cost(&comprehension.result));
        self.locals.pop();
        let iterations = self.size(&comprehension.iter_range).unwrap_or(Range::UNKNOWN);
        match &comprehension.accu_init.expr {
            Expr::Literal(_) => {
                let size = self.size(&comprehension.accu_init);
                self.set_size(id, size);
            }
            Expr::List(_) | Expr::Map(_) => {
                self.set_size(id, Some(iterations));
                if let Some(entries) = self.entries.get(&comprehension.loop_step.id).copied() {
                    self.entries.insert(id, entries);
                }
            }
            _ => {}
        }
        sum.plus(iterations.times(cost_of_iteration))
    }

    /// Records the sizes of another expression, and of its entries, as the sizes of the node `id`.
    fn copy_size(&mut self, id: u64, other: &'c Expression) {
        let size = self.size(other);
        self.set_size(id, size);
        if let Some(entries) = self.entries_of(other) {
            self.entries.insert(id, entries);
        }
    }

    fn set_size(&mut self, id: u64, size: Option<Range>) {
        if let Some(size) = size {
            self.sizes.insert(id, size);
        }
    }

    fn entries_of(&self, expression: &Expression) -> Option<Entries> {
        if let Some(entries) = self.entries.get(&expression.id) {
            return Some(*entries);
        }
        match &expression.expr {
            Expr::Ident(name) => self.local(name).and_then(|local| local.entries),
            _ => None,
        }
    }

    /// Returns the size of an expression's value; `None` without a known bound.
    ///
    /// Upstream: `computeSize`.
    fn size(&mut self, expression: &Expression) -> Option<Range> {
        if let Some(size) = self.sizes.get(&expression.id) {
            return Some(*size);
        }
        if let Some(size) = literal_size(expression) {
            return Some(Range::fixed(size));
        }
        if let Some(size) = self.path(expression).declared_size() {
            self.sizes.insert(expression.id, size);
            return Some(size);
        }
        if self.checked.kind_of(expression.id).is_scalar() {
            return Some(Range::fixed(1));
        }
        match &expression.expr {
            Expr::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }
}

/// Returns the size of a literal; `None` for other expressions.
fn literal_size(expression: &Expression) -> Option<u64> {
    Some(match &expression.expr {
        Expr::Literal(LiteralValue::String(text)) => text.inner().chars().count() as u64,
        Expr::Literal(LiteralValue::Bytes(bytes)) => bytes.inner().len() as u64,
        Expr::Literal(_) => 1,
        Expr::List(list) => list.elements.len() as u64,
        Expr::Map(map) => map.entries.len() as u64,
        _ => return None,
    })
}

/// Returns whether a comprehension only binds a variable to a value, as [`crate::expand`] creates it: it never
/// iterates.
///
/// Upstream: `isBind`.
fn is_binding(comprehension: &ComprehensionExpr) -> bool {
    let is_empty =
        matches!(&comprehension.iter_range.expr, Expr::List(list) if list.elements.is_empty());
    let is_false = matches!(&comprehension.loop_cond.expr, Expr::Literal(LiteralValue::Boolean(b)) if !*b.inner());
    is_empty && is_false
}

/// Returns the name of a called function, with its namespace.
fn full_name(call: &CallExpr, is_member: bool) -> String {
    let target = call.target.as_deref().filter(|_| !is_member);
    match target.and_then(super::calls::namespace) {
        Some(namespace) => format!("{}.{}", without_dot(&namespace), call.func_name),
        None => without_dot(&call.func_name).to_owned(),
    }
}
