//! Evaluator that charges each step. Upstream: cel-go's interpreter with cost tracking.

use std::borrow::Cow;
use std::collections::HashSet;
use std::rc::Rc;

use cel::common::ast::{
    ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, ListExpr, LiteralValue, SelectExpr,
    operators as op,
};
use cel::parser::Expression;

use super::composed::Composed;
use super::macros::{ACCUMULATOR, MAP_INSERT};
use super::value::Val;

/// Cost of one step, and of creating a list, map or struct.
pub(crate) const STEP: u64 = 1;
pub(crate) const LIST: u64 = 10;
pub(crate) const MAP: u64 = 30;
pub(crate) const STRUCT: u64 = 40;

/// Error of an evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The evaluation failed with this message.
    Error(String),
    /// The cost exceeds the budget.
    Cost,
}

impl From<String> for Failure {
    fn from(error: String) -> Self {
        Self::Error(error)
    }
}

impl Failure {
    /// Returns the error message.
    pub fn words(&self) -> String {
        match self {
            Self::Error(error) => error.clone(),
            Self::Cost => "operation cancelled: actual cost limit exceeded".to_owned(),
        }
    }
}

/// Variables that an expression can use.
#[derive(Debug, Clone, Default)]
pub struct Scope<'a> {
    variables: Vec<(Cow<'a, str>, Val<'a>)>,
    /// Whether a variable's name has a dot.
    is_qualified: bool,
    /// Fields of the variable `variables`.
    pub(crate) composed: Option<Rc<Composed<'a>>>,
}

impl<'a> Scope<'a> {
    /// Adds a variable. Its name may be qualified: `a.b` is used instead of the field `b` of `a`.
    pub fn with(mut self, name: &'a str, value: Val<'a>) -> Self {
        self.variables.push((Cow::Borrowed(name), value));
        self.is_qualified |= name.contains('.');
        self
    }
}

/// Evaluates an expression. `room` is the nesting of expressions that variables may add to it.
pub(super) fn run<'a>(
    expression: &'a Expression,
    scope: &Scope<'a>,
    budget: &mut u64,
    room: usize,
) -> Result<Val<'a>, Failure> {
    let mut run = Run {
        variables: scope.variables.clone(),
        outer: scope.variables.len(),
        remaining_budget: *budget,
        is_qualified: scope.is_qualified,
        composed: scope.composed.clone(),
        room,
    };
    let result = run.value(expression);
    *budget = if result == Err(Failure::Cost) { 0 } else { run.remaining_budget };
    result
}

impl PartialEq for Val<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.equals(other)
    }
}

/// State of one evaluation.
pub(super) struct Run<'a> {
    variables: Vec<(Cow<'a, str>, Val<'a>)>,
    /// Number of the scope's variables, which are before those of macros.
    outer: usize,
    remaining_budget: u64,
    is_qualified: bool,
    composed: Option<Rc<Composed<'a>>>,
    room: usize,
}

pub(super) type Result_<'a> = Result<Val<'a>, Failure>;

impl<'a> Run<'a> {
    /// Charges the cost of a step; an error if it exceeds the budget.
    pub(super) fn pay(&mut self, cost: u64) -> Result<(), Failure> {
        self.remaining_budget = self.remaining_budget.checked_sub(cost).ok_or(Failure::Cost)?;
        Ok(())
    }

    pub(super) fn remaining_budget(&self) -> u64 {
        self.remaining_budget
    }

    /// Charges what took time to read: bytes are decoded.
    fn pay_for_bytes(&mut self, value: &Val<'a>) -> Result<(), Failure> {
        match value {
            Val::Bytes(bytes) => self.pay(bytes.len() as u64 / 100),
            _ => Ok(()),
        }
    }

    /// Evaluates `e` with one more variable.
    pub(super) fn with(&mut self, name: &'a str, value: Val<'a>, e: &'a Expression) -> Result_<'a> {
        self.variables.push((Cow::Borrowed(name), value));
        let result = self.value(e);
        self.variables.pop();
        result
    }

    /// Returns the variable that a name refers to. A leading dot skips the variables of macros.
    pub(super) fn variable(&self, name: &str) -> Option<&Val<'a>> {
        let (known, name) = match name.strip_prefix('.') {
            Some(name) => (self.variables.get(..self.outer).unwrap_or_default(), name),
            None => (self.variables.as_slice(), name),
        };
        known.iter().rev().find(|(n, _)| n == name).map(|(_, v)| v)
    }

