//! Evaluates compiled expressions.

use jaq_core::ops::Math;
use serde_json::{Map, Number, Value};
use std::cmp::Ordering;

use super::compile::{Filter, Fold, Piece, Step};

/// Maximum number of steps of an evaluation. A value that is created or read as a whole counts by its size.
const MAX_STEPS: u64 = 200_000;

/// Maximum length of a string in bytes.
pub(super) const MAX_TEXT: usize = 1024 * 1024;

/// Maximum depth of a value, which recursive functions walk. The JSON parser has the same limit.
const MAX_VALUE_DEPTH: usize = 128;

/// Reason why an evaluation stops before its end.
#[derive(Debug, PartialEq)]
pub(super) enum Stop {
    /// An error, which `try` and `//` catch.
    Error(String),
    /// The evaluation takes too many steps.
    Budget,
    /// A filter such as `first(f)` has all outputs that it needs.
    Enough,
}

/// Variables in scope, the last one first.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    name: &'a str,
    value: &'a Value,
    outer: Option<&'a Self>,
}

/// An evaluation that counts its steps.
pub(super) struct Machine {
    steps: u64,
    /// Seconds since 1970.
    pub(super) now: f64,
}

/// Callback that receives each output of a filter.
pub(super) type Sink<'o> = &'o mut dyn for<'v> FnMut(&mut Machine, &'v Value) -> Result<(), Stop>;

pub(super) fn error<T>(message: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Error(message.into()))
}

impl Machine {
    pub(super) fn new(now: f64) -> Self {
        Self { steps: 0, now }
    }

    /// Charges steps to the budget, and stops the evaluation if they exceed it.
    pub(super) fn charge(&mut self, steps: usize) -> Result<(), Stop> {
        self.steps = self.steps.saturating_add(u64::try_from(steps).unwrap_or(u64::MAX));
        if self.steps > MAX_STEPS { Err(Stop::Budget) } else { Ok(()) }
    }

    /// Charges the budget for the creation or the scan of a value. Fails if the value is too large.
    pub(super) fn charge_value(&mut self, value: &Value) -> Result<(), Stop> {
        self.charge_below(value, MAX_VALUE_DEPTH)
    }

    /// Charges the budget for a value of at most this depth.
    fn charge_below(&mut self, value: &Value, depth: usize) -> Result<(), Stop> {
        let Some(below) = depth.checked_sub(1) else { return Err(Stop::Budget) };
        match value {
            Value::Array(items) => {
                self.charge(1)?;
                items.iter().try_for_each(|item| self.charge_below(item, below))
            }
            Value::Object(fields) => {
                self.charge(1)?;
                fields.iter().try_for_each(|(key, field)| {
                    self.charge_text(key)?;
                    self.charge_below(field, below)
                })
            }
            Value::String(text) => {
                self.charge(1)?;
                self.charge_text(text)
            }
            _ => self.charge(1),
        }
    }

    /// Charges the budget for the creation or the scan of a string.
    fn charge_text(&mut self, text: &str) -> Result<(), Stop> {
        if text.len() > MAX_TEXT { Err(Stop::Budget) } else { self.charge(text.len() / 64) }
    }

