//! Functions of jq.

use evenkeel_api::time::{self, Timestamp};
use regex::RegexBuilder;
use serde_json::{Map, Value, json};
use std::cmp::Ordering;

use super::{
    compile::Filter,
    run::{
        MAX_TEXT, Machine, Scope, Sink, Stop, arithmetic, error, get, is_true, kind, order, to_text,
    },
};

/// Maximum size of a compiled regular expression in bytes.
const MAX_REGEX: usize = 256 * 1024;

/// A function that expressions call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Builtin {
    /// Function of the input and of argument values. It is called for each combination of the arguments' outputs.
    Values(fn(&Value, &[Value], &mut Machine) -> Result<Value, Stop>),
    /// Function that evaluates its arguments itself.
    Filters(Filters),
}

/// Function that evaluates filters.
#[derive(Debug, Clone, Copy)]
pub(super) enum Filters {
    Empty,
    Error,
    Not,
    Select,
    Map,
    Values,
    OfKind(&'static [&'static str]),
    First,
    Last,
    Limit,
    Range,
    Any,
    All,
    In,
    Paths,
    SortBy,
    GroupBy,
    UniqueBy,
    MinBy,
    MaxBy,
    WithEntries,
    MapValues,
    RecurseDefault,
    IsEmpty,
}

type Body = fn(&Value, &[Value], &mut Machine) -> Result<Value, Stop>;