    pub(super) fn value(&mut self, expression: &'a Expression) -> Result_<'a> {
        match &expression.expr {
            Expr::Literal(literal) => {
                let value = self::literal(literal);
                self.pay_for_bytes(&value)?;
                Ok(value)
            }
            Expr::Ident(name) => self.ident(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => {
                let lazy =
                    self.logic(&call.func_name, &call.args).or_else(|| self.alternative(call));
                lazy.unwrap_or_else(|| self.call(call))
            }
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(&map.entries),
            Expr::Struct(made) => self.made(&made.type_name, &made.entries),
            Expr::Comprehension(c) => self.comprehension(c),
            Expr::Unspecified => Err(Failure::Error("empty expression".to_owned())),
        }
    }

    fn ident(&mut self, name: &'a str) -> Result_<'a> {
        self.pay(STEP)?;
        if let Some(value) = self.variable(name) {
            return value.clone().settled().map_err(Failure::Error);
        }
        let name = super::names::plain(name);
        super::names::named(name).map(Val::Type).ok_or_else(|| {
            Failure::Error(format!("undeclared reference to '{name}' (in container '')"))
        })
    }

    /// Returns the variable with the qualified name that a selection spells.
    fn qualified(&self, select: &SelectExpr) -> Option<&Val<'a>> {
        let Expr::Ident(root) = &select.operand.expr else { return None };
        let spelled = |name: &str| {
            let field = name.strip_prefix(root.as_str()).and_then(|rest| rest.strip_prefix('.'));
            field == Some(select.field.as_str())
        };
        self.variables.iter().rev().find(|(name, _)| spelled(name)).map(|(_, value)| value)
    }

    /// Returns the type that a selection names, such as `google.protobuf.Duration`.
    fn type_named(&self, select: &SelectExpr) -> Option<&'static str> {
        if !matches!(select.field.as_str(), "Duration" | "Timestamp") {
            return None;
        }
        let name = super::names::spelled(select)?;
        let root = name.split('.').next()?;
        if self.variable(root).is_some() { None } else { super::names::named(&name) }
    }

    /// Returns a field of the variable `variables`, of which the first ones are visible.
    pub(super) fn composed(&self, visible: usize, field: &str) -> Result_<'a> {
        let composed = self.composed.as_ref();
        let composed = composed.ok_or_else(|| Failure::Error(format!("no such key: {field}")))?;
        composed.get(field, visible, self.room)
    }

