//! Common functions of the library sprig, which KWOK's templates may call.

use serde_json::{Map, Value};
use std::collections::HashSet;

use super::{
    eval::Machine,
    functions::{BYTES_PER_STEP, Body, one, two},
    lex::integer,
    print::{is_true, quoted, text, type_name},
};
use crate::behaviors::draw_of;

/// Functions of sprig.
pub(super) const FUNCTIONS: &[(&str, Body)] = &[
    // Defaults and conditions.
    ("default", |a, _| two(a).map(|(default, value)| either(value, default))),
    ("empty", |a, _| Ok((!is_true(one(a)?)).into())),
    ("coalesce", |a, _| Ok(a.iter().find(|value| is_true(value)).cloned().unwrap_or_default())),
    ("all", |a, _| Ok(a.iter().all(is_true).into())),
    ("any", |a, _| Ok(a.iter().any(is_true).into())),
    ("ternary", |a, _| match a {
        [yes, no, condition] => Ok(if is_true(condition) { yes } else { no }.clone()),
        _ => Err("wrong number of args: want 3".to_owned()),
    }),
    ("fail", |a, _| Err(text(one(a)?))),
    // Strings.
    ("upper", |a, _| Ok(text(one(a)?).to_uppercase().into())),
    ("lower", |a, _| Ok(text(one(a)?).to_lowercase().into())),
    ("trim", |a, _| Ok(text(one(a)?).trim().into())),
    ("trimAll", |a, _| {
        two(a).map(|(set, input)| {
            let set: HashSet<char> = text(set).chars().collect();
            text(input).trim_matches(|c: char| set.contains(&c)).into()
        })
    }),
    ("trimPrefix", |a, _| {
        two(a).map(|(cut, input)| {
            let input = text(input);
            input.strip_prefix(&text(cut)).unwrap_or(&input).into()
        })
    }),
    ("trimSuffix", |a, _| {
        two(a).map(|(cut, input)| {
            let input = text(input);
            input.strip_suffix(&text(cut)).unwrap_or(&input).into()
        })
    }),
    ("contains", |a, _| two(a).map(|(part, input)| text(input).contains(&text(part)).into())),
    ("hasPrefix", |a, _| two(a).map(|(part, input)| text(input).starts_with(&text(part)).into())),
    ("hasSuffix", |a, _| two(a).map(|(part, input)| text(input).ends_with(&text(part)).into())),
    ("replace", |a, machine| match a {
        [from, to, input] => {
            machine.count_steps(
                text(input).len().saturating_mul(text(to).len() + 1) / BYTES_PER_STEP,
            )?;
            Ok(text(input).replace(&text(from), &text(to)).into())
        }
        _ => Err("wrong number of args: want 3".to_owned()),
    }),
    ("repeat", |a, machine| {
        let (count, input) = two(a)?;
        let (count, input) = (count_of(count)?, text(input));
        machine.count_steps(count.saturating_mul(input.len() + 1))?;
        Ok(input.repeat(count).into())
    }),
    ("trunc", |a, _| {
        let (count, input) = two(a)?;
        Ok(text(input).chars().take(count_of(count)?).collect::<String>().into())
    }),
    ("quote", |a, _| Ok(join(a.iter().filter(|v| !v.is_null()).map(|v| quoted(&text(v))), " "))),
    ("squote", |a, _| {
        Ok(join(a.iter().filter(|v| !v.is_null()).map(|v| format!("'{}'", text(v))), " "))
    }),
    ("cat", |a, _| Ok(join(a.iter().filter(|v| !v.is_null()).map(text), " "))),
    ("indent", |a, machine| indent(a, machine, "")),
    ("nindent", |a, machine| indent(a, machine, "\n")),
    ("join", |a, _| {
        let (separator, list) = two(a)?;
        Ok(join(items(list)?.iter().filter(|v| !v.is_null()).map(text), &text(separator)))
    }),
    ("splitList", |a, _| {
        two(a).map(|(separator, input)| {
            let input = text(input);
            input.split(&text(separator)).map(Value::from).collect()
        })
    }),
    ("toString", |a, _| Ok(text(one(a)?).into())),
    ("toStrings", |a, _| Ok(items(one(a)?)?.iter().map(|v| Value::from(text(v))).collect())),
    ("toJson", |a, _| Ok(one(a)?.to_string().into())),
    ("fromJson", |a, _| Ok(serde_json::from_str(&text(one(a)?)).unwrap_or_default())),
    // Numbers.
    ("int", |a, _| Ok(int(one(a)?).into())),
    ("int64", |a, _| Ok(int(one(a)?).into())),
    ("atoi", |a, _| Ok(int(one(a)?).into())),
    ("float64", |a, _| Ok(float(one(a)?).into())),
    ("add", |a, _| Ok(a.iter().map(int).fold(0, i64::wrapping_add).into())),
    ("add1", |a, _| Ok(int(one(a)?).wrapping_add(1).into())),
    ("sub", |a, _| two(a).map(|(a, b)| int(a).wrapping_sub(int(b)).into())),
    ("mul", |a, _| Ok(a.iter().map(int).fold(1, i64::wrapping_mul).into())),
    ("div", |a, _| divide(a, i64::checked_div)),
    ("mod", |a, _| divide(a, i64::checked_rem)),
    ("max", |a, _| Ok(a.iter().map(int).max().unwrap_or_default().into())),
    ("min", |a, _| Ok(a.iter().map(int).min().unwrap_or_default().into())),
    ("until", |a, machine| {
        let count = count_of(one(a)?)?;
        machine.count_steps(count)?;
        Ok((0..count).map(Value::from).collect())
    }),
    ("randInt", |a, machine| {
        let (low, high) = two(a).map(|(low, high)| (int(low), int(high)))?;
        let count = high.checked_sub(low).and_then(|count| u64::try_from(count).ok());
        let count = count.filter(|count| *count > 0).ok_or("the range is empty")?;
        Ok(low.saturating_add_unsigned(draw(machine) % count).into())
    }),
    ("randAlphaNum", |a, machine| {
        const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
        let count = count_of(one(a)?)?;
        machine.count_steps(count)?;
        let letter = |_| {
            let index = draw(machine) % LETTERS.len() as u64;
            LETTERS.get(index as usize).copied().map_or('a', char::from)
        };
        Ok((0..count).map(letter).collect::<String>().into())
    }),
    // Lists.
    ("list", |a, _| Ok(a.to_vec().into())),
    ("tuple", |a, _| Ok(a.to_vec().into())),
    ("first", |a, _| Ok(items(one(a)?)?.first().cloned().unwrap_or_default())),
    ("last", |a, _| Ok(items(one(a)?)?.last().cloned().unwrap_or_default())),
    ("rest", |a, _| Ok(items(one(a)?)?.iter().skip(1).cloned().collect())),
    ("initial", |a, _| {
        let list = items(one(a)?)?;
        Ok(list.iter().take(list.len().saturating_sub(1)).cloned().collect())
    }),
    ("append", |a, machine| {
        let (list, item) = two(a)?;
        let mut list = items(list)?.to_vec();
        machine.count_steps(list.len())?;
        list.push(item.clone());
        Ok(list.into())
    }),
    ("concat", |a, machine| {
        let mut all = Vec::new();
        for list in a {
            let list = items(list)?;
            machine.count_steps(list.len())?;
            all.extend_from_slice(list);
        }
        Ok(all.into())
    }),
    ("has", |a, _| two(a).and_then(|(item, list)| Ok(items(list)?.contains(item).into()))),
    ("uniq", |a, _| {
        let mut known = HashSet::new();
        let unique = items(one(a)?)?.iter().filter(|item| known.insert(*item));
        Ok(unique.cloned().collect())
    }),
    ("sortAlpha", |a, _| {
        let mut sorted: Vec<String> = items(one(a)?)?.iter().map(text).collect();
        sorted.sort();
        Ok(sorted.into())
    }),
    // Maps.
    ("dict", |a, _| {
        let pairs = a.chunks(2).map(|pair| {
            let key = pair.first().map(text).unwrap_or_default();
            (key, pair.get(1).cloned().unwrap_or_else(|| "".into()))
        });
        Ok(Value::Object(pairs.collect()))
    }),
    ("get", |a, _| {
        two(a).and_then(|(map, key)| Ok(fields(map)?.get(&text(key)).cloned().unwrap_or("".into())))
    }),
    ("hasKey", |a, _| {
        two(a).and_then(|(map, key)| Ok(fields(map)?.contains_key(&text(key)).into()))
    }),
    ("keys", |a, _| Ok(fields(one(a)?)?.keys().map(|key| Value::from(&**key)).collect())),
    ("values", |a, _| Ok(fields(one(a)?)?.values().cloned().collect())),
    ("merge", |a, machine| {
        let mut merged = Map::new();
        for map in a {
            machine.count_steps(fields(map)?.len())?;
            for (key, value) in fields(map)? {
                merged.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
        Ok(merged.into())
    }),
    ("dig", |a, _| match a {
        [keys @ .., default, map] if !keys.is_empty() => {
            let found = keys.iter().try_fold(map, |value, key| value.get(text(key)));
            Ok(found.unwrap_or(default).clone())
        }
        _ => Err("wrong number of args: want at least 3".to_owned()),
    }),
    ("kindOf", |a, _| Ok(type_name(one(a)?).into())),
    ("kindIs", |a, _| two(a).map(|(kind, value)| (text(kind) == type_name(value)).into())),
];

fn either(value: &Value, default: &Value) -> Value {
    if is_true(value) { value.clone() } else { default.clone() }
}

/// Returns the next draw of the rendering.
fn draw(machine: &mut Machine<'_>) -> u64 {
    machine.draws += 1;
    draw_of(machine.environment.draws, machine.draws)
}

fn join(texts: impl Iterator<Item = String>, separator: &str) -> Value {
    texts.collect::<Vec<_>>().join(separator).into()
}

fn items(value: &Value) -> Result<&[Value], String> {
    match value {
        Value::Array(items) => Ok(items),
        Value::Null => Ok(&[]),
        other => Err(format!("a {} is not a list", type_name(other))),
    }
}

fn fields(value: &Value) -> Result<&Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("a {} is not a map", type_name(value)))
}

