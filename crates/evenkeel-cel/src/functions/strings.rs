//! Functions of strings: those of CEL, cel-go's extension, and Kubernetes' regular expressions.

use super::Outcome;
use crate::value::Val;

pub(super) fn member<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    let [Val::Str(text), rest @ ..] = args else { return None };
    let text: &str = text;
    Some(match (name, rest) {
        ("contains", [Val::Str(part)]) => Ok(Val::Bool(text.contains(&**part))),
        ("startsWith", [Val::Str(part)]) => Ok(Val::Bool(text.starts_with(&**part))),
        ("endsWith", [Val::Str(part)]) => Ok(Val::Bool(text.ends_with(&**part))),
        ("matches", [Val::Str(pattern)]) => matches(text, pattern),
        ("find", [Val::Str(pattern)]) => {
            regex(pattern).map(|r| Val::str(r.find(text).map_or("", |found| found.as_str())))
        }
        ("findAll", [Val::Str(pattern)]) => find_all(text, pattern, usize::MAX),
        ("findAll", [Val::Str(pattern), Val::Int(limit)]) => {
            find_all(text, pattern, usize::try_from(*limit).unwrap_or(usize::MAX))
        }
        ("charAt", [Val::Int(at)]) => char_at(text, *at),
        ("indexOf", [Val::Str(part)]) => Ok(index(text, part, 0, false)),
        ("indexOf", [Val::Str(part), Val::Int(from)]) => Ok(index(text, part, *from, false)),
        ("lastIndexOf", [Val::Str(part)]) => Ok(index(text, part, i64::MAX, true)),
        ("lastIndexOf", [Val::Str(part), Val::Int(from)]) => Ok(index(text, part, *from, true)),
        ("lowerAscii", []) => Ok(Val::str(text.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(Val::str(text.to_ascii_uppercase())),
        ("trim", []) => Ok(Val::str(text.trim())),
        ("reverse", []) => Ok(Val::str(text.chars().rev().collect::<String>())),
        ("replace", [Val::Str(from), Val::Str(to)]) => Ok(Val::str(text.replace(&**from, to))),
        ("replace", [Val::Str(from), Val::Str(to), Val::Int(n)]) => Ok(match usize::try_from(*n) {
            Ok(n) => Val::str(text.replacen(&**from, to, n)),
            Err(_) => Val::str(text.replace(&**from, to)),
        }),
        ("split", [Val::Str(by)]) => Ok(split(text, by, -1)),
        ("split", [Val::Str(by), Val::Int(limit)]) => Ok(split(text, by, *limit)),
        ("substring", [Val::Int(from)]) => substring(text, *from, None),
        ("substring", [Val::Int(from), Val::Int(to)]) => substring(text, *from, Some(*to)),
        ("format", [list]) => format(text, &list.items()?),
        _ => return None,
    })
}

pub(super) fn global<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    match (name, args) {
        ("matches", [Val::Str(text), Val::Str(pattern)]) => Some(matches(text, pattern)),
        ("strings.quote", [Val::Str(text)]) => Some(Ok(Val::str(evenkeel_api::quote::quote(text)))),
        _ => None,
    }
}

fn regex(pattern: &str) -> Result<regex::Regex, String> {
    regex::Regex::new(pattern).map_err(|error| format!("Illegal regex: {error}"))
}

fn matches<'a>(text: &str, pattern: &str) -> Outcome<'a> {
    regex(pattern).map(|r| Val::Bool(r.is_match(text)))
}

fn find_all<'a>(text: &str, pattern: &str, limit: usize) -> Outcome<'a> {
    regex(pattern)
        .map(|r| Val::list(r.find_iter(text).take(limit).map(|m| Val::str(m.as_str())).collect()))
}

fn char_at<'a>(text: &str, at: i64) -> Outcome<'a> {
    let length = text.chars().count() as i64;
    if at < 0 || at > length {
        return Err(format!("index out of range: {at}"));
    }
    Ok(Val::str(text.chars().skip(at as usize).take(1).collect::<String>()))
}

/// Returns the index of a substring in characters, or -1.
fn index<'a>(text: &str, part: &str, from: i64, last: bool) -> Val<'a> {
    let (text, part): (Vec<char>, Vec<char>) = (text.chars().collect(), part.chars().collect());
    let Some(most) = text.len().checked_sub(part.len()) else { return Val::Int(-1) };
    let fits = |at: &usize| text[*at..at + part.len()] == part[..];
    let from = usize::try_from(from).unwrap_or(0);
    let found = if last { (0..=most.min(from)).rev().find(fits) } else { (from..=most).find(fits) };
    Val::Int(found.map_or(-1, |at| at as i64))
}

