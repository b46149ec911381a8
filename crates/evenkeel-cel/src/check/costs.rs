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
use super::{Checked, Declared, Type};
use crate::eval::{LIST, MAP, STEP, STRUCT};
use crate::names::{plain, spelled};

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

/// Declaration at which an expression's path from a variable ends: `None` without a path, `Some(None)` if the path leads
/// to nothing declared.
pub(super) type DeclaredPath<'c> = Option<Option<&'c Declared>>;

/// Variable of a macro.
#[derive(Clone, Copy)]
struct Local<'c> {
    name: &'c str,
    place: DeclaredPath<'c>,
    size: Option<Range>,
    entries: Option<Entries>,
}

/// State of an estimate.
pub(super) struct Coster<'c> {
    pub(super) checked: &'c Checked<'c>,
    root: &'c Declared,
    /// Name of the only variable that `root` declares; `None` if each variable, and each value without one, is at the
    /// root.
    variable: Option<&'c str>,
    places: HashMap<u64, DeclaredPath<'c>>,
    locals: Vec<Local<'c>>,
    sizes: HashMap<u64, Range>,
    entries: HashMap<u64, Entries>,
}

/// Size of a value that is not known to be smaller. Upstream declares the keys of maps without a size.
const NO_SIZE: Range = Range { min: 0, max: 0 };

/// Returns the maximum cost of an evaluation.
pub(super) fn max_cost(checked: &Checked<'_>, root: &Declared, variable: Option<&str>) -> u64 {
    let (places, sizes, entries) = (HashMap::new(), HashMap::new(), HashMap::new());
    let locals = Vec::new();
    let mut coster = Coster { checked, root, variable, places, locals, sizes, entries };
    coster.cost(checked.program.expression()).max
}

impl<'c> Coster<'c> {
    fn cost(&mut self, e: &'c Expression) -> Range {
        match &e.expr {
            Expr::Literal(_) | Expr::Unspecified => Range::fixed(0),
            Expr::Ident(name) => {
                let local = self.local(name).map(|local| local.place);
                self.places.insert(e.id, local.unwrap_or_else(|| self.place_of(name)));
                Range::fixed(STEP)
            }
            Expr::Select(select) => self.select(e.id, select),
            Expr::Call(call) => self.call(e, call),
            Expr::List(list) => self.list(e.id, list),
            Expr::Map(map) => self.map(e.id, &map.entries),
            Expr::Struct(made) => {
                let mut sum = Range::fixed(STRUCT);
                for entry in &made.entries {
                    if let EntryExpr::StructField(field) = &entry.expr {
                        sum = sum.plus(self.cost(&field.value));
                    }
                }
                sum
            }
            Expr::Comprehension(c) if is_binding(c) => self.binding(e.id, c),
            Expr::Comprehension(c) => self.comprehension(e.id, c),
        }
    }

    fn local(&self, name: &str) -> Option<&Local<'c>> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn place(&self, e: &Expression) -> DeclaredPath<'c> {
        if let Expr::Ident(name) = &e.expr
            && let Some(local) = self.local(name)
        {
            return local.place;
        }
        self.places.get(&e.id).copied().flatten()
    }