    /// Evaluates a filter, and calls `out` with each output.
    pub(super) fn run(
        &mut self,
        filter: &Filter,
        input: &Value,
        scope: Option<&Scope<'_>>,
        out: Sink<'_>,
    ) -> Result<(), Stop> {
        self.charge(1)?;
        match filter {
            Filter::Identity => out(self, input),
            Filter::Recurse => self.recurse(input, out),
            Filter::Value(value) => out(self, value),
            Filter::Variable(name) => {
                let mut scopes = std::iter::successors(scope, |scope| scope.outer);
                let found = scopes.find(|scope| scope.name == name);
                out(self, found.map_or(&Value::Null, |scope| scope.value))
            }
            Filter::Text(pieces, is_json) => self.text(pieces, *is_json, "", input, scope, out),
            Filter::Array(None) => out(self, &Value::Array(Vec::new())),
            Filter::Array(Some(items)) => {
                let items = self.collect(items, input, scope)?;
                out(self, &Value::Array(items))
            }
            Filter::Object(fields) => self.object(fields, &Map::new(), input, scope, out),
            Filter::Negate(filter) => {
                self.run(filter, input, scope, &mut |machine, value| match value.as_f64() {
                    Some(number) => out(
                        machine,
                        &arithmetic(-number, value.as_i64().and_then(i64::checked_neg)),
                    ),
                    None => error(format!("{} cannot be negated", kind(value))),
                })
            }
            Filter::Pipe(first, second) => self.run(first, input, scope, &mut |machine, value| {
                machine.run(second, value, scope, out)
            }),
            Filter::Bind(source, name, body) => {
                self.run(source, input, scope, &mut |machine, value| {
                    let bound = Scope { name, value, outer: scope };
                    machine.run(body, input, Some(&bound), out)
                })
            }
            Filter::Comma(first, second) => {
                self.run(first, input, scope, out)?;
                self.run(second, input, scope, out)
            }
            Filter::Alternative(first, second) => {
                let (mut found, mut is_behind) = (false, false);
                let run = self.run(first, input, scope, &mut |machine, value| {
                    if !is_true(value) {
                        return Ok(());
                    }
                    found = true;
                    let taken = out(machine, value);
                    is_behind = taken.is_err();
                    taken
                });
                match run {
                    // An error of the first filter ends its outputs.
                    Ok(()) | Err(Stop::Error(_)) if !found => self.run(second, input, scope, out),
                    Err(Stop::Error(_)) if !is_behind => Ok(()),
                    other => other,
                }
            }
            Filter::Or(first, second) => self.logic(first, second, true, input, scope, out),
            Filter::And(first, second) => self.logic(first, second, false, input, scope, out),
            // As in jq, the right side is the outer loop.
            Filter::Math(math, left, right) => {
                self.run(right, input, scope, &mut |machine, right| {
                    machine.run(left, input, scope, &mut |machine, left| {
                        let value = machine.math(*math, left, right)?;
                        out(machine, &value)
                    })
                })
            }
            Filter::Compare(compare, left, right) => {
                self.run(right, input, scope, &mut |machine, right| {
                    machine.run(left, input, scope, &mut |machine, left| {
                        machine.charge_value(left)?;
                        let holds = compare.run(&Ordered(left), &Ordered(right));
                        out(machine, &holds.into())
                    })
                })
            }
            Filter::Try(body, handler) => {
                // `catch` handles errors of the body, but not errors of the filter that receives the outputs.
                let mut is_behind = false;
                let run = self.run(body, input, scope, &mut |machine, value| {
                    let taken = out(machine, value);
                    is_behind = taken.is_err();
                    taken
                });
                match (run, handler) {
                    (Err(Stop::Error(_)), None) if !is_behind => Ok(()),
                    (Err(Stop::Error(message)), Some(handler)) if !is_behind => {
                        self.run(handler, &message.into(), scope, out)
                    }
                    (run, _) => run,
                }
            }
            Filter::If(condition, then, otherwise) => {
                self.run(condition, input, scope, &mut |machine, value| match (
                    is_true(value),
                    otherwise,
                ) {
                    (true, _) => machine.run(then, input, scope, out),
                    (false, Some(otherwise)) => machine.run(otherwise, input, scope, out),
                    (false, None) => out(machine, input),
                })
            }
            Filter::Fold(fold) => self.fold(fold, input, scope, out),
            Filter::Path(filter, steps) => self.run(filter, input, scope, &mut |machine, value| {
                machine.steps(steps, value, input, scope, out)
            }),
            Filter::Call(builtin, arguments) => builtin.run(self, arguments, input, scope, out),
        }
    }

