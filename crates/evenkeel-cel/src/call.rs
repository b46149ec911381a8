//! Calls: operators are here, all other functions in [`super::functions`].

use std::collections::HashMap;
use std::rc::Rc;

use cel::common::ast::{CallExpr, Expr, operators as op};
use cel::parser::Expression;

use super::cost::{self, Call};
use super::eval::{Failure, Result_, Run};
use super::functions;
use super::names;
use super::value::Val;

impl<'a> Run<'a> {
    pub(super) fn call(&mut self, call: &'a CallExpr) -> Result_<'a> {
        // A function with a namespace: `optional.of`, `ip.isCanonical`, `math.greatest`.
        if let Some(target) = &call.target
            && let Expr::Ident(space) = &target.expr
            && self.variable(space).is_none()
        {
            let space = names::plain(space);
            let args = self.all(&call.args)?;
            let name = format!("{space}.{}", call.func_name);
            self.pay_for(&name, &args)?;
            return functions::global(&name, &args)
                .unwrap_or_else(|| {
                    Err(if functions::SPACES.contains(&space) {
                        NO_OVERLOAD.to_owned()
                    } else {
                        format!("undeclared reference to '{space}' (in container '')")
                    })
                })
                .map_err(Failure::Error);
        }
        let mut args = Vec::with_capacity(call.args.len() + 1);
        if let Some(target) = &call.target {
            args.push(self.value(target)?);
        }
        for argument in &call.args {
            args.push(self.value(argument)?);
        }
        let name = names::plain(&call.func_name);
        let before = self.pay_for(name, &args)?;
        if let (op::OPT_SELECT, [Val::Variables(visible), Val::Str(field)]) =
            (name, args.as_slice())
        {
            return self.composed(*visible, field).map(Val::some);
        }
        if call.target.is_some()
            && let Some(result) = self.growing(name, &args, before)
        {
            return result;
        }
        let found = if call.target.is_some() {
            functions::member(name, &args)
        } else {
            operator(name, &args).or_else(|| functions::global(name, &args))
        };
        found.unwrap_or_else(|| Err("no such overload".to_owned())).map_err(Failure::Error)
    }

    /// Calls a method whose result has a size that is only known after the call; `None` for other methods. The budget
    /// limits the result, whose cost counts beyond the cost that was charged before.
    fn growing(&mut self, name: &str, args: &[Val<'a>], before: u64) -> Option<Result_<'a>> {
        let room = before.saturating_add(self.remaining_budget());
        let (result, cost) = match (name, args) {
            ("format", [Val::Str(text), list]) if list.list_len().is_some() => {
                match functions::format(text, list, room.saturating_mul(10)) {
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
                // One more than the budget can pay for.
                let most = usize::try_from(room).unwrap_or(usize::MAX).saturating_add(20);
                match functions::find_all(text, pattern, limit.min(most)) {
                    Ok(found) => {
                        let cost = cost::copies(found.len() as u64);
                        (Val::list(found), cost)
                    }
                    Err(error) => return Some(Err(Failure::Error(error))),
                }
            }
            _ => return None,
        };
        Some(self.pay(cost.saturating_sub(before)).map(|()| result))
    }

    fn all(&mut self, args: &'a [Expression]) -> Result<Vec<Val<'a>>, Failure> {
        args.iter().map(|argument| self.value(argument)).collect()
    }

    /// Charges a call by the size of its arguments; returns the cost.
    fn pay_for(&mut self, name: &str, args: &[Val<'a>]) -> Result<u64, Failure> {
        let cost = Call { name, args, room: self.remaining_budget() }.cost();
        self.pay(cost).map(|()| cost)
    }
}

type Outcome<'a> = Result<Val<'a>, String>;

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

/// Maps a missing key or field to `none`; other errors stay errors.
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
    let found = value.field(name).transpose()?.map(Val::settled).transpose()?;
    Ok(Val::Optional(found.map(Rc::new)))
}

fn ordered<'a>(a: &Val<'a>, b: &Val<'a>, is: fn(std::cmp::Ordering) -> bool) -> Outcome<'a> {
    let is_number = |value: &Val<'_>| value.number().is_some();
    a.compare(b).map(|order| Val::Bool(is(order))).ok_or_else(|| {
        let why =
            if is_number(a) && is_number(b) { "NaN values cannot be ordered" } else { NO_OVERLOAD };
        why.to_owned()
    })
}

/// Error of a call with arguments that the function does not take.
const NO_OVERLOAD: &str = "no such overload";

fn contains<'a>(item: &Val<'a>, all: &Val<'a>) -> Outcome<'a> {
    if all.list_len().is_some() {
        return Ok(Val::Bool(all.elements().any(|other| other.equals(item))));
    }
    if all.map_len().is_some() {
        return Ok(Val::Bool(all.entry(item).is_some()));
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
            (Some(mut all), Some(more)) => {
                if let Some(keys) = a.list_keys() {
                    return merged(keys, all, more).map(Val::list);
                }
                all.extend(more);
                Val::list(all)
            }
            _ => return Err("no such overload".to_owned()),
        },
    })
}

/// Adds elements to a list whose elements are identified by these fields, or by themselves. An element that is known takes the
/// place of the other one.
///
/// Upstream: `unstructuredSetList.Add`, `unstructuredMapList.Add`.
fn merged<'a>(
    keys: &[Box<str>],
    mut all: Vec<Val<'a>>,
    more: Vec<Val<'a>>,
) -> Result<Vec<Val<'a>>, String> {
    let identity = |item: &Val<'a>| -> Result<String, String> {
        if keys.is_empty() {
            return item.to_json().map(|json| json.to_string());
        }
        let mut parts = Vec::with_capacity(keys.len());
        for key in keys {
            let field = item.field(key).transpose()?;
            parts.push(field.map(|field| field.to_json()).transpose()?.unwrap_or_default());
        }
        Ok(serde_json::Value::Array(parts).to_string())
    };
    let mut places = HashMap::with_capacity(all.len());
    for (place, item) in all.iter().enumerate() {
        places.insert(identity(item)?, place);
    }
    for item in more {
        let known = *places.entry(identity(&item)?).or_insert(all.len());
        match all.get_mut(known) {
            Some(place) if !keys.is_empty() => *place = item,
            Some(_) => {}
            None => all.push(item),
        }
    }
    Ok(all)
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
            // As upstream, which adds the negated duration.
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