    /// Returns the place of a variable.
    fn place_of(&self, name: &str) -> DeclaredPath<'c> {
        let is_declared = self.variable.is_none_or(|variable| variable == name);
        Some(is_declared.then_some(self.root))
    }

    /// Returns the place below another one. Upstream leaves out the first part of a path, so that one without a variable
    /// begins at the root.
    pub(super) fn below(
        &self,
        place: DeclaredPath<'c>,
        step: impl FnOnce(&'c Declared) -> Option<&'c Declared>,
    ) -> DeclaredPath<'c> {
        match place {
            None => Some(self.variable.is_none().then_some(self.root)),
            Some(place) => Some(place.and_then(step)),
        }
    }

    fn select(&mut self, id: u64, select: &'c SelectExpr) -> Range {
        // `has` is free, as upstream configures it.
        if select.test {
            return self.cost(&select.operand);
        }
        // A qualified name is a variable.
        if !self.checked.types.contains_key(&select.operand.id)
            && let Some(name) = spelled(select)
        {
            self.places.insert(id, self.place_of(&name));
            return Range::fixed(STEP);
        }
        let mut sum = self.cost(&select.operand);
        if matches!(
            self.checked.kind_of(select.operand.id),
            Type::Map(..) | Type::Object(_) | Type::Library(_)
        ) {
            sum = sum.plus(Range::fixed(STEP));
        }
        let place = self.below(self.place(&select.operand), |place| {
            let value = place.element().filter(|value| value.kind == Type::Any);
            place.field(&select.field).or(value)
        });
        self.places.insert(id, place);
        sum
    }

    fn call(&mut self, e: &'c Expression, call: &'c CallExpr) -> Range {
        if let ("dyn", [argument]) = (call.func_name.as_str(), call.args.as_slice()) {
            let cost = self.cost(argument);
            self.copy_within(e.id, argument);
            return cost.plus(Range::fixed(1));
        }
        let costs: Vec<Range> = call.args.iter().map(|argument| self.cost(argument)).collect();
        let args: Vec<Argument<'c>> =
            call.args.iter().map(|argument| self.argument(argument)).collect();
        let checked = self.checked;
        let Some(resolved) = checked.calls.get(&e.id) else { return Range::fixed(0) };
        let mut sum = Range::fixed(0);
        let mut target = None;
        if let Some(of) = call.target.as_deref().filter(|_| resolved.is_member) {
            sum = self.cost(of);
            target = Some(self.argument(of));
        }
        let given = costs.iter().fold(Range::fixed(0), |sum, cost| sum.plus(*cost));
        let mut total = Range::new(u64::MAX, 0);
        let mut size: Option<Range> = None;
        let name = plain(&call.func_name);
        let full = full_name(call, resolved.is_member);
        for overload in &resolved.overloads {
            let (cost, result) = match (name, costs.as_slice(), args.as_slice()) {
                (op::LOGICAL_AND | op::LOGICAL_OR, [a, b], _) => {
                    (Range::new(a.min, a.plus(*b).max), None)
                }
                (op::CONDITIONAL, [condition, a, b], [_, yes, no]) => {
                    let entries = (self.entries_of(yes.e), self.entries_of(no.e));
                    if let (Some(yes), Some(no)) = entries {
                        self.entries.insert(e.id, yes.union(no));
                    }
                    (
                        condition.plus(a.union(*b)),
                        Some(yes.size_or_unknown().union(no.size_or_unknown())),
                    )
                }
                _ => {
                    if let (op::ADD, [a, b]) = (name, args.as_slice())
                        && let (Some(a), Some(b)) = (self.entries_of(a.e), self.entries_of(b.e))
                        && matches!(overload.args[0], Type::Str | Type::Bytes | Type::List(_))
                    {
                        self.entries.insert(e.id, a.union(b));
                    }
                    let estimate =
                        Estimate { name: &full, overload, target: target.as_ref(), args: &args };
                    let (cost, result) = estimate.cost();
                    (cost.plus(given), result)
                }
            };
            total = total.union(cost);
            size = match (size, result) {
                (Some(a), Some(b)) => Some(a.union(b)),
                (a, b) => a.or(b),
            };
            if let (op::INDEX, [of, _], Some(Type::List(_) | Type::Map(..))) =
                (name, args.as_slice(), overload.args.first())
            {
                size = self.entries_of(of.e).map(|entries| entries.value);
                let place = self.below(self.place(of.e), Declared::element);
                self.places.insert(e.id, place);
            }
            size = size.or_else(|| self.size(e));
        }
        self.set_size(e.id, size);
        sum.plus(total)
    }

    fn argument(&mut self, e: &'c Expression) -> Argument<'c> {
        let size = self.size(e);
        Argument { e, kind: self.checked.kind_of(e.id), place: self.place(e), size }
    }

    fn list(&mut self, id: u64, list: &'c ListExpr) -> Range {
        let mut sum = Range::fixed(LIST);
        let least = if list.elements.is_empty() { 0 } else { u64::MAX };
        let mut value = Range::new(least, 0);
        for element in &list.elements {
            sum = sum.plus(self.cost(element));
            value = value.union(self.size(element).unwrap_or(Range::UNKNOWN));
        }
        self.entries.insert(id, Entries { is_list: true, key: Range::fixed(1), value });
        sum
    }

    fn map(&mut self, id: u64, entries: &'c [IdedEntryExpr]) -> Range {
        let mut sum = Range::fixed(MAP);
        let least = if entries.is_empty() { 0 } else { u64::MAX };
        let (mut key, mut value) = (Range::new(least, 0), Range::new(least, 0));
        for entry in entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
            sum = sum.plus(self.cost(&entry.key)).plus(self.cost(&entry.value));
            key = key.union(self.size(&entry.key).unwrap_or(Range::UNKNOWN));
            value = value.union(self.size(&entry.value).unwrap_or(Range::UNKNOWN));
        }
        self.entries.insert(id, Entries { is_list: false, key, value });
        sum
    }

    fn bound(&mut self, name: &'c str, e: &'c Expression) {
        let (place, size, entries) = (self.place(e), self.size(e), self.entries_of(e));
        self.locals.push(Local { name, place, size, entries });
    }

    fn binding(&mut self, id: u64, c: &'c ComprehensionExpr) -> Range {
        let sum = self.cost(&c.iter_range).plus(self.cost(&c.accu_init));
        self.bound(&c.accu_var, &c.accu_init);
        let sum = sum.plus(self.cost(&c.result));
        self.copy_within(id, &c.result);
        self.locals.pop();
        sum
    }

    fn comprehension(&mut self, id: u64, c: &'c ComprehensionExpr) -> Range {
        let sum = self.cost(&c.iter_range).plus(self.cost(&c.accu_init));
        self.bound(&c.accu_var, &c.accu_init);
        let depth = self.locals.len();
        let entries = self.entries_of(&c.iter_range);
        let is_list = match entries {
            Some(entries) => entries.is_list,
            None => matches!(self.checked.kind_of(c.iter_range.id), Type::List(_)),
        };
        let range = self.place(&c.iter_range);
        let element = self.below(range, Declared::element);
        let key = Local { name: &c.iter_var, place: None, size: None, entries: None };
        let value = Local { place: element, size: entries.map(|entries| entries.value), ..key };
        // The index of a list has a path that leads to nothing; the keys of a map are strings without a size.
        let key_place = self.below(range, |_| None);
        let key = Local { place: key_place, size: entries.map(|entries| entries.key), ..key };
        match &c.iter_var2 {
            Some(name) => {
                self.locals.push(key);
                self.locals.push(Local { name, ..value });
            }
            None => self.locals.push(if is_list { value } else { key }),
        }
        let keys = (!is_list).then_some(range).flatten().flatten().filter(|range| range.is_map());
        if let (Some(_), Some(local)) = (keys, self.locals.get_mut(depth)) {
            // Upstream estimates the size by the path before it looks at the variable's own.
            local.size = Some(NO_SIZE);
        }
        let once = self.cost(&c.loop_cond);
        let once = self.cost(&c.loop_step).plus(once);
        self.locals.truncate(depth);
        let sum = sum.plus(self.cost(&c.result));
        self.locals.pop();
        let times = self.size(&c.iter_range).unwrap_or(Range::UNKNOWN);
        match &c.accu_init.expr {
            Expr::Literal(_) => {
                let size = self.size(&c.accu_init);
                self.set_size(id, size);
            }
            Expr::List(_) | Expr::Map(_) => {
                self.set_size(id, Some(times));
                if let Some(entries) = self.entries.get(&c.loop_step.id).copied() {
                    self.entries.insert(id, entries);
                }
            }
            _ => {}
        }
        sum.plus(times.times(once))
    }

    /// Gives a part of the expression the sizes of another part.
    fn copy_within(&mut self, id: u64, of: &'c Expression) {
        let size = self.size(of);
        self.set_size(id, size);
        if let Some(entries) = self.entries_of(of) {
            self.entries.insert(id, entries);
        }
    }

    fn set_size(&mut self, id: u64, size: Option<Range>) {
        if let Some(size) = size {
            self.sizes.insert(id, size);
        }
    }

    fn entries_of(&self, e: &Expression) -> Option<Entries> {
        if let Some(entries) = self.entries.get(&e.id) {
            return Some(*entries);
        }
        match &e.expr {
            Expr::Ident(name) => self.local(name).and_then(|local| local.entries),
            _ => None,
        }
    }

    /// Upstream: `computeSize`.
    fn size(&mut self, e: &Expression) -> Option<Range> {
        if let Some(size) = self.sizes.get(&e.id) {
            return Some(*size);
        }
        if let Some(size) = written(e) {
            return Some(Range::fixed(size));
        }
        if let Some(size) = declared(self.place(e)) {
            self.sizes.insert(e.id, size);
            return Some(size);
        }
        if self.checked.kind_of(e.id).is_scalar() {
            return Some(Range::fixed(1));
        }
        match &e.expr {
            Expr::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }
}