/// Functions of values, with the number of their arguments.
const VALUES: &[(&str, usize, Body)] = &[
    ("length", 0, |input, _, _| {
        Ok(match input {
            Value::Null => 0.into(),
            Value::String(text) => text.chars().count().into(),
            Value::Array(items) => items.len().into(),
            Value::Object(fields) => fields.len().into(),
            Value::Number(number) => arithmetic(number.as_f64().unwrap_or_default().abs(), None),
            Value::Bool(_) => return error("boolean has no length"),
        })
    }),
    ("type", 0, |input, _, _| Ok(kind(input).into())),
    ("now", 0, |_, _, machine| Ok(json!(machine.now))),
    ("keys", 0, |input, _, _| match input {
        Value::Object(fields) => Ok(fields.keys().map(|key| Value::from(&**key)).collect()),
        Value::Array(items) => Ok((0..items.len()).map(Value::from).collect()),
        other => error(format!("{} has no keys", kind(other))),
    }),
    ("has", 1, |input, arguments, _| has(input, argument(arguments))),
    ("in", 1, |input, arguments, _| has(argument(arguments), input)),
    ("contains", 1, |input, arguments, machine| {
        Ok(contains(input, argument(arguments), machine)?.into())
    }),
    ("inside", 1, |input, arguments, machine| {
        Ok(contains(argument(arguments), input, machine)?.into())
    }),
    ("add", 0, |input, _, machine| {
        let mut sum = Value::Null;
        for item in members(input)? {
            sum = machine.math(jaq_core::ops::Math::Add, &sum, item)?;
        }
        Ok(sum)
    }),
    ("any", 0, |input, _, _| Ok(members(input)?.into_iter().any(is_true).into())),
    ("all", 0, |input, _, _| Ok(members(input)?.into_iter().all(is_true).into())),
    ("flatten", 0, |input, _, _| {
        let mut flat = Vec::new();
        flatten(items(input)?, f64::INFINITY, &mut flat);
        Ok(flat.into())
    }),
    ("flatten", 1, |input, arguments, _| {
        let depth = number(argument(arguments))?;
        if depth < 0.0 {
            return error("flatten depth must not be negative");
        }
        let mut flat = Vec::new();
        flatten(items(input)?, depth, &mut flat);
        Ok(flat.into())
    }),
    ("floor", 0, |input, _, _| number(input).map(|number| arithmetic(number.floor(), None))),
    ("ceil", 0, |input, _, _| number(input).map(|number| arithmetic(number.ceil(), None))),
    ("round", 0, |input, _, _| number(input).map(|number| arithmetic(number.round(), None))),
    ("fabs", 0, |input, _, _| number(input).map(|number| arithmetic(number.abs(), None))),
    ("abs", 0, |input, _, _| number(input).map(|number| arithmetic(number.abs(), None))),
    ("tostring", 0, |input, _, _| Ok(to_text(input).into())),
    ("tojson", 0, |input, _, _| Ok(input.to_string().into())),
    ("fromjson", 0, |input, _, machine| {
        let text = string(input)?;
        machine.charge(text.len())?;
        serde_json::from_str(text).or_else(|error| super::run::error(error.to_string()))
    }),
    ("tonumber", 0, |input, _, _| match input {
        Value::Number(_) => Ok(input.clone()),
        Value::String(text) => match (text.parse::<i64>(), text.trim().parse::<f64>()) {
            (Ok(whole), _) => Ok(whole.into()),
            (_, Ok(number)) => Ok(arithmetic(number, None)),
            _ => error(format!("{text:?} cannot be parsed as a number")),
        },
        other => error(format!("{} cannot be parsed as a number", kind(other))),
    }),
    ("sort", 0, |input, _, _| {
        let mut sorted = items(input)?.to_vec();
        sorted.sort_by(order);
        Ok(sorted.into())
    }),
    ("unique", 0, |input, _, _| {
        let mut sorted = items(input)?.to_vec();
        sorted.sort_by(order);
        sorted.dedup_by(|one, two| order(one, two).is_eq());
        Ok(sorted.into())
    }),
    ("reverse", 0, |input, _, _| match input {
        Value::String(text) => Ok(text.chars().rev().collect::<String>().into()),
        Value::Null => Ok(Value::Array(Vec::new())),
        other => Ok(items(other)?.iter().rev().cloned().collect()),
    }),
    ("min", 0, |input, _, _| {
        Ok(items(input)?.iter().min_by(|a, b| order(a, b)).cloned().unwrap_or_default())
    }),
    ("max", 0, |input, _, _| {
        Ok(items(input)?.iter().max_by(|a, b| order(a, b)).cloned().unwrap_or_default())
    }),
    ("first", 0, |input, _, _| at(input, 0)),
    ("last", 0, |input, _, _| at(input, -1)),
    ("nth", 1, |input, arguments, _| {
        let found = get(input, argument(arguments));
        Ok(found.or_else(error)?.cloned().unwrap_or_default())
    }),
    ("startswith", 1, |input, arguments, _| {
        Ok(string(input)?.starts_with(string(argument(arguments))?).into())
    }),
    ("endswith", 1, |input, arguments, _| {
        Ok(string(input)?.ends_with(string(argument(arguments))?).into())
    }),
    ("ltrimstr", 1, |input, arguments, _| {
        let trimmed = input.as_str().zip(argument(arguments).as_str());
        let trimmed = trimmed.and_then(|(text, cut)| text.strip_prefix(cut));
        Ok(trimmed.map_or_else(|| input.clone(), Value::from))
    }),
    ("rtrimstr", 1, |input, arguments, _| {
        let trimmed = input.as_str().zip(argument(arguments).as_str());
        let trimmed = trimmed.and_then(|(text, cut)| text.strip_suffix(cut));
        Ok(trimmed.map_or_else(|| input.clone(), Value::from))
    }),
    ("trim", 0, |input, _, _| Ok(string(input)?.trim().into())),
    ("split", 1, |input, arguments, machine| {
        let (text, separator) = (string(input)?, string(argument(arguments))?);
        // The result may have as many parts as `text` has bytes.
        machine.charge(text.len())?;
        match separator {
            "" => Ok(text.chars().map(|c| Value::from(c.to_string())).collect()),
            _ => Ok(text.split(separator).map(Value::from).collect()),
        }
    }),
    ("join", 1, |input, arguments, machine| {
        let separator = string(argument(arguments))?;
        let mut joined = String::new();
        for (index, item) in items(input)?.iter().enumerate() {
            if index > 0 {
                joined.push_str(separator);
            }
            match item {
                Value::Null => {}
                Value::Array(_) | Value::Object(_) => {
                    return error(format!("{} cannot be joined", kind(item)));
                }
                item => joined.push_str(&to_text(item)),
            }
            machine.charge(1 + separator.len())?;
            if joined.len() > MAX_TEXT {
                return Err(Stop::Budget);
            }
        }
        Ok(joined.into())
    }),
    ("ascii_downcase", 0, |input, _, _| Ok(string(input)?.to_ascii_lowercase().into())),
    ("ascii_upcase", 0, |input, _, _| Ok(string(input)?.to_ascii_uppercase().into())),
    ("test", 1, matches),
    ("test", 2, matches),
    ("index", 1, |input, arguments, _| {
        let (text, part) = (string(input)?, string(argument(arguments))?);
        let found = text.find(part).and_then(|at| text.get(..at));
        Ok(found.map_or(Value::Null, |before| before.chars().count().into()))
    }),
    ("to_entries", 0, |input, _, machine| entries(input, machine)),
    ("from_entries", 0, |input, _, machine| from_entries(input, machine)),
    ("getpath", 1, |input, arguments, _| {
        let mut found = Some(input);
        for key in items(argument(arguments))? {
            found = match found {
                Some(value) => get(value, key).or_else(error)?,
                None => None,
            };
        }
        Ok(found.cloned().unwrap_or_default())
    }),
    ("fromdateiso8601", 0, date),
    ("fromdate", 0, date),
    ("todate", 0, |input, _, _| {
        let time = Timestamp::from_second(number(input)? as i64);
        time.map_or_else(|why| error(why.to_string()), |time| Ok(time.to_string().into()))
    }),
];