    fn select(&mut self, select: &'a SelectExpr) -> Result_<'a> {
        if self.is_qualified
            && let Some(value) = self.qualified(select).cloned()
        {
            self.pay(STEP)?;
            return Ok(value);
        }
        if let Some(name) = self.type_named(select) {
            self.pay(STEP)?;
            return Ok(Val::Type(name));
        }
        let operand = self.value(&select.operand)?;
        if let Val::Variables(visible) = operand {
            self.pay(if select.test { 0 } else { STEP })?;
            return match self.composed(visible, &select.field) {
                // The field is there, whatever its value.
                Ok(_) | Err(Failure::Error(_)) if select.test => Ok(Val::Bool(true)),
                value => value,
            };
        }
        let entries = match &operand {
            Val::Map(entries) | Val::MapOr(entries, _) => entries.len() as u64,
            _ => 0,
        };
        // `has` is free, as upstream configures it.
        let step = if select.test { 0 } else { STEP };
        self.pay(step + entries / 100)?;
        if let Val::Optional(inner) = &operand {
            // A field of an optional value is optional, too.
            let found = inner.as_ref().and_then(|inner| inner.field(&select.field)).transpose()?;
            return Ok(match (select.test, found) {
                (true, found) => Val::Bool(found.is_some()),
                (false, found) => Val::Optional(found.map(Val::settled).transpose()?.map(Rc::new)),
            });
        }
        if select.test {
            let is_map = operand.map_len().is_some() || matches!(operand, Val::Made(..));
            if !is_map {
                return Err(Failure::Error("no such overload".to_owned()));
            }
            return Ok(Val::Bool(operand.field(&select.field).transpose()?.is_some()));
        }
        match operand.field(&select.field) {
            Some(value) => {
                let value = value?.settled()?;
                self.pay_for_bytes(&value)?;
                Ok(value)
            }
            None if operand.map_len().is_some() || matches!(operand, Val::Made(..)) => {
                Err(Failure::Error(format!("no such key: {}", select.field)))
            }
            None => Err(Failure::Error("no such overload".to_owned())),
        }
    }

    fn list(&mut self, list: &'a ListExpr) -> Result_<'a> {
        // Upstream makes an empty list only once.
        self.pay(if list.elements.is_empty() { 0 } else { LIST })?;
        let mut items = Vec::with_capacity(list.elements.len());
        for (i, element) in list.elements.iter().enumerate() {
            let value = self.value(element)?;
            match value {
                Val::Optional(inner) if list.optional_indices.contains(&i) => {
                    items.extend(inner.map(|v| (*v).clone()));
                }
                value => items.push(value),
            }
        }
        Ok(Val::list(items))
    }

    fn map(&mut self, given: &'a [IdedEntryExpr]) -> Result_<'a> {
        self.pay(MAP)?;
        let mut entries: Vec<(Val<'a>, Val<'a>)> = Vec::with_capacity(given.len());
        let mut keys = HashSet::with_capacity(given.len());
        for entry in given {
            let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
            let key = self.value(&entry.key)?;
            let value = match self.value(&entry.value)? {
                Val::Optional(None) if entry.optional => continue,
                Val::Optional(Some(value)) if entry.optional => (*value).clone(),
                value => value,
            };
            let known = Key::of(&key).ok_or_else(|| {
                Failure::Error(format!("unsupported key type: {}", key.type_name()))
            })?;
            if !keys.insert(known) {
                return Err(Failure::Error(format!("Failed with repeated key: {}", key.shown())));
            }
            entries.push((key, value));
        }
        Ok(Val::Map(Rc::new(entries)))
    }

    fn made(&mut self, name: &str, given: &'a [IdedEntryExpr]) -> Result_<'a> {
        self.pay(STRUCT)?;
        let mut fields = Vec::with_capacity(given.len());
        for entry in given {
            let EntryExpr::StructField(field) = &entry.expr else { continue };
            let value = match self.value(&field.value)? {
                Val::Optional(None) if field.optional => continue,
                Val::Optional(Some(value)) if field.optional => (*value).clone(),
                value => value,
            };
            fields.push((super::unescape(&field.field), value));
        }
        Ok(Val::Made(name.into(), Rc::new(fields)))
    }

    fn comprehension(&mut self, c: &'a ComprehensionExpr) -> Result_<'a> {
        if c.accu_var != ACCUMULATOR {
            return self.binding(c);
        }
        let range = self.value(&c.iter_range)?;
        let pairs: Box<dyn Iterator<Item = (Val<'a>, Val<'a>)> + 'a> = match range.pairs() {
            Some(pairs) => pairs,
            None if range.list_len().is_none() => {
                let name = super::names::go_name(&range);
                return Err(Failure::Error(match c.iter_var2 {
                    Some(_) => format!("unsupported comprehension range type: {name}"),
                    None => format!("got '{name}', expected iterable type"),
                }));
            }
            None if c.iter_var2.is_some() => {
                Box::new(range.elements().enumerate().map(|(i, item)| (Val::Int(i as i64), item)))
            }
            None => Box::new(range.elements().map(|item| (item, Val::Null))),
        };
        let depth = self.variables.len();
        let start = self.value(&c.accu_init)?;
        self.variables.push((Cow::Borrowed(&c.accu_var), start));
        let result = self.iterate(c, pairs, depth);
        self.variables.truncate(depth + 1);
        let result = result.and_then(|()| self.value(&c.result));
        self.variables.truncate(depth);
        result
    }

    /// Evaluates an expression in which a variable has a value. An error of the value is one only where it is used.
    fn binding(&mut self, c: &'a ComprehensionExpr) -> Result_<'a> {
        if !super::names::uses(&c.result, &c.accu_var) {
            return self.value(&c.result);
        }
        let value = match self.value(&c.accu_init) {
            Err(Failure::Error(error)) => Val::Failed(error.into()),
            value => value?,
        };
        self.with(&c.accu_var, value, &c.result)
    }

    fn iterate(
        &mut self,
        c: &'a ComprehensionExpr,
        pairs: impl Iterator<Item = (Val<'a>, Val<'a>)>,
        index: usize,
    ) -> Result<(), Failure> {
        let logical = matches!(self.variables[index].1, Val::Bool(_));
        for (first, second) in pairs {
            self.pay_for_bytes(&first)?;
            self.pay_for_bytes(&second)?;
            self.variables.push((Cow::Borrowed(&c.iter_var), first));
            if let Some(name) = &c.iter_var2 {
                self.variables.push((Cow::Borrowed(name), second));
            }
            // An error of a step does not end a loop with a logical result: it becomes the accumulator.
            if matches!(self.value(&c.loop_cond)?, Val::Bool(false)) {
                return Ok(());
            }
            let next = match self.step(&c.loop_step, &c.accu_var, index) {
                Err(Failure::Error(error)) if logical => Val::Failed(error.into()),
                other => other?,
            };
            self.variables.truncate(index + 1);
            self.variables[index].1 = next;
        }
        Ok(())
    }

    /// Evaluates the accumulator after one iteration, without copying a list that grows.
    fn step(&mut self, e: &'a Expression, accumulator: &str, index: usize) -> Result_<'a> {
        if let Expr::Call(call) = &e.expr {
            match (call.func_name.as_str(), call.args.as_slice()) {
                (op::CONDITIONAL, [condition, a, b]) => {
                    return match self.value(condition)? {
                        Val::Bool(true) => self.step(a, accumulator, index),
                        Val::Bool(false) => self.step(b, accumulator, index),
                        _ => Err(Failure::Error("no such overload".to_owned())),
                    };
                }
                (op::ADD, [left, right]) if is_variable(left, accumulator) => {
                    let added = self.value(right)?;
                    self.pay(2 * STEP + super::cost::copies(added.weight()))?;
                    let mut grown = std::mem::replace(&mut self.variables[index].1, Val::Null);
                    if let (Val::List(items), Some(_)) = (&mut grown, added.list_len()) {
                        Rc::make_mut(items).extend(added.elements());
                        return Ok(grown);
                    }
                    return super::call::add(&grown, &added).map_err(Failure::Error);
                }
                (MAP_INSERT, [map, rest @ ..]) if is_variable(map, accumulator) => {
                    return self.insert(rest, index);
                }
                _ => {}
            }
        }
        if is_variable(e, accumulator) {
            return Ok(std::mem::replace(&mut self.variables[index].1, Val::Null));
        }
        self.value(e)
    }
}

/// Entries of a map that a key is compared with at the cost of one step.
const COMPARED: u64 = 100;

impl<'a> Run<'a> {
    /// Adds to the map in the accumulator: a key and a value, or the entries of another map.
    ///
    /// Upstream: `InsertMapKeyValue`.
    fn insert(&mut self, rest: &'a [Expression], index: usize) -> Result_<'a> {
        let mut added = Vec::new();
        // The keys of the range are distinct.
        let is_distinct = match rest {
            [key, value] => {
                added.push((self.value(key)?, self.value(value)?));
                true
            }
            [entries] => match self.value(entries)?.pairs() {
                Some(entries) => {
                    added.extend(entries);
                    false
                }
                None => return Err(Failure::Error("no such overload".to_owned())),
            },
            _ => return Err(Failure::Error("no such overload".to_owned())),
        };
        self.pay(2 * STEP)?;
        let Val::Map(mut entries) = std::mem::replace(&mut self.variables[index].1, Val::Null)
        else {
            return Err(Failure::Error("no such overload".to_owned()));
        };
        for (key, value) in added {
            if !is_distinct {
                self.pay(entries.len() as u64 / COMPARED)?;
                if entries.iter().any(|(known, _)| known.equals(&key)) {
                    let why = format!("insert failed: key {} already exists", key.shown());
                    return Err(Failure::Error(why));
                }
            }
            Rc::make_mut(&mut entries).push((key, value));
        }
        Ok(Val::Map(entries))
    }
}

fn is_variable(e: &Expression, name: &str) -> bool {
    matches!(&e.expr, Expr::Ident(n) if n == name)
}

pub(crate) fn literal(literal: &LiteralValue) -> Val<'_> {
    match literal {
        LiteralValue::Boolean(b) => Val::Bool(*b.inner()),
        LiteralValue::Bytes(b) => Val::Bytes(b.inner().into()),
        LiteralValue::Double(n) => Val::Double(*n.inner()),
        LiteralValue::Int(n) => Val::Int(*n.inner()),
        LiteralValue::Null => Val::Null,
        LiteralValue::String(s) => Val::borrowed(s.inner()),
        LiteralValue::UInt(n) => Val::Uint(*n.inner()),
    }
}

/// Key of a map, equal for equal numbers of all types.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Bool(bool),
    Whole(i128),
    /// A double that is not an integer, by its bits.
    Double(u64),
    Text(String),
}

impl Key {
    fn of(value: &Val<'_>) -> Option<Self> {
        Some(match value {
            Val::Bool(b) => Self::Bool(*b),
            Val::Int(n) => Self::Whole(i128::from(*n)),
            Val::Uint(n) => Self::Whole(i128::from(*n)),
            Val::Double(n) if n.fract() == 0.0 && n.abs() < 2e19 => Self::Whole(*n as i128),
            Val::Double(n) => Self::Double(n.to_bits()),
            Val::Str(text) => Self::Text(text.to_string()),
            _ => return None,
        })
    }
}
