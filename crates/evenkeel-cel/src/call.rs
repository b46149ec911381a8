//! Evaluation of calls. The operators are here, all other functions in [`super::functions`].

use std::collections::HashMap;
use std::rc::Rc;

use cel::common::ast::{CallExpr, Expr, operators as op};
use cel::parser::Expression;

use super::cost::{self, Call};
use super::eval::{EvalResult, Evaluator, Failure};
use super::functions;
use super::names;
use super::value::Val;

impl<'a> Evaluator<'a> {
    /// Evaluates a call that is not lazy: all of its operands, and then the call itself.
    pub(super) fn call(&mut self, call: &'a CallExpr) -> EvalResult<'a> {
        // A function with a namespace: `optional.of`, `ip.isCanonical`, `math.greatest`.
        if let Some(target) = &call.target
            && let Expr::Ident(namespace) = &target.expr
            && self.variable(namespace).is_none()
        {
            let namespace = names::without_dot(namespace);
            let args = self.arguments(&call.args)?;
            let name = format!("{namespace}.{}", call.func_name);
            self.charge_call(&name, &args)?;
            let result = match functions::global(&name, &args) {
                Some(result) => result,
                None if functions::NAMESPACES.contains(&namespace) => Err(NO_OVERLOAD.to_owned()),
                None => Err(format!("undeclared reference to '{namespace}' (in container '')")),
            };
            return result.map_err(Failure::Error);
        }
        let mut args = Vec::with_capacity(call.args.len() + 1);
        if let Some(target) = &call.target {
            args.push(self.evaluate(target)?);
        }
        for argument in &call.args {
            args.push(self.evaluate(argument)?);
        }
        let name = names::without_dot(&call.func_name);
        let charged = self.charge_call(name, &args)?;
        if let (op::OPT_SELECT, [Val::Variables(n_visible), Val::Str(field)]) =
            (name, args.as_slice())
        {
            return self.composited_variable(*n_visible, field).map(Val::some);
        }
        if call.target.is_some()
            && let Some(result) = self.call_with_unknown_result_size(name, &args, charged)
        {
            return result;
        }
        let result = if call.target.is_some() {
            functions::member(name, &args)
        } else {
            operator(name, &args).or_else(|| functions::global(name, &args))
        };
        result.unwrap_or_else(|| Err("no such overload".to_owned())).map_err(Failure::Error)
    }

    /// Calls `format` or `findAll`; `None` for other methods. The size of their results is only known after the call,
    /// so that the budget limits it. Charges the part of the result's cost that exceeds `charged`, the cost that was
    /// deducted before the call.
    fn call_with_unknown_result_size(
        &mut self,
        name: &str,
        args: &[Val<'a>],
        charged: u64,
    ) -> Option<EvalResult<'a>> {
        let budget_for_result = charged.saturating_add(self.remaining_budget());
        let (result, cost) = match (name, args) {
            ("format", [Val::Str(text), list]) if list.list_len().is_some() => {
                // Ten characters cost 1.
                match functions::format(text, list, budget_for_result.saturating_mul(10)) {
                    Ok(text) => {
                        let cost = text.len() as u64 / 10;
                        (Val::str(text), cost)
                    }
                    Err(failure) => return Some(Err(failure)),
                }
            }
            ("findAll", [Val::Str(text), Val::Str(pattern), rest @ ..]) => {
                let limit = match rest {
                    [] => usize::MAX,
                    [Val::Int(limit)] => usize::try_from(*limit).unwrap_or(usize::MAX),
                    _ => return None,
                };
                // More than the budget allows, so that a result of this length fails.
                let max = usize::try_from(budget_for_result).unwrap_or(usize::MAX);
                match functions::find_all(text, pattern, limit.min(max.saturating_add(20))) {
                    Ok(found) => {
                        let cost = cost::copy_cost(found.len() as u64);
                        (Val::list(found), cost)
                    }
                    Err(error) => return Some(Err(Failure::Error(error))),
                }
            }
            _ => return None,
        };
        Some(self.charge(cost.saturating_sub(charged)).map(|()| result))
    }

    fn arguments(&mut self, args: &'a [Expression]) -> Result<Vec<Val<'a>>, Failure> {
        args.iter().map(|argument| self.evaluate(argument)).collect()
    }

    /// Deducts the cost of a call from the budget, by the size of its arguments. Returns the cost.
    fn charge_call(&mut self, name: &str, args: &[Val<'a>]) -> Result<u64, Failure> {
        let cost = Call { name, args, remaining_budget: self.remaining_budget() }.cost();
        self.charge(cost).map(|()| cost)
    }
}

type Outcome<'a> = Result<Val<'a>, String>;

/// Evaluates an operator; `None` for other functions, and for operands that the operator does not accept.
fn operator<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    Some(match (name, args) {
        (op::EQUALS | op::NOT_EQUALS, [a, b]) if a.refuses_comparison(b) => {
            Err(NO_OVERLOAD.to_owned())
        }
        (op::EQUALS, [a, b]) => Ok(Val::Bool(a.equals(b))),
        (op::NOT_EQUALS, [a, b]) => Ok(Val::Bool(!a.equals(b))),
        (op::LESS, [a, b]) => ordered(a, b, std::cmp::Ordering::is_lt),
        (op::LESS_EQUALS, [a, b]) => ordered(a, b, std::cmp::Ordering::is_le),
        (op::GREATER, [a, b]) => ordered(a, b, std::cmp::Ordering::is_gt),
        (op::GREATER_EQUALS, [a, b]) => ordered(a, b, std::cmp::Ordering::is_ge),
        (op::ADD, [a, b]) => add(a, b),
        (op::SUBSTRACT | op::MULTIPLY | op::DIVIDE | op::MODULO, [a, b]) => arithmetic(name, a, b),
        (op::NEGATE, [Val::Int(n)]) => n.checked_neg().map(Val::Int).ok_or_else(overflow),
        (op::NEGATE, [Val::Double(n)]) => Ok(Val::Double(-n)),
        (op::LOGICAL_NOT, [Val::Bool(b)]) => Ok(Val::Bool(!b)),
        (op::IN, [a, b]) => contains(a, b),
        (op::INDEX, [Val::Optional(inner), key]) => match inner {
            Some(inner) => optional(inner.index(key)),
            None => Ok(Val::Optional(None)),
        },
        (op::INDEX, [a, b]) => a.index(b),
        (op::OPT_INDEX, [a, b]) => match a {
            Val::Optional(None) => Ok(Val::Optional(None)),
            Val::Optional(Some(inner)) => optional(inner.index(b)),
            a => optional(a.index(b)),
        },
        (op::OPT_SELECT, [a, Val::Str(name)]) => match a {
            Val::Optional(None) => Ok(Val::Optional(None)),
            Val::Optional(Some(inner)) => optional_field(inner, name),
            a => optional_field(a, name),
        },
        _ => return None,
    })
}

fn overflow() -> String {
    "integer overflow".to_owned()
}

fn unsigned_overflow() -> String {
    "unsigned integer overflow".to_owned()
}

/// Converts the result of an optional index: a missing key or element becomes `optional.none()`. Other errors remain.
fn optional(found: Outcome<'_>) -> Outcome<'_> {
    match found {
        Ok(value) => Ok(Val::some(value)),
        Err(error) if error.starts_with("no such key") || error.starts_with("index out") => {
            Ok(Val::Optional(None))
        }
        Err(error) => Err(error),
    }
}

fn optional_field<'a>(value: &Val<'a>, name: &str) -> Outcome<'a> {
    let found = value.field(name).transpose()?.map(Val::into_result).transpose()?;
    Ok(Val::Optional(found.map(Rc::new)))
}

/// Compares two values, and returns whether their order meets the condition.
fn ordered<'a>(a: &Val<'a>, b: &Val<'a>, condition: fn(std::cmp::Ordering) -> bool) -> Outcome<'a> {
    let is_number = |value: &Val<'_>| value.number().is_some();
    match a.compare(b) {
        Some(order) => Ok(Val::Bool(condition(order))),
        None if is_number(a) && is_number(b) => Err("NaN values cannot be ordered".to_owned()),
        None => Err(NO_OVERLOAD.to_owned()),
    }
}

/// Error of a call with arguments that the function does not accept.
const NO_OVERLOAD: &str = "no such overload";

/// Evaluates `item in container`.
fn contains<'a>(item: &Val<'a>, container: &Val<'a>) -> Outcome<'a> {
    if container.list_len().is_some() {
        return Ok(Val::Bool(container.elements().any(|other| other.equals(item))));
    }
    if container.map_len().is_some() {
        return Ok(Val::Bool(container.entry(item).is_some()));
    }
    Err(NO_OVERLOAD.to_owned())
}

/// Adds two values, or concatenates them.
pub(super) fn add<'a>(a: &Val<'a>, b: &Val<'a>) -> Outcome<'a> {
    Ok(match (a, b) {
        (Val::Int(a), Val::Int(b)) => Val::Int(a.checked_add(*b).ok_or_else(overflow)?),
        (Val::Uint(a), Val::Uint(b)) => Val::Uint(a.checked_add(*b).ok_or_else(unsigned_overflow)?),
        (Val::Double(a), Val::Double(b)) => Val::Double(a + b),
        (Val::Str(a), Val::Str(b)) => Val::str(format!("{a}{b}")),
        (Val::Bytes(a), Val::Bytes(b)) => Val::Bytes([&a[..], &b[..]].concat().into()),
        (Val::Duration(a), Val::Duration(b)) => {
            let sum = a.checked_add(*b).ok_or_else(overflow)?;
            Val::Duration(functions::checked_duration(sum)?)
        }
        (Val::Time(a), Val::Duration(b)) | (Val::Duration(b), Val::Time(a)) => {
            Val::Time(functions::later(*a, *b)?)
        }
        (a, b) => match (a.items(), b.items()) {
            (Some(mut elements), Some(added)) => {
                if let Some(keys) = a.list_keys() {
                    return merge_lists(keys, elements, added).map(Val::list);
                }
                elements.extend(added);
                Val::list(elements)
            }
            _ => return Err("no such overload".to_owned()),
        },
    })
}

/// Adds elements to a list of type `map` with these keys, or of type `set` without keys. An element replaces the one
/// with the same keys.
///
/// Upstream: `unstructuredSetList.Add`, `unstructuredMapList.Add`.
fn merge_lists<'a>(
    keys: &[Box<str>],
    mut merged: Vec<Val<'a>>,
    added: Vec<Val<'a>>,
) -> Result<Vec<Val<'a>>, String> {
    let identity = |item: &Val<'a>| -> Result<String, String> {
        if keys.is_empty() {
            return item.to_json().map(|json| json.to_string());
        }
        let mut key_values = Vec::with_capacity(keys.len());
        for key in keys {
            let field = item.field(key).transpose()?;
            key_values.push(field.map(|field| field.to_json()).transpose()?.unwrap_or_default());
        }
        Ok(serde_json::Value::Array(key_values).to_string())
    };
    let mut indexes = HashMap::with_capacity(merged.len());
    for (index, item) in merged.iter().enumerate() {
        indexes.insert(identity(item)?, index);
    }
    for item in added {
        let index = *indexes.entry(identity(&item)?).or_insert(merged.len());
        match merged.get_mut(index) {
            Some(existing) if !keys.is_empty() => *existing = item,
            Some(_) => {}
            None => merged.push(item),
        }
    }
    Ok(merged)
}