/// Functions that evaluate filters, with the number of their arguments.
const FILTERS: &[(&str, usize, Filters)] = &[
    ("empty", 0, Filters::Empty),
    ("error", 0, Filters::Error),
    ("error", 1, Filters::Error),
    ("not", 0, Filters::Not),
    ("select", 1, Filters::Select),
    ("map", 1, Filters::Map),
    ("map_values", 1, Filters::MapValues),
    ("values", 0, Filters::Values),
    ("nulls", 0, Filters::OfKind(&["null"])),
    ("booleans", 0, Filters::OfKind(&["boolean"])),
    ("numbers", 0, Filters::OfKind(&["number"])),
    ("strings", 0, Filters::OfKind(&["string"])),
    ("arrays", 0, Filters::OfKind(&["array"])),
    ("objects", 0, Filters::OfKind(&["object"])),
    ("iterables", 0, Filters::OfKind(&["array", "object"])),
    ("scalars", 0, Filters::OfKind(&["null", "boolean", "number", "string"])),
    ("first", 1, Filters::First),
    ("last", 1, Filters::Last),
    ("limit", 2, Filters::Limit),
    ("range", 1, Filters::Range),
    ("range", 2, Filters::Range),
    ("any", 1, Filters::Any),
    ("any", 2, Filters::Any),
    ("all", 1, Filters::All),
    ("all", 2, Filters::All),
    ("IN", 1, Filters::In),
    ("paths", 0, Filters::Paths),
    ("sort_by", 1, Filters::SortBy),
    ("group_by", 1, Filters::GroupBy),
    ("unique_by", 1, Filters::UniqueBy),
    ("min_by", 1, Filters::MinBy),
    ("max_by", 1, Filters::MaxBy),
    ("with_entries", 1, Filters::WithEntries),
    ("recurse", 0, Filters::RecurseDefault),
    ("isempty", 1, Filters::IsEmpty),
];

/// Returns the function of this name and number of arguments.
pub(super) fn find(name: &str, arguments: usize) -> Option<Builtin> {
    let constant: Option<Body> = match (name, arguments) {
        ("true", 0) => Some(|_, _, _| Ok(true.into())),
        ("false", 0) => Some(|_, _, _| Ok(false.into())),
        ("null", 0) => Some(|_, _, _| Ok(Value::Null)),
        _ => None,
    };
    let values = VALUES.iter().find(|(known, count, _)| (*known, *count) == (name, arguments));
    let filters = FILTERS.iter().find(|(known, count, _)| (*known, *count) == (name, arguments));
    constant
        .or(values.map(|(_, _, body)| *body))
        .map(Builtin::Values)
        .or(filters.map(|(_, _, filters)| Builtin::Filters(*filters)))
}

impl Builtin {
    /// Calls the function.
    pub(super) fn run(
        self,
        machine: &mut Machine,
        arguments: &[Filter],
        input: &Value,
        scope: Option<&Scope<'_>>,
        out: Sink<'_>,
    ) -> Result<(), Stop> {
        match self {
            Self::Values(body) => match arguments {
                [] => call(body, input, &[], machine, out),
                [one] => machine.run(one, input, scope, &mut |machine, one| {
                    call(body, input, std::slice::from_ref(one), machine, out)
                }),
                [one, two, ..] => machine.run(two, input, scope, &mut |machine, two| {
                    machine.run(one, input, scope, &mut |machine, one| {
                        call(body, input, &[one.clone(), two.clone()], machine, out)
                    })
                }),
            },
            Self::Filters(filters) => {
                let identity = Filter::Identity;
                let first = arguments.first().unwrap_or(&identity);
                filters.run(machine, first, arguments.get(1), input, scope, out)
            }
        }
    }
}

