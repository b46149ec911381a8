//! Evaluator that deducts the cost of each step from a budget. Upstream: cel-go's interpreter with cost tracking.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use cel::common::ast::{
    ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, ListExpr, LiteralValue, SelectExpr,
    operators as op,
};
use cel::parser::Expression;

use super::composed::CompositedVariables;
use super::macros::{ACCUMULATOR, MAP_INSERT};
use super::value::Val;

/// Cost of reading a variable or a field. Upstream: `common.SelectAndIdentCost`.
pub(crate) const STEP_COST: u64 = 1;
/// Cost of creating a list. Upstream: `common.ListCreateBaseCost`.
pub(crate) const LIST_COST: u64 = 10;
/// Cost of creating a map. Upstream: `common.MapCreateBaseCost`.
pub(crate) const MAP_COST: u64 = 30;
/// Cost of creating a struct. Upstream: `common.StructCreateBaseCost`.
pub(crate) const STRUCT_COST: u64 = 40;

/// Error of an evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The evaluation failed with this message.
    Error(String),
    /// The cost exceeds the budget.
    BudgetExceeded,
}

impl From<String> for Failure {
    fn from(error: String) -> Self {
        Self::Error(error)
    }
}

impl Failure {
    /// Returns the error message.
    pub fn message(&self) -> String {
        match self {
            Self::Error(error) => error.clone(),
            Self::BudgetExceeded => "operation cancelled: actual cost limit exceeded".to_owned(),
        }
    }
}

/// Variables that an expression can use.
#[derive(Debug, Clone, Default)]
pub struct Scope<'a> {
    variables: Vec<(Cow<'a, str>, Val<'a>)>,
    /// Whether any variable has a qualified name, which contains a dot.
    has_qualified: bool,
    /// Fields of the variable `variables`, which a policy defines by expressions.
    pub(crate) composited: Option<Rc<CompositedVariables<'a>>>,
}

impl<'a> Scope<'a> {
    /// Adds a variable. Its name may be qualified: `a.b` is used instead of the field `b` of `a`.
    pub fn with(mut self, name: &'a str, value: Val<'a>) -> Self {
        self.variables.push((Cow::Borrowed(name), value));
        self.has_qualified |= name.contains('.');
        self
    }
}

/// Evaluates an expression. `remaining_depth` is the depth of the syntax trees that the evaluation of composited
/// variables may still add on the stack.
pub(super) fn run<'a>(
    expression: &'a Expression,
    scope: &Scope<'a>,
    budget: &mut u64,
    remaining_depth: usize,
) -> Result<Val<'a>, Failure> {
    let mut evaluator = Evaluator {
        variables: scope.variables.clone(),
        n_scope_variables: scope.variables.len(),
        remaining_budget: *budget,
        has_qualified: scope.has_qualified,
        used_bindings: HashMap::new(),
        composited: scope.composited.clone(),
        remaining_depth,
    };
    let result = evaluator.evaluate(expression);
    *budget = if result == Err(Failure::BudgetExceeded) { 0 } else { evaluator.remaining_budget };
    result
}

impl PartialEq for Val<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.equals(other)
    }
}

/// State of one evaluation.
pub(super) struct Evaluator<'a> {
    /// Variables of the scope, followed by the variables of macros, the innermost last.
    variables: Vec<(Cow<'a, str>, Val<'a>)>,
    n_scope_variables: usize,
    remaining_budget: u64,
    has_qualified: bool,
    /// Whether each binding's variable is used, by the address of the binding. The search takes time proportional to
    /// the size of the expression.
    used_bindings: HashMap<*const ComprehensionExpr, bool>,
    composited: Option<Rc<CompositedVariables<'a>>>,
    /// Remaining levels of nesting that may be evaluated; see [`run`].
    remaining_depth: usize,
}

/// Result of the evaluation of an expression.
pub(super) type EvalResult<'a> = Result<Val<'a>, Failure>;