fn arithmetic<'a>(name: &str, a: &Val<'a>, b: &Val<'a>) -> Outcome<'a> {
    let zero = || "division by zero".to_owned();
    Ok(match (name, a, b) {
        (op::DIVIDE, _, Val::Int(0) | Val::Uint(0)) => return Err(zero()),
        (op::MODULO, _, Val::Int(0) | Val::Uint(0)) => return Err("modulus by zero".to_owned()),
        (op::SUBSTRACT, Val::Int(a), Val::Int(b)) => {
            Val::Int(a.checked_sub(*b).ok_or_else(overflow)?)
        }
        (op::MULTIPLY, Val::Int(a), Val::Int(b)) => {
            Val::Int(a.checked_mul(*b).ok_or_else(overflow)?)
        }
        (op::DIVIDE, Val::Int(a), Val::Int(b)) => Val::Int(a.checked_div(*b).ok_or_else(overflow)?),
        (op::MODULO, Val::Int(a), Val::Int(b)) => Val::Int(a.checked_rem(*b).ok_or_else(overflow)?),
        (op::SUBSTRACT, Val::Uint(a), Val::Uint(b)) => {
            Val::Uint(a.checked_sub(*b).ok_or_else(unsigned_overflow)?)
        }
        (op::MULTIPLY, Val::Uint(a), Val::Uint(b)) => {
            Val::Uint(a.checked_mul(*b).ok_or_else(unsigned_overflow)?)
        }
        (op::DIVIDE, Val::Uint(a), Val::Uint(b)) => Val::Uint(a / b),
        (op::MODULO, Val::Uint(a), Val::Uint(b)) => Val::Uint(a % b),
        (op::SUBSTRACT, Val::Double(a), Val::Double(b)) => Val::Double(a - b),
        (op::MULTIPLY, Val::Double(a), Val::Double(b)) => Val::Double(a * b),
        (op::DIVIDE, Val::Double(a), Val::Double(b)) => Val::Double(a / b),
        (op::SUBSTRACT, Val::Time(a), Val::Time(b)) => {
            let length = a.since_epoch().checked_sub(b.since_epoch()).ok_or_else(overflow)?;
            Val::Duration(functions::checked_duration(length)?)
        }
        (op::SUBSTRACT, Val::Time(a), Val::Duration(b)) => {
            // Upstream adds the negated duration, so that the least duration overflows.
            let negated = functions::checked_duration(b.checked_neg().ok_or_else(overflow)?)?;
            Val::Time(functions::later(*a, negated)?)
        }
        (op::SUBSTRACT, Val::Duration(a), Val::Duration(b)) => {
            let difference = a.checked_sub(*b).ok_or_else(overflow)?;
            Val::Duration(functions::checked_duration(difference)?)
        }
        _ => return Err("no such overload".to_owned()),
    })
}