/// Calls a function of values. The budget is charged for the sizes of its arguments and of its result.
fn call(
    body: Body,
    input: &Value,
    arguments: &[Value],
    machine: &mut Machine,
    out: Sink<'_>,
) -> Result<(), Stop> {
    machine.charge_value(input)?;
    arguments.iter().try_for_each(|argument| machine.charge_value(argument))?;
    let value = body(input, arguments, machine)?;
    machine.charge_value(&value)?;
    out(machine, &value)
}

impl Filters {
    fn run(
        self,
        machine: &mut Machine,
        first: &Filter,
        second: Option<&Filter>,
        input: &Value,
        scope: Option<&Scope<'_>>,
        out: Sink<'_>,
    ) -> Result<(), Stop> {
        match self {
            Self::Empty => Ok(()),
            Self::Error => {
                machine.run(first, input, scope, &mut |_, message| error(to_text(message)))
            }
            Self::Not => out(machine, &(!is_true(input)).into()),
            Self::Values if input.is_null() => Ok(()),
            Self::Values => out(machine, input),
            Self::OfKind(kinds) if kinds.contains(&kind(input)) => out(machine, input),
            Self::OfKind(_) => Ok(()),
            Self::Select => machine.run(first, input, scope, &mut |machine, value| {
                if is_true(value) { out(machine, input) } else { Ok(()) }
            }),
            Self::Map => {
                let mut mapped = Vec::new();
                for item in members(input)? {
                    mapped.extend(machine.collect(first, item, scope)?);
                }
                out(machine, &mapped.into())
            }
            Self::MapValues => match input {
                Value::Object(fields) => {
                    let mut mapped = Map::new();
                    for (key, field) in fields {
                        if let Some(value) =
                            machine.collect(first, field, scope)?.into_iter().next()
                        {
                            mapped.insert(key.clone(), value);
                        }
                    }
                    out(machine, &mapped.into())
                }
                other => {
                    let mut mapped = Vec::new();
                    for item in items(other)? {
                        mapped.extend(machine.collect(first, item, scope)?.into_iter().next());
                    }
                    out(machine, &mapped.into())
                }
            },
            Self::First => {
                let found = take(machine, first, input, scope, 1)?;
                found.first().map_or(Ok(()), |value| out(machine, value))
            }
            Self::Limit => {
                let Some(second) = second else { return Ok(()) };
                for count in machine.collect(first, input, scope)? {
                    let count = number(&count)?.max(0.0) as usize;
                    for value in take(machine, second, input, scope, count)? {
                        out(machine, &value)?;
                    }
                }
                Ok(())
            }
            Self::Last => {
                let found = machine.collect(first, input, scope)?;
                found.last().map_or(Ok(()), |value| out(machine, value))
            }
            Self::Range => {
                let (starts, ends) = match second {
                    None => (vec![0.into()], machine.collect(first, input, scope)?),
                    Some(second) => (
                        machine.collect(first, input, scope)?,
                        machine.collect(second, input, scope)?,
                    ),
                };
                for start in &starts {
                    for end in &ends {
                        let (mut at, end) = (number(start)?, number(end)?);
                        while at < end {
                            machine.charge(1)?;
                            out(machine, &arithmetic(at, None))?;
                            at += 1.0;
                        }
                    }
                }
                Ok(())
            }
            Self::Any | Self::All => {
                let decides = matches!(self, Self::Any);
                let mut is_decided = false;
                let mut check = |machine: &mut Machine, condition: &Filter, item: &Value| {
                    machine.run(condition, item, scope, &mut |_, value| {
                        is_decided = is_true(value) == decides;
                        if is_decided { Err(Stop::Enough) } else { Ok(()) }
                    })
                };
                // With two arguments, the first one generates the values that the second one tests.
                let run = match second {
                    None => {
                        let mut members = members(input)?.into_iter();
                        members.try_for_each(|item| check(machine, first, item))
                    }
                    Some(condition) => machine.run(first, input, scope, &mut |machine, item| {
                        check(machine, condition, item)
                    }),
                };
                match run {
                    Err(Stop::Enough) if is_decided => out(machine, &decides.into()),
                    Ok(()) => out(machine, &(!decides).into()),
                    Err(other) => Err(other),
                }
            }
            Self::In => {
                let mut is_found = false;
                let run = machine.run(first, input, scope, &mut |machine, value| {
                    machine.charge_value(value)?;
                    is_found = order(value, input).is_eq();
                    if is_found { Err(Stop::Enough) } else { Ok(()) }
                });
                match run {
                    Ok(()) | Err(Stop::Enough) => out(machine, &is_found.into()),
                    Err(other) => Err(other),
                }
            }
            Self::Paths => paths(machine, input, &mut Vec::new(), out),
            Self::IsEmpty => {
                let is_empty = take(machine, first, input, scope, 1)?.is_empty();
                out(machine, &is_empty.into())
            }
            Self::SortBy | Self::GroupBy | Self::UniqueBy | Self::MinBy | Self::MaxBy => {
                let mut keyed = Vec::new();
                for item in items(input)? {
                    machine.charge_value(item)?;
                    keyed.push((Value::Array(machine.collect(first, item, scope)?), item.clone()));
                }
                keyed.sort_by(|(one, _), (two, _)| order(one, two));
                out(machine, &self.grouped(keyed))
            }
            Self::WithEntries => {
                let mut mapped = Vec::new();
                for entry in items(&entries(input, machine)?)? {
                    mapped.extend(machine.collect(first, entry, scope)?);
                }
                let object = from_entries(&mapped.into(), machine)?;
                out(machine, &object)
            }
            Self::RecurseDefault => machine.run(&Filter::Recurse, input, scope, out),
        }
    }