/// Converts a value to an integer, as sprig does: 0 for a value that is not a number.
fn int(value: &Value) -> i64 {
    match value {
        Value::Number(number) => {
            number.as_i64().unwrap_or_else(|| number.as_f64().unwrap_or_default() as i64)
        }
        Value::String(text) => integer(text).unwrap_or_default(),
        Value::Bool(truth) => i64::from(*truth),
        _ => 0,
    }
}

fn float(value: &Value) -> f64 {
    match value {
        Value::String(text) => text.parse().unwrap_or_default(),
        other => other.as_f64().unwrap_or_default(),
    }
}

/// Converts a value to a number of items.
fn count_of(value: &Value) -> Result<usize, String> {
    usize::try_from(int(value)).map_err(|_| format!("{} is negative", text(value)))
}

fn divide(arguments: &[Value], by: fn(i64, i64) -> Option<i64>) -> Result<Value, String> {
    let (one, two) = two(arguments)?;
    Ok(by(int(one), int(two)).ok_or("division by zero")?.into())
}

/// Indents the lines of a string.
fn indent(arguments: &[Value], machine: &mut Machine<'_>, before: &str) -> Result<Value, String> {
    let (count, input) = two(arguments)?;
    let (count, input) = (count_of(count)?, text(input));
    machine.count_steps(count.saturating_mul(input.lines().count() + 1) / 8)?;
    let pad = " ".repeat(count);
    Ok(format!("{before}{pad}{}", input.replace('\n', &format!("\n{pad}"))).into())
}