fn split<'a>(text: &str, by: &str, limit: i64) -> Val<'a> {
    let parts: Vec<String> = match limit {
        0 => Vec::new(),
        _ if by.is_empty() => {
            let all: Vec<char> = text.chars().collect();
            let most = usize::try_from(limit).unwrap_or(all.len()).min(all.len());
            let mut parts: Vec<String> =
                all.iter().take(most.saturating_sub(1)).map(char::to_string).collect();
            if most > 0 {
                parts.push(
                    all[most - 1..].iter().take(if limit < 0 { 1 } else { usize::MAX }).collect(),
                );
            }
            parts
        }
        n if n > 0 => text.splitn(n as usize, by).map(str::to_owned).collect(),
        _ => text.split(by).map(str::to_owned).collect(),
    };
    Val::list(parts.into_iter().map(Val::str).collect())
}

fn substring<'a>(text: &str, from: i64, to: Option<i64>) -> Outcome<'a> {
    let length = text.chars().count() as i64;
    let to = to.unwrap_or(length);
    if from < 0 || from > length {
        return Err(format!("index out of range: {from}"));
    }
    if to < 0 || to > length {
        return Err(format!("index out of range: {to}"));
    }
    if from > to {
        return Err(format!("invalid substring range. start: {from}, end: {to}"));
    }
    Ok(Val::str(text.chars().skip(from as usize).take((to - from) as usize).collect::<String>()))
}

/// Formats the verbs `%s`, `%d`, `%f`, `%e`, `%b`, `%x`, `%X` and `%o`; `%f` and `%e` may have a precision.
fn format<'a>(text: &str, args: &[Val<'a>]) -> Outcome<'a> {
    let mut out = String::new();
    let mut args = args.iter();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut precision = None;
        if rest.next_if_eq(&'.').is_some() {
            let mut digits = String::new();
            while let Some(digit) = rest.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            precision = digits.parse().ok();
        }
        let Some(verb) = rest.next() else {
            return Err("could not parse formatting clause: unexpected end of string".to_owned());
        };
        if verb == '%' {
            out.push('%');
            continue;
        }
        let value = args.next().ok_or_else(|| {
            format!("could not parse formatting clause: index {} out of range", 0)
        })?;
        out.push_str(&clause(verb, precision, value)?);
    }
    Ok(Val::str(out))
}

fn clause(verb: char, precision: Option<usize>, value: &Val<'_>) -> Result<String, String> {
    let wrong = || {
        format!(
            "error during formatting: no formatting function for {verb} of {}",
            value.type_name()
        )
    };
    Ok(match (verb, value) {
        ('s', value) => shown(value),
        ('d', Val::Int(_) | Val::Uint(_)) => value.shown(),
        ('d', Val::Double(n)) if n.fract() == 0.0 => format!("{n:.0}"),
        ('f', value) => {
            format!("{:.*}", precision.unwrap_or(6), value.number().ok_or_else(wrong)?)
        }
        ('e', value) => {
            format!("{:.*e}", precision.unwrap_or(6), value.number().ok_or_else(wrong)?)
        }
        ('b', Val::Int(n)) => format!("{n:b}"),
        ('b', Val::Bool(b)) => u8::from(*b).to_string(),
        ('o', Val::Int(n)) => format!("{n:o}"),
        ('x', Val::Int(n)) => format!("{n:x}"),
        ('X', Val::Int(n)) => format!("{n:X}"),
        ('x', Val::Str(text)) => text.bytes().map(|b| format!("{b:02x}")).collect(),
        ('X', Val::Str(text)) => text.bytes().map(|b| format!("{b:02X}")).collect(),
        _ => return Err(wrong()),
    })
}

fn shown(value: &Val<'_>) -> String {
    if let Some(items) = value.items() {
        let items: Vec<String> = items.iter().map(shown).collect();
        return format!("[{}]", items.join(", "));
    }
    if let Some(mut entries) = value.entries() {
        entries.sort_by_key(|(key, _)| key.shown());
        let entries: Vec<String> =
            entries.iter().map(|(k, v)| format!("{}: {}", shown(k), shown(v))).collect();
        return format!("{{{}}}", entries.join(", "));
    }
    match value {
        Val::Null => "null".to_owned(),
        value => value.shown(),
    }
}