    /// Returns the function's result for items that are sorted by their keys.
    fn grouped(self, keyed: Vec<(Value, Value)>) -> Value {
        match self {
            Self::MinBy => keyed.into_iter().next().map(|(_, item)| item).unwrap_or_default(),
            Self::MaxBy => keyed.into_iter().next_back().map(|(_, item)| item).unwrap_or_default(),
            Self::SortBy => keyed.into_iter().map(|(_, item)| item).collect(),
            _ => {
                let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
                for (key, item) in keyed {
                    match groups.last_mut() {
                        Some((last, group)) if order(last, &key).is_eq() => group.push(item),
                        _ => groups.push((key, vec![item])),
                    }
                }
                let is_unique = matches!(self, Self::UniqueBy);
                let of_group = |(_, mut group): (Value, Vec<Value>)| match is_unique {
                    true => group.swap_remove(0),
                    false => Value::Array(group),
                };
                groups.into_iter().map(of_group).collect()
            }
        }
    }
}

/// Collects the first outputs of a filter, and then stops its evaluation.
fn take(
    machine: &mut Machine,
    filter: &Filter,
    input: &Value,
    scope: Option<&Scope<'_>>,
    count: usize,
) -> Result<Vec<Value>, Stop> {
    let mut taken = Vec::new();
    if count == 0 {
        return Ok(taken);
    }
    let run = machine.run(filter, input, scope, &mut |machine, value| {
        machine.charge_value(value)?;
        taken.push(value.clone());
        if taken.len() >= count { Err(Stop::Enough) } else { Ok(()) }
    });
    match run {
        Ok(()) | Err(Stop::Enough) => Ok(taken),
        Err(other) => Err(other),
    }
}

/// Outputs the path of each value in a value.
fn paths(
    machine: &mut Machine,
    value: &Value,
    path: &mut Vec<Value>,
    out: Sink<'_>,
) -> Result<(), Stop> {
    let mut step = |machine: &mut Machine, key: Value, below: &Value| {
        path.push(key);
        let found = Value::Array(path.clone());
        machine.charge_value(&found)?;
        out(machine, &found)?;
        paths(machine, below, path, out)?;
        path.pop();
        Ok(())
    };
    match value {
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.try_for_each(|(index, item)| step(machine, index.into(), item))
        }
        Value::Object(fields) => {
            let mut fields = fields.iter();
            fields.try_for_each(|(key, field)| step(machine, Value::from(&**key), field))
        }
        _ => Ok(()),
    }
}

/// Returns the only argument.
fn argument(arguments: &[Value]) -> &Value {
    arguments.first().unwrap_or(&Value::Null)
}

/// Returns the items of an array or the values of an object.
fn members(value: &Value) -> Result<Vec<&Value>, Stop> {
    match value {
        Value::Array(items) => Ok(items.iter().collect()),
        Value::Object(fields) => Ok(fields.values().collect()),
        other => error(format!("Cannot iterate over {}", kind(other))),
    }
}