    /// Collects the outputs of a filter.
    pub(super) fn collect(
        &mut self,
        filter: &Filter,
        input: &Value,
        scope: Option<&Scope<'_>>,
    ) -> Result<Vec<Value>, Stop> {
        let mut items = Vec::new();
        self.run(filter, input, scope, &mut |machine, item| {
            machine.charge_value(item)?;
            items.push(item.clone());
            Ok(())
        })?;
        Ok(items)
    }

    fn recurse(&mut self, value: &Value, out: Sink<'_>) -> Result<(), Stop> {
        self.charge(1)?;
        out(self, value)?;
        match value {
            Value::Array(items) => items.iter().try_for_each(|item| self.recurse(item, out)),
            Value::Object(fields) => fields.values().try_for_each(|field| self.recurse(field, out)),
            _ => Ok(()),
        }
    }

    /// Evaluates the remaining parts of a string, and appends each output to `prefix`.
    fn text(
        &mut self,
        pieces: &[Piece],
        is_json: bool,
        prefix: &str,
        input: &Value,
        scope: Option<&Scope<'_>>,
        out: Sink<'_>,
    ) -> Result<(), Stop> {
        self.charge(1)?;
        self.charge_text(prefix)?;
        match pieces.split_first() {
            None => out(self, &prefix.into()),
            Some((Piece::Text(text), rest)) => {
                self.text(rest, is_json, &format!("{prefix}{text}"), input, scope, out)
            }
            Some((Piece::Filter(filter), rest)) => {
                self.run(filter, input, scope, &mut |machine, value| {
                    machine.charge_value(value)?;
                    let text = if is_json { value.to_string() } else { to_text(value) };
                    let prefix = format!("{prefix}{text}");
                    machine.text(rest, is_json, &prefix, input, scope, out)
                })
            }
        }
    }

    /// Evaluates the fields of an object that are not in `known`.
    fn object(
        &mut self,
        fields: &[(Filter, Filter)],
        known: &Map<String, Value>,
        input: &Value,
        scope: Option<&Scope<'_>>,
        out: Sink<'_>,
    ) -> Result<(), Stop> {
        let Some(((key, value), rest)) = fields.split_first() else {
            return out(self, &Value::Object(known.clone()));
        };
        self.run(key, input, scope, &mut |machine, key| {
            let Value::String(key) = key else {
                return error(format!("{} is not a key of an object", kind(key)));
            };
            machine.run(value, input, scope, &mut |machine, value| {
                machine.charge_value(value)?;
                machine.charge(known.len())?;
                let mut known = known.clone();
                known.insert(key.clone(), value.clone());
                machine.object(rest, &known, input, scope, out)
            })
        })
    }

    /// Evaluates `or` and `and`. If the first filter outputs `decides`, the second one is not evaluated.
    fn logic(
        &mut self,
        first: &Filter,
        second: &Filter,
        decides: bool,
        input: &Value,
        scope: Option<&Scope<'_>>,
        out: Sink<'_>,
    ) -> Result<(), Stop> {
        self.run(first, input, scope, &mut |machine, value| {
            if is_true(value) == decides {
                return out(machine, &decides.into());
            }
            machine.run(second, input, scope, &mut |machine, value| {
                out(machine, &is_true(value).into())
            })
        })
    }

    fn fold(
        &mut self,
        fold: &Fold,
        input: &Value,
        scope: Option<&Scope<'_>>,
        out: Sink<'_>,
    ) -> Result<(), Stop> {
        for init in self.collect(&fold.init, input, scope)? {
            let mut state = init;
            self.run(&fold.source, input, scope, &mut |machine, value| {
                let bound = Scope { name: &fold.variable, value, outer: scope };
                let states = machine.collect(&fold.update, &state, Some(&bound))?;
                for next in states {
                    state = next;
                    if let Some(extract) = &fold.extract {
                        machine.run(extract, &state, Some(&bound), out)?;
                    }
                }
                Ok(())
            })?;
            if fold.extract.is_none() {
                out(self, &state)?;
            }
        }
        Ok(())
    }

