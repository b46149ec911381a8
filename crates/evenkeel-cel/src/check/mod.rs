//! Static checks of expressions: result type and maximum cost, before evaluation.
//!
//! Upstream: cel-go's checker and `cel/library/cost.go`.

mod calls;
mod costs;
mod declaration;
mod types;

use cel::common::ast::{
    ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, LiteralValue, SelectExpr, operators as op,
};
use cel::parser::Expression;

pub use declaration::Declaration;
use types::Of;
pub use types::Type;

use crate::report::with_place_of_name;
use crate::{Program, named, unescape};

/// Maximum size of a request in bytes, less two quotes: no value within it is larger.
const REQUEST: u64 = 3 * 1024 * 1024 - 2;

/// Static knowledge of a value: its type, its maximum number of elements or bytes, and its schema if it has one.
#[derive(Debug, Clone)]
pub struct Declared<'a> {
    /// Static type; `Dyn` if unknown.
    pub kind: Type<'a>,
    size: u64,
    node: Option<&'a dyn Declaration>,
}

impl<'a> Declared<'a> {
    /// Returns a declaration with a type but without a schema.
    pub fn of(kind: Type<'a>) -> Self {
        let size = if matches!(kind, Type::Bool | Type::Int | Type::Uint | Type::Double) {
            1
        } else {
            REQUEST
        };
        Self { kind, size, node: None }
    }

    fn sized(kind: Type<'a>, size: u64) -> Self {
        Self { kind, size, node: None }
    }

    /// Returns the declaration of a value with a schema; `None` if expressions cannot access such values.
    pub fn schema(node: &'a dyn Declaration, root: bool) -> Option<Self> {
        Some(Self { kind: Type::of(node, root)?, size: most(node), node: Some(node) })
    }

    /// Returns the declaration of a list's elements or a map's values.
    fn element(&self) -> Self {
        let node = self.node.and_then(|n| n.element().or_else(|| n.additional()));
        if let Some(known) = node.and_then(|node| Self::schema(node, false)) {
            return known;
        }
        match &self.kind {
            Type::List(of) | Type::Map(of) => Self::of((**of).clone()),
            _ => Self::of(Type::Dyn),
        }
    }
}

/// Returns the maximum number of elements, entries or bytes of values of a schema.
pub fn most(node: &dyn Declaration) -> u64 {
    match node.kind() {
        "array" => {
            let item = node.element().map_or(1, least);
            node.max_items().unwrap_or(REQUEST / (item + 1))
        }
        "object" if node.additional().is_some() || node.n_properties() == 0 => {
            let item = node.additional().map_or(1, least);
            node.max_properties().unwrap_or(REQUEST / (item + 6))
        }
        "object" => node.n_properties() as u64,
        "string" => match (node.format(), node.max_length()) {
            ("date", _) => 11,
            ("date-time", _) => 30,
            ("duration", _) => 32,
            (_, bound) => match (node.longest_value(), bound) {
                (Some(longest), _) => longest,
                (None, Some(most)) => most.saturating_mul(4),
                (None, None) => REQUEST,
            },
        },
        _ => 1,
    }
}

/// Returns the minimum number of bytes that a value of a schema takes in a request.
fn least(node: &dyn Declaration) -> u64 {
    match node.kind() {
        "boolean" => 4,
        "string" | "array" => 2,
        "object" => {
            let required = node.required();
            let bytes = |(name, field): &(&str, _)| name.len() as u64 + 3 + least(*field);
            2 + required.iter().map(bytes).sum::<u64>()
        }
        _ => 1,
    }
}

/// Result of the static checks of an expression.
#[derive(Debug, Clone)]
pub struct Checked<'a> {
    /// Declaration of the expression's result.
    pub known: Declared<'a>,
    /// Estimated maximum cost of one evaluation.
    pub cost: u64,
}

/// Checks an expression over these variables; the error is worded as cel-go's.
pub fn check<'a>(
    program: &'a Program,
    variables: Vec<(&'a str, Declared<'a>)>,
) -> Result<Checked<'a>, String> {
    let mut checker = Checker { variables };
    let checked = checker.expression(program.expression());
    checked.map_err(|error| with_place_of_name(program.source(), error))
}