fn items(value: &Value) -> Result<&[Value], Stop> {
    match value {
        Value::Array(items) => Ok(items),
        other => error(format!("{} is not an array", kind(other))),
    }
}

fn string(value: &Value) -> Result<&str, Stop> {
    match value {
        Value::String(text) => Ok(text),
        other => error(format!("{} is not a string", kind(other))),
    }
}

fn number(value: &Value) -> Result<f64, Stop> {
    value.as_f64().map_or_else(|| error(format!("{} is not a number", kind(value))), Ok)
}

fn at(value: &Value, index: i64) -> Result<Value, Stop> {
    Ok(get(value, &index.into()).or_else(error)?.cloned().unwrap_or_default())
}

/// Returns whether an object has a key, or an array has an index.
fn has(value: &Value, key: &Value) -> Result<Value, Stop> {
    match (value, key) {
        (Value::Object(fields), Value::String(key)) => Ok(fields.contains_key(key).into()),
        (Value::Array(items), Value::Number(index)) => {
            let length = items.len() as f64;
            Ok(index.as_f64().is_some_and(|index| index >= 0.0 && index < length).into())
        }
        _ => error(format!("{} cannot be checked for a key", kind(value))),
    }
}

/// Collects items, and replaces each array by its items, down to a depth.
fn flatten(items: &[Value], depth: f64, flat: &mut Vec<Value>) {
    for item in items {
        match item {
            Value::Array(inner) if depth > 0.0 => flatten(inner, depth - 1.0, flat),
            other => flat.push(other.clone()),
        }
    }
}

/// Returns whether a value contains another one: a substring for strings, and recursively for arrays and objects.
fn contains(value: &Value, part: &Value, machine: &mut Machine) -> Result<bool, Stop> {
    machine.charge(1)?;
    Ok(match (value, part) {
        (Value::String(text), Value::String(part)) => {
            machine.charge(text.len() / 16)?;
            text.contains(&**part)
        }
        (Value::Array(items), Value::Array(parts)) => {
            for part in parts {
                let mut found = false;
                for item in items {
                    found = kind(item) == kind(part) && contains(item, part, machine)?;
                    if found {
                        break;
                    }
                }
                if !found {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Object(fields), Value::Object(parts)) => {
            for (key, part) in parts {
                let field = fields.get(key);
                if !field.map_or(Ok(false), |field| contains(field, part, machine))? {
                    return Ok(false);
                }
            }
            true
        }
        (one, two) if kind(one) == kind(two) => order(one, two) == Ordering::Equal,
        (one, two) => {
            return error(format!("{} and {} cannot be compared", kind(one), kind(two)));
        }
    })
}

fn matches(input: &Value, arguments: &[Value], machine: &mut Machine) -> Result<Value, Stop> {
    let (text, pattern) = (string(input)?, string(argument(arguments))?);
    machine.charge(1000 + pattern.len().saturating_mul(10) + text.len())?;
    let flags = arguments.get(1).and_then(Value::as_str).unwrap_or_default();
    let regex = RegexBuilder::new(pattern)
        .size_limit(MAX_REGEX)
        .case_insensitive(flags.contains('i'))
        .ignore_whitespace(flags.contains('x'))
        .dot_matches_new_line(flags.contains('s'))
        .build();
    regex.map_or_else(|why| error(why.to_string()), |regex| Ok(regex.is_match(text).into()))
}

fn entries(input: &Value, machine: &mut Machine) -> Result<Value, Stop> {
    machine.charge_value(input)?;
    let Value::Object(fields) = input else {
        return error(format!("{} has no entries", kind(input)));
    };
    Ok(fields.iter().map(|(key, value)| json!({"key": key, "value": value})).collect())
}

fn from_entries(input: &Value, machine: &mut Machine) -> Result<Value, Stop> {
    machine.charge_value(input)?;
    let mut object = Map::new();
    for entry in members(input)? {
        let field = |names: [&str; 2]| {
            names.iter().find_map(|name| entry.get(name)).cloned().unwrap_or_default()
        };
        object.insert(to_text(&field(["key", "name"])), field(["value", "Value"]));
    }
    Ok(object.into())
}

fn date(input: &Value, _: &[Value], _: &mut Machine) -> Result<Value, Stop> {
    let time = time::parse(string(input)?);
    time.map_or_else(|why| error(why.to_string()), |time| Ok(time.as_second().into()))
}