    /// Follows the steps of a path from a value. `input` is the input of the filters in brackets.
    fn steps(
        &mut self,
        steps: &[(Step, bool)],
        value: &Value,
        input: &Value,
        scope: Option<&Scope<'_>>,
        out: Sink<'_>,
    ) -> Result<(), Stop> {
        self.charge(1)?;
        let Some(((step, is_optional), rest)) = steps.split_first() else {
            return out(self, value);
        };
        let failed = |message: String| if *is_optional { Ok(()) } else { error(message) };
        match step {
            Step::All => match value {
                Value::Array(items) => {
                    items.iter().try_for_each(|item| self.steps(rest, item, input, scope, out))
                }
                Value::Object(fields) => {
                    fields.values().try_for_each(|field| self.steps(rest, field, input, scope, out))
                }
                other => failed(format!("Cannot iterate over {}", kind(other))),
            },
            Step::Index(index) => {
                self.run(index, input, scope, &mut |machine, index| match get(value, index) {
                    Ok(found) => {
                        machine.steps(rest, found.unwrap_or(&Value::Null), input, scope, out)
                    }
                    Err(message) => failed(message),
                })
            }
            Step::Range(from, to) => {
                let mut bound = |bound: &Option<Filter>| -> Result<Option<i64>, Stop> {
                    let Some(filter) = bound else { return Ok(None) };
                    let bounds = self.collect(filter, input, scope)?;
                    Ok(bounds.first().and_then(Value::as_f64).map(|bound| bound as i64))
                };
                let (from, to) = (bound(from)?, bound(to)?);
                match part(value, from, to) {
                    Some(part) => {
                        self.charge_value(&part)?;
                        self.steps(rest, &part, input, scope, out)
                    }
                    None => failed(format!("Cannot index {} with a range", kind(value))),
                }
            }
        }
    }

    /// Calculates with two values.
    pub(super) fn math(&mut self, math: Math, left: &Value, right: &Value) -> Result<Value, Stop> {
        self.charge_value(left)?;
        self.charge_value(right)?;
        if let (Some(a), Some(b)) = (left.as_f64(), right.as_f64()) {
            let whole = left.as_i64().zip(right.as_i64());
            return Ok(match math {
                Math::Add => arithmetic(a + b, whole.and_then(|(a, b)| a.checked_add(b))),
                Math::Sub => arithmetic(a - b, whole.and_then(|(a, b)| a.checked_sub(b))),
                Math::Mul => arithmetic(a * b, whole.and_then(|(a, b)| a.checked_mul(b))),
                Math::Div if b == 0.0 => {
                    return error("cannot be divided because the divisor is zero");
                }
                Math::Div => arithmetic(a / b, None),
                Math::Rem => match (a as i64).checked_rem((b as i64).abs()) {
                    Some(rest) => rest.into(),
                    None => return error("cannot be divided because the divisor is zero"),
                },
            });
        }
        match (math, left, right) {
            (Math::Add, Value::Null, other) | (Math::Add, other, Value::Null) => Ok(other.clone()),
            (Math::Add, Value::String(a), Value::String(b)) => {
                if a.len().saturating_add(b.len()) > MAX_TEXT {
                    return Err(Stop::Budget);
                }
                Ok(format!("{a}{b}").into())
            }
            (Math::Add, Value::Array(a), Value::Array(b)) => {
                Ok(a.iter().chain(b).cloned().collect())
            }
            (Math::Add, Value::Object(a), Value::Object(b)) => {
                let all = a.iter().chain(b).map(|(key, value)| (key.clone(), value.clone()));
                Ok(Value::Object(all.collect()))
            }
            (Math::Sub, Value::Array(a), Value::Array(b)) => {
                self.charge(a.len().saturating_mul(b.len()))?;
                Ok(a.iter().filter(|item| !b.contains(item)).cloned().collect())
            }
            (Math::Div, Value::String(a), Value::String(b)) => {
                Ok(a.split(&**b).map(Value::from).collect())
            }
            _ => error(format!(
                "{} and {} cannot be combined by {}",
                kind(left),
                kind(right),
                math.as_str()
            )),
        }
    }
}