struct Checker<'a> {
    variables: Vec<(&'a str, Declared<'a>)>,
}

type Outcome<'a> = Result<Checked<'a>, String>;

fn checked<'a>(kind: Type<'a>, cost: u64) -> Outcome<'a> {
    Ok(Checked { known: Declared::of(kind), cost })
}

fn overload(name: &str, args: &[&Declared<'_>]) -> String {
    let shown: Vec<String> = args.iter().map(|a| a.kind.name()).collect();
    format!(
        "compilation failed: ERROR: found no matching overload for '{name}' applied to '({})'",
        shown.join(", ")
    )
}

fn undeclared(name: &str) -> String {
    format!("compilation failed: ERROR: undeclared reference to '{name}' (in container '')")
}

impl<'a> Checker<'a> {
    fn variable(&self, name: &str) -> Option<&Declared<'a>> {
        self.variables.iter().rev().find(|(n, _)| *n == name).map(|(_, known)| known)
    }

    fn expression(&mut self, e: &'a Expression) -> Outcome<'a> {
        match &e.expr {
            Expr::Literal(literal) => Ok(self::literal(literal)),
            Expr::Ident(name) => match self.variable(name) {
                Some(known) => Ok(Checked { known: known.clone(), cost: 1 }),
                None if named(name).is_some() => checked(Type::OfTypes, 1),
                None => Err(undeclared(name)),
            },
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let mut cost = 10u64;
                let mut kind: Option<Type<'a>> = None;
                for element in &list.elements {
                    let one = self.expression(element)?;
                    cost = cost.saturating_add(one.cost);
                    kind = Some(match kind {
                        None => one.known.kind,
                        Some(kind) if kind == one.known.kind => kind,
                        Some(_) => Type::Dyn,
                    });
                }
                let kind = Type::List(Box::new(kind.unwrap_or(Type::Dyn)));
                Ok(Checked { known: Declared::sized(kind, list.elements.len() as u64), cost })
            }
            Expr::Map(map) => self.entries(&map.entries, 30, Type::Map(Box::new(Type::Dyn))),
            Expr::Struct(made) => self.entries(&made.entries, 40, Type::Dyn),
            Expr::Comprehension(c) => self.comprehension(c),
            Expr::Unspecified => Err("compilation failed: ERROR: empty expression".to_owned()),
        }
    }

    fn entries(&mut self, all: &'a [IdedEntryExpr], start: u64, kind: Type<'a>) -> Outcome<'a> {
        let mut cost = start;
        for entry in all {
            match &entry.expr {
                EntryExpr::MapEntry(entry) => {
                    cost = cost.saturating_add(self.expression(&entry.key)?.cost);
                    cost = cost.saturating_add(self.expression(&entry.value)?.cost);
                }
                EntryExpr::StructField(field) => {
                    cost = cost.saturating_add(self.expression(&field.value)?.cost);
                }
            }
        }
        Ok(Checked { known: Declared::sized(kind, all.len() as u64), cost })
    }

    /// Returns the variable with the qualified name that a selection spells.
    fn qualified(&self, select: &SelectExpr) -> Option<&Declared<'a>> {
        let Expr::Ident(root) = &select.operand.expr else { return None };
        let spelled = |name: &str| {
            let field = name.strip_prefix(root.as_str()).and_then(|rest| rest.strip_prefix('.'));
            field == Some(select.field.as_str())
        };
        self.variables.iter().rev().find(|(name, _)| spelled(name)).map(|(_, known)| known)
    }

    fn select(&mut self, select: &'a SelectExpr) -> Outcome<'a> {
        if let Some(known) = self.qualified(select) {
            return Ok(Checked { known: known.clone(), cost: 1 });
        }
        let operand = self.expression(&select.operand)?;
        // `has` is free, as upstream configures it.
        let cost = operand.cost.saturating_add(u64::from(!select.test));
        let (known, optional) = match operand.known.kind {
            Type::Optional(inner) => (Declared { kind: *inner, ..operand.known }, true),
            _ => (operand.known, false),
        };
        let field = field_of(&known, &select.field)?;
        if select.test {
            return checked(Type::Bool, cost);
        }
        let known = if optional {
            Declared { kind: Type::Optional(Box::new(field.kind.clone())), ..field }
        } else {
            field
        };
        Ok(Checked { known, cost })
    }

    fn comprehension(&mut self, c: &'a ComprehensionExpr) -> Outcome<'a> {
        let range = self.expression(&c.iter_range)?;
        let depth = self.variables.len();
        let start = self.expression(&c.accu_init)?;
        let key = match &range.known.kind {
            Type::List(_) if c.iter_var2.is_some() => Declared::of(Type::Int),
            Type::List(_) | Type::Dyn => range.known.element(),
            Type::Map(_) | Type::Object(_) => Declared::of(Type::Str),
            _ => {
                let shown = range.known.kind.name();
                return Err(format!(
                    "compilation failed: ERROR: expression of type '{shown}' cannot be range of a comprehension (must be list, map, or dynamic)"
                ));
            }
        };
        // A comprehension that collects a list adds at most one element per element of the range.
        let accumulator = match &start.known.kind {
            Type::List(_) => Declared::sized(Type::Dyn, range.known.size),
            Type::Map(_) => Declared::sized(start.known.kind.clone(), range.known.size),
            _ => start.known.clone(),
        };
        self.variables.push((&c.accu_var, accumulator));
        self.variables.push((&c.iter_var, key));
        if let Some(name) = &c.iter_var2 {
            self.variables.push((name, range.known.element()));
        }
        let condition = self.expression(&c.loop_cond)?;
        let step = self.expression(&c.loop_step)?;
        self.variables.truncate(depth + 1);
        if matches!(start.known.kind, Type::List(_)) {
            let kind = step.known.kind.clone();
            self.variables[depth].1.kind =
                if matches!(kind, Type::List(_)) { kind } else { Type::List(Box::new(Type::Dyn)) };
        }
        let result = self.expression(&c.result)?;
        self.variables.truncate(depth);
        let once = condition.cost.saturating_add(step.cost);
        let cost = range
            .cost
            .saturating_add(start.cost)
            .saturating_add(result.cost)
            .saturating_add(range.known.size.saturating_mul(once));
        Ok(Checked { known: result.known, cost })
    }
}

/// Returns the declaration of a field; an error if the type has no such field.
fn field_of<'a>(known: &Declared<'a>, name: &str) -> Result<Declared<'a>, String> {
    match &known.kind {
        Type::Object(Of { node, root }) => {
            let plain = unescape(name);
            if let Some(found) = node.property(&plain).and_then(|n| Declared::schema(n, false)) {
                let in_metadata = *root && plain == "metadata";
                return Ok(if in_metadata { Declared::of(Type::Dyn) } else { found });
            }
            match (root, plain.as_str()) {
                (true, "apiVersion" | "kind") => Ok(Declared::of(Type::Str)),
                (true, "metadata") => Ok(Declared::of(Type::Dyn)),
                _ => Err(format!("compilation failed: ERROR: undefined field '{name}'")),
            }
        }
        Type::Map(_) => Ok(known.element()),
        Type::Dyn => Ok(Declared::of(Type::Dyn)),
        other => Err(format!(
            "compilation failed: ERROR: type '{}' does not support field selection",
            other.name()
        )),
    }
}

fn literal<'a>(literal: &LiteralValue) -> Checked<'a> {
    let (kind, size) = match literal {
        LiteralValue::Boolean(_) => (Type::Bool, 1),
        LiteralValue::Bytes(b) => (Type::Bytes, b.inner().len() as u64),
        LiteralValue::Double(_) => (Type::Double, 1),
        LiteralValue::Int(_) => (Type::Int, 1),
        LiteralValue::Null => (Type::Null, 1),
        LiteralValue::String(s) => (Type::Str, s.inner().len() as u64),
        LiteralValue::UInt(_) => (Type::Uint, 1),
    };
    Checked { known: Declared::sized(kind, size), cost: 0 }
}

/// Whether the operator is `&&` or `||`.
fn is_junction(name: &str) -> bool {
    matches!(name, op::LOGICAL_AND | op::LOGICAL_OR)
}