/// Returns the bounds of the size that a declaration has.
pub(super) fn declared(place: DeclaredPath<'_>) -> Option<Range> {
    place.flatten().map(|declared| Range::new(0, declared.most()))
}

/// Returns the size that a literal has.
fn written(e: &Expression) -> Option<u64> {
    Some(match &e.expr {
        Expr::Literal(LiteralValue::String(text)) => text.inner().chars().count() as u64,
        Expr::Literal(LiteralValue::Bytes(bytes)) => bytes.inner().len() as u64,
        Expr::Literal(_) => 1,
        Expr::List(list) => list.elements.len() as u64,
        Expr::Map(map) => map.entries.len() as u64,
        _ => return None,
    })
}

/// Whether a comprehension binds a variable to a value.
///
/// Upstream: `isBind`.
fn is_binding(c: &ComprehensionExpr) -> bool {
    let is_empty = matches!(&c.iter_range.expr, Expr::List(list) if list.elements.is_empty());
    let never = matches!(&c.loop_cond.expr, Expr::Literal(LiteralValue::Boolean(b)) if !*b.inner());
    is_empty && never
}

/// Returns the name of a called function, with its namespace.
fn full_name(call: &CallExpr, is_member: bool) -> String {
    let space = call.target.as_deref().filter(|_| !is_member).and_then(super::calls::namespace);
    match space {
        Some(space) => format!("{}.{}", plain(&space), call.func_name),
        None => plain(&call.func_name).to_owned(),
    }
}