/// Returns the number as an integer if it has an integer value.
pub(super) fn arithmetic(float: f64, whole: Option<i64>) -> Value {
    if let Some(whole) = whole {
        return whole.into();
    }
    if float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0 {
        return (float as i64).into();
    }
    Number::from_f64(float).map_or(Value::Null, Value::Number)
}

pub(super) fn is_true(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false))
}

/// Returns the name of a value's type.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns a string unchanged, and any other value as JSON.
pub(super) fn to_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns the item of an array or the field of an object; `None` if it is missing.
pub(super) fn get<'v>(value: &'v Value, index: &Value) -> Result<Option<&'v Value>, String> {
    match (value, index) {
        (Value::Object(fields), Value::String(key)) => Ok(fields.get(key)),
        (Value::Array(items), Value::Number(number)) => {
            let number = number.as_f64().unwrap_or_default().floor();
            let from_end = if number < 0.0 { number + items.len() as f64 } else { number };
            Ok(if from_end < 0.0 { None } else { items.get(from_end as usize) })
        }
        (Value::Null, Value::String(_) | Value::Number(_) | Value::Null) => Ok(None),
        (value, Value::String(key)) => Err(format!("Cannot index {} with {key:?}", kind(value))),
        (value, index) => Err(format!("Cannot index {} with {}", kind(value), kind(index))),
    }
}

/// Returns a slice of an array or a string; bounds below 0 count from its end.
fn part(value: &Value, from: Option<i64>, to: Option<i64>) -> Option<Value> {
    let bounds = |length: usize| {
        let length = i64::try_from(length).unwrap_or(i64::MAX);
        let bound = |bound: i64| (if bound < 0 { bound + length } else { bound }).clamp(0, length);
        let (from, to) = (from.map_or(0, bound), to.map_or(length, bound));
        (from as usize, (to - from).max(0) as usize)
    };
    Some(match value {
        Value::Null => Value::Null,
        Value::Array(items) => {
            let (skipped, count) = bounds(items.len());
            items.iter().skip(skipped).take(count).cloned().collect()
        }
        Value::String(text) => {
            let (skipped, count) = bounds(text.chars().count());
            text.chars().skip(skipped).take(count).collect::<String>().into()
        }
        _ => return None,
    })
}

/// A value in jq's order: null, false, true, numbers, strings, arrays, objects.
pub(super) struct Ordered<'a>(pub(super) &'a Value);

impl PartialEq for Ordered<'_> {
    fn eq(&self, other: &Self) -> bool {
        order(self.0, other.0).is_eq()
    }
}

impl PartialOrd for Ordered<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(order(self.0, other.0))
    }
}

/// Compares two values in jq's order.
pub(super) fn order(one: &Value, two: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Null => 0,
        Value::Bool(false) => 1,
        Value::Bool(true) => 2,
        Value::Number(_) => 3,
        Value::String(_) => 4,
        Value::Array(_) => 5,
        Value::Object(_) => 6,
    };
    match (one, two) {
        (Value::Number(a), Value::Number(b)) => {
            a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(Ordering::Equal)
        }
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let items = a.iter().zip(b).map(|(a, b)| order(a, b));
            items.reduce(Ordering::then).unwrap_or(Ordering::Equal).then(a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let values = a.values().zip(b.values()).map(|(a, b)| order(a, b));
            a.keys().cmp(b.keys()).then(values.reduce(Ordering::then).unwrap_or(Ordering::Equal))
        }
        _ => rank(one).cmp(&rank(two)),
    }
}