impl<'a> Evaluator<'a> {
    /// Deducts a cost from the budget. Fails if it exceeds the budget.
    pub(super) fn charge(&mut self, cost: u64) -> Result<(), Failure> {
        self.remaining_budget =
            self.remaining_budget.checked_sub(cost).ok_or(Failure::BudgetExceeded)?;
        Ok(())
    }

    pub(super) fn remaining_budget(&self) -> u64 {
        self.remaining_budget
    }

    /// Charges the time to decode a value of type `bytes`. Other values are read at no cost.
    fn charge_for_bytes(&mut self, value: &Val<'a>) -> Result<(), Failure> {
        match value {
            Val::Bytes(bytes) => self.charge(bytes.len() as u64 / 100),
            _ => Ok(()),
        }
    }

    /// Evaluates `expression` with one more variable.
    pub(super) fn evaluate_with(
        &mut self,
        name: &'a str,
        value: Val<'a>,
        expression: &'a Expression,
    ) -> EvalResult<'a> {
        self.variables.push((Cow::Borrowed(name), value));
        let result = self.evaluate(expression);
        self.variables.pop();
        result
    }

    /// Returns the variable that a name refers to. A name with a leading dot does not refer to a macro variable.
    pub(super) fn variable(&self, name: &str) -> Option<&Val<'a>> {
        let (visible, name) = match name.strip_prefix('.') {
            Some(name) => (self.variables.get(..self.n_scope_variables).unwrap_or_default(), name),
            None => (self.variables.as_slice(), name),
        };
        visible.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    pub(super) fn evaluate(&mut self, expression: &'a Expression) -> EvalResult<'a> {
        match &expression.expr {
            Expr::Literal(literal) => {
                let value = self::literal(literal);
                self.charge_for_bytes(&value)?;
                Ok(value)
            }
            Expr::Ident(name) => self.ident(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => {
                // Some operators and methods do not evaluate all operands.
                let lazy = self
                    .lazy_operator(&call.func_name, &call.args)
                    .or_else(|| self.lazy_method(call));
                lazy.unwrap_or_else(|| self.call(call))
            }
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(&map.entries),
            Expr::Struct(literal) => self.struct_literal(&literal.type_name, &literal.entries),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Unspecified => Err(Failure::Error("empty expression".to_owned())),
        }
    }

    fn ident(&mut self, name: &'a str) -> EvalResult<'a> {
        self.charge(STEP_COST)?;
        if let Some(value) = self.variable(name) {
            return value.clone().into_result().map_err(Failure::Error);
        }
        let name = super::names::without_dot(name);
        super::names::type_named(name).map(Val::Type).ok_or_else(|| {
            Failure::Error(format!("undeclared reference to '{name}' (in container '')"))
        })
    }

    /// Returns the variable whose qualified name is a selection such as `a.b`.
    fn qualified_variable(&self, select: &SelectExpr) -> Option<&Val<'a>> {
        let Expr::Ident(root) = &select.operand.expr else { return None };
        let is_selected = |name: &str| {
            let field = name.strip_prefix(root.as_str()).and_then(|rest| rest.strip_prefix('.'));
            field == Some(select.field.as_str())
        };
        self.variables.iter().rev().find(|(name, _)| is_selected(name)).map(|(_, value)| value)
    }

    /// Returns the type whose qualified name is a selection, such as `google.protobuf.Duration`.
    fn qualified_type(&self, select: &SelectExpr) -> Option<&'static str> {
        if !matches!(select.field.as_str(), "Duration" | "Timestamp") {
            return None;
        }
        let name = super::names::qualified_name(select)?;
        let root = name.split('.').next()?;
        if self.variable(root).is_some() { None } else { super::names::type_named(&name) }
    }

    /// Returns a field of the variable `variables`. Only the first `n_visible` fields are visible.
    pub(super) fn composited_variable(&self, n_visible: usize, field: &str) -> EvalResult<'a> {
        match &self.composited {
            Some(composited) => composited.get(field, n_visible, self.remaining_depth),
            None => Err(Failure::Error(format!("no such key: {field}"))),
        }
    }

    fn select(&mut self, select: &'a SelectExpr) -> EvalResult<'a> {
        if self.has_qualified
            && let Some(value) = self.qualified_variable(select).cloned()
        {
            self.charge(STEP_COST)?;
            return Ok(value);
        }
        if let Some(name) = self.qualified_type(select) {
            self.charge(STEP_COST)?;
            return Ok(Val::Type(name));
        }
        let operand = self.evaluate(&select.operand)?;
        if let Val::Variables(n_visible) = operand {
            self.charge(if select.test { 0 } else { STEP_COST })?;
            return match self.composited_variable(n_visible, &select.field) {
                // The field exists even if its evaluation fails.
                Ok(_) | Err(Failure::Error(_)) if select.test => Ok(Val::Bool(true)),
                value => value,
            };
        }
        // A map that an expression created has no index, so that a selection takes time for each entry.
        let n_entries = match &operand {
            Val::Map(entries) | Val::MapWithDefault(entries, _) => entries.len() as u64,
            _ => 0,
        };
        // Upstream configures `has` to cost nothing.
        let step = if select.test { 0 } else { STEP_COST };
        self.charge(step + n_entries / COMPARED_PER_STEP)?;
        if let Val::Optional(inner) = &operand {
            // A field of an optional value is optional, too.
            let found = inner.as_ref().and_then(|inner| inner.field(&select.field)).transpose()?;
            return Ok(match (select.test, found) {
                (true, found) => Val::Bool(found.is_some()),
                (false, found) => {
                    Val::Optional(found.map(Val::into_result).transpose()?.map(Rc::new))
                }
            });
        }
        if select.test {
            let is_map = operand.map_len().is_some() || matches!(operand, Val::Struct(..));
            if !is_map {
                return Err(Failure::Error("no such overload".to_owned()));
            }
            return Ok(Val::Bool(operand.field(&select.field).transpose()?.is_some()));
        }
        match operand.field(&select.field) {
            Some(value) => {
                let value = value?.into_result()?;
                self.charge_for_bytes(&value)?;
                Ok(value)
            }
            None if operand.map_len().is_some() || matches!(operand, Val::Struct(..)) => {
                Err(Failure::Error(format!("no such key: {}", select.field)))
            }
            None => Err(Failure::Error("no such overload".to_owned())),
        }
    }

    fn list(&mut self, list: &'a ListExpr) -> EvalResult<'a> {
        // Upstream creates an empty list only once, and does not charge for it.
        self.charge(if list.elements.is_empty() { 0 } else { LIST_COST })?;
        let mut items = Vec::with_capacity(list.elements.len());
        for (index, element) in list.elements.iter().enumerate() {
            let value = self.evaluate(element)?;
            match value {
                Val::Optional(inner) if list.optional_indices.contains(&index) => {
                    items.extend(inner.map(|v| (*v).clone()));
                }
                value => items.push(value),
            }
        }
        Ok(Val::list(items))
    }

    fn map(&mut self, entry_exprs: &'a [IdedEntryExpr]) -> EvalResult<'a> {
        self.charge(MAP_COST)?;
        let mut entries: Vec<(Val<'a>, Val<'a>)> = Vec::with_capacity(entry_exprs.len());
        let mut keys = HashSet::with_capacity(entry_exprs.len());
        for entry in entry_exprs {
            let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
            let key = self.evaluate(&entry.key)?;
            let value = match self.evaluate(&entry.value)? {
                Val::Optional(None) if entry.optional => continue,
                Val::Optional(Some(value)) if entry.optional => (*value).clone(),
                value => value,
            };
            let comparable_key = Key::of(&key).ok_or_else(|| {
                Failure::Error(format!("unsupported key type: {}", key.type_name()))
            })?;
            if !keys.insert(comparable_key) {
                return Err(Failure::Error(format!("Failed with repeated key: {}", key.shown())));
            }
            entries.push((key, value));
        }
        Ok(Val::Map(Rc::new(entries)))
    }

    fn struct_literal(
        &mut self,
        type_name: &str,
        entry_exprs: &'a [IdedEntryExpr],
    ) -> EvalResult<'a> {
        self.charge(STRUCT_COST)?;
        let mut fields = Vec::with_capacity(entry_exprs.len());
        for entry in entry_exprs {
            let EntryExpr::StructField(field) = &entry.expr else { continue };
            let value = match self.evaluate(&field.value)? {
                Val::Optional(None) if field.optional => continue,
                Val::Optional(Some(value)) if field.optional => (*value).clone(),
                value => value,
            };
            fields.push((super::unescape(&field.field), value));
        }
        Ok(Val::Struct(type_name.into(), Rc::new(fields)))
    }

    fn comprehension(&mut self, comprehension: &'a ComprehensionExpr) -> EvalResult<'a> {
        // Only a comprehension that binds a variable has another accumulator, which is this variable.
        if comprehension.accu_var != ACCUMULATOR {
            return self.binding(comprehension);
        }
        let range = self.evaluate(&comprehension.iter_range)?;
        // Values of the two iteration variables. With one variable, the second value is not used.
        let pairs: Box<dyn Iterator<Item = (Val<'a>, Val<'a>)> + 'a> = match range.pairs() {
            Some(pairs) => pairs,
            None if range.list_len().is_none() => {
                let name = super::names::go_name(&range);
                return Err(Failure::Error(match comprehension.iter_var2 {
                    Some(_) => format!("unsupported comprehension range type: {name}"),
                    None => format!("got '{name}', expected iterable type"),
                }));
            }
            None if comprehension.iter_var2.is_some() => {
                Box::new(range.elements().enumerate().map(|(i, item)| (Val::Int(i as i64), item)))
            }
            None => Box::new(range.elements().map(|item| (item, Val::Null))),
        };
        let accumulator = self.variables.len();
        let initial = self.evaluate(&comprehension.accu_init)?;
        self.variables.push((Cow::Borrowed(&comprehension.accu_var), initial));
        let iterated = self.iterate(comprehension, pairs, accumulator);
        // The accumulator is in scope of the result, but the iteration variables are not.
        self.variables.truncate(accumulator + 1);
        let result = iterated.and_then(|()| self.evaluate(&comprehension.result));
        self.variables.truncate(accumulator);
        result
    }

    /// Evaluates an expression that binds a variable to a value, such as `cel.bind`. An error of the value counts only
    /// where the expression uses the variable.
    fn binding(&mut self, comprehension: &'a ComprehensionExpr) -> EvalResult<'a> {
        let used = self.used_bindings.entry(std::ptr::from_ref(comprehension));
        let is_used = *used
            .or_insert_with(|| super::names::uses(&comprehension.result, &comprehension.accu_var));
        if !is_used {
            return self.evaluate(&comprehension.result);
        }
        let value = match self.evaluate(&comprehension.accu_init) {
            Err(Failure::Error(error)) => Val::Failed(error.into()),
            value => value?,
        };
        self.evaluate_with(&comprehension.accu_var, value, &comprehension.result)
    }

    /// Runs the iterations of a comprehension. `accumulator` is the index of the accumulator in the variables.
    fn iterate(
        &mut self,
        comprehension: &'a ComprehensionExpr,
        pairs: impl Iterator<Item = (Val<'a>, Val<'a>)>,
        accumulator: usize,
    ) -> Result<(), Failure> {
        let is_logical = matches!(self.variables[accumulator].1, Val::Bool(_));
        for (first, second) in pairs {
            self.charge_for_bytes(&first)?;
            self.charge_for_bytes(&second)?;
            self.variables.push((Cow::Borrowed(&comprehension.iter_var), first));
            if let Some(name) = &comprehension.iter_var2 {
                self.variables.push((Cow::Borrowed(name), second));
            }
            if matches!(self.evaluate(&comprehension.loop_cond)?, Val::Bool(false)) {
                return Ok(());
            }
            let next =
                match self.step(&comprehension.loop_step, &comprehension.accu_var, accumulator) {
                    // In `all` and `exists`, a later element may still decide the result.
                    Err(Failure::Error(error)) if is_logical => Val::Failed(error.into()),
                    other => other?,
                };
            self.variables.truncate(accumulator + 1);
            self.variables[accumulator].1 = next;
        }
        Ok(())
    }

    /// Evaluates the accumulator's next value. Adds to a list or map in place: a copy in each iteration would take
    /// quadratic time. `index` is the index of the accumulator among the variables.
    fn step(
        &mut self,
        expression: &'a Expression,
        accumulator: &str,
        index: usize,
    ) -> EvalResult<'a> {
        if let Expr::Call(call) = &expression.expr {
            match (call.func_name.as_str(), call.args.as_slice()) {
                (op::CONDITIONAL, [condition, a, b]) => {
                    return match self.evaluate(condition)? {
                        Val::Bool(true) => self.step(a, accumulator, index),
                        Val::Bool(false) => self.step(b, accumulator, index),
                        _ => Err(Failure::Error("no such overload".to_owned())),
                    };
                }
                (op::ADD, [left, right]) if is_variable(left, accumulator) => {
                    let added = self.evaluate(right)?;
                    self.charge(2 * STEP_COST + super::cost::copy_cost(added.weight()))?;
                    let mut grown = std::mem::replace(&mut self.variables[index].1, Val::Null);
                    if let (Val::List(items), Some(_)) = (&mut grown, added.list_len()) {
                        Rc::make_mut(items).extend(added.elements());
                        return Ok(grown);
                    }
                    return super::call::add(&grown, &added).map_err(Failure::Error);
                }
                (MAP_INSERT, [map, rest @ ..]) if is_variable(map, accumulator) => {
                    return self.insert_into_accumulator(rest, index);
                }
                _ => {}
            }
        }
        if is_variable(expression, accumulator) {
            return Ok(std::mem::replace(&mut self.variables[index].1, Val::Null));
        }
        self.evaluate(expression)
    }
}

/// Number of entries of a map that a key is compared with at a cost of 1.
const COMPARED_PER_STEP: u64 = 100;

impl<'a> Evaluator<'a> {
    /// Adds to the map in the accumulator: a key and a value, or the entries of another map.
    ///
    /// Upstream: `InsertMapKeyValue`.
    fn insert_into_accumulator(&mut self, rest: &'a [Expression], index: usize) -> EvalResult<'a> {
        let mut added = Vec::new();
        // For a macro with a key and a value, the keys are the keys of the range, so that each occurs only once.
        let is_distinct = match rest {
            [key, value] => {
                added.push((self.evaluate(key)?, self.evaluate(value)?));
                true
            }
            [entries] => match self.evaluate(entries)?.pairs() {
                Some(entries) => {
                    added.extend(entries);
                    false
                }
                None => return Err(Failure::Error("no such overload".to_owned())),
            },
            _ => return Err(Failure::Error("no such overload".to_owned())),
        };
        self.charge(2 * STEP_COST)?;
        let Val::Map(mut entries) = std::mem::replace(&mut self.variables[index].1, Val::Null)
        else {
            return Err(Failure::Error("no such overload".to_owned()));
        };
        for (key, value) in added {
            if !is_distinct {
                self.charge(entries.len() as u64 / COMPARED_PER_STEP)?;
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

fn is_variable(expression: &Expression, name: &str) -> bool {
    matches!(&expression.expr, Expr::Ident(ident) if ident == name)
}

/// Returns the value of a literal.
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

/// Key of a map for comparisons. Equal numbers of different types are equal keys.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Bool(bool),
    /// An `int`, a `uint`, or a double that is an integer.
    Integer(i128),
    /// A double that is not an integer, by its bits.
    Double(u64),
    Text(String),
}

impl Key {
    fn of(value: &Val<'_>) -> Option<Self> {
        Some(match value {
            Val::Bool(b) => Self::Bool(*b),
            Val::Int(n) => Self::Integer(i128::from(*n)),
            Val::Uint(n) => Self::Integer(i128::from(*n)),
            // The bound is above the maximum of `uint`, about 1.8e19.
            Val::Double(n) if n.fract() == 0.0 && n.abs() < 2e19 => Self::Integer(*n as i128),
            Val::Double(n) => Self::Double(n.to_bits()),
            Val::Str(text) => Self::Text(text.to_string()),
            _ => return None,
        })
    }
}
