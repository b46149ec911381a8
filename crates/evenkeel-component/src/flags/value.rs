//! Types of flag values, parsed as upstream's `spf13/pflag` and `component-base/cli/flag` parse them.

use super::{duration, print};
use crate::version;
use evenkeel_api::quantity::Quantity;
use std::{net::IpAddr, time::Duration};

/// Type of a flag's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// `bool`. `--flag` without a value means true.
    Bool,
    /// Integer of 32 bits.
    Int32,
    /// Integer of 64 bits.
    Int,
    /// Single precision number.
    Float32,
    /// Double precision number.
    Float,
    /// Duration in Go's format, such as `1m30s`.
    Duration,
    /// Comma-separated list. Repeated flags append to it.
    List,
    /// List with one item for each occurrence of the flag.
    Items,
    /// Comma-separated list of integers.
    Ints,
    /// An IP address.
    Ip,
    /// `key=value` pairs. Repeated flags add pairs. The last value of a repeated key counts.
    Map,
    /// `component:text` pairs. Repeated flags add pairs. Without a component, the key is empty.
    Multimap,
    /// Paths of a certificate and a key, perhaps with names. One for each occurrence of the flag.
    CertKeys,
    /// Number of bytes as a Kubernetes quantity.
    Quantity,
    /// Verbosity of the log.
    Level,
    /// Verbosity by file, `pattern=N,…`.
    Levels,
    /// `true`, `false`, `raw` or a version. `--flag` without a value means true.
    Version,
    /// Any other string.
    Text,
}

/// Value of a flag.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Value of a [`Type::Bool`].
    Bool(bool),
    /// Value of an integer type.
    Int(i64),
    /// Value of a number type.
    Float(f64),
    /// Value of a [`Type::Duration`].
    Duration(Duration),
    /// Value of a list type.
    List(Vec<String>),
    /// Pairs of a map type, in the order of the command line.
    Map(Vec<(String, String)>),
    /// Value of a [`Type::Ip`].
    Ip(IpAddr),
    /// Value of any other type.
    Text(String),
}

impl Type {
    /// Returns the type with this name in upstream's help text.
    pub(super) fn from_name(name: &str) -> Self {
        match name {
            "bool" => Self::Bool,
            "int32" => Self::Int32,
            "int" => Self::Int,
            "float32" => Self::Float32,
            "float" => Self::Float,
            "duration" => Self::Duration,
            "strings" => Self::List,
            "stringArray" => Self::Items,
            "int32Slice" => Self::Ints,
            "ip" => Self::Ip,
            "stringToString" => Self::Map,
            "colonSeparatedMultimapStringString" => Self::Multimap,
            "namedCertKey" => Self::CertKeys,
            "quantity" => Self::Quantity,
            "Level" => Self::Level,
            "pattern=N,..." => Self::Levels,
            "version[=true]" => Self::Version,
            _ => Self::Text,
        }
    }

    /// Returns upstream's name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int32 => "int32",
            Self::Int => "int",
            Self::Float32 => "float32",
            Self::Float => "float",
            Self::Duration => "duration",
            Self::List => "strings",
            Self::Items => "stringArray",
            Self::Ints => "int32Slice",
            Self::Ip => "ip",
            Self::Map => "stringToString",
            Self::Multimap => "colonSeparatedMultimapStringString",
            Self::CertKeys => "namedCertKey",
            Self::Quantity => "quantity",
            Self::Level => "Level",
            Self::Levels => "pattern=N,...",
            Self::Version => "version[=true]",
            Self::Text => "string",
        }
    }

    /// Returns the value of a flag that is set without a value: `true` for a `bool` (pflag's `NoOptDefVal`).
    pub(super) fn no_opt_default(self) -> Option<&'static str> {
        matches!(self, Self::Bool | Self::Version).then_some("true")
    }

    /// Parses the value of one occurrence of the flag. `before` is the value of the earlier occurrences. The errors are Go's.
    pub(super) fn parse(self, before: Option<Value>, text: &str) -> Result<Value, String> {
        Ok(match self {
            Self::Bool => Value::Bool(parse_bool(text)?),
            Self::Int32 => Value::Int(
                i32::try_from(parse_int("ParseInt", text)?)
                    .map_err(|_| out_of_range("ParseInt", text))?
                    .into(),
            ),
            Self::Int => Value::Int(parse_int("ParseInt", text)?),
            Self::Level => Value::Int(parse_level(text)?),
            Self::Float => Value::Float(parse_float(text)?),
            Self::Float32 => {
                let value = parse_float(text)?;
                if value.is_finite() && (value as f32).is_infinite() {
                    return Err(out_of_range("ParseFloat", text));
                }
                Value::Float(value)
            }
            Self::Duration => Value::Duration(duration::parse(text)?),
            Self::Ip => {
                Value::Ip(text.trim().parse().map_err(|_| format!("failed to parse IP: {text:?}"))?)
            }
            Self::List => append_items(before, parse_csv(text)?),
            Self::Items => append_items(before, vec![text.to_owned()]),
            Self::Ints => append_items(before, parse_ints(text)?),
            Self::CertKeys => append_items(before, vec![parse_cert_key(text)?]),
            Self::Map => replace_pairs(before, parse_pairs(text)?),
            Self::Multimap => append_pairs(before, parse_components(text)),
            Self::Quantity => {
                Quantity::parse(text).map_err(|_| INVALID_QUANTITY.to_owned())?;
                Value::Text(text.to_owned())
            }
            Self::Levels => Value::Text(parse_levels(text)?),
            Self::Version => Value::Text(match text {
                "raw" => text.to_owned(),
                _ if text.starts_with('v') => {
                    version::check(text)?;
                    text.to_owned()
                }
                _ => parse_bool(text)?.to_string(),
            }),
            Self::Text => Value::Text(text.to_owned()),
        })
    }

    /// Returns the value of a flag that is not set. `default` is the default in the recorded help. An invalid default is a
    /// mistake in the table, which a test detects.
    pub(super) fn default(self, default: &str) -> Value {
        let inner = default.trim_matches('"').trim_start_matches('[').trim_end_matches(']');
        let empty = match self {
            Self::Bool => Value::Bool(false),
            Self::Int | Self::Int32 | Self::Level => Value::Int(0),
            Self::Float | Self::Float32 => Value::Float(0.0),
            Self::Duration => Value::Duration(Duration::ZERO),
            Self::List | Self::Items | Self::Ints | Self::CertKeys => Value::List(Vec::new()),
            Self::Map | Self::Multimap => Value::Map(Vec::new()),
            Self::Version => Value::Text("false".to_owned()),
            Self::Quantity => Value::Text("0".to_owned()),
            Self::Ip | Self::Levels | Self::Text => Value::Text(String::new()),
        };
        if inner.is_empty() { empty } else { self.parse(None, inner).unwrap_or(empty) }
    }

    /// Formats the value as pflag prints it.
    pub(super) fn print(self, value: &Value) -> String {
        print::format_value(self, value)
    }
}

const INVALID_QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Appends items to the value of earlier occurrences.
fn append_items(before: Option<Value>, items: Vec<String>) -> Value {
    match before {
        Some(Value::List(mut list)) => {
            list.extend(items);
            Value::List(list)
        }
        _ => Value::List(items),
    }
}

/// Appends pairs, including those of a repeated key.
fn append_pairs(before: Option<Value>, pairs: Vec<(String, String)>) -> Value {
    match before {
        Some(Value::Map(mut map)) => {
            map.extend(pairs);
            Value::Map(map)
        }
        _ => Value::Map(pairs),
    }
}

/// Adds pairs in place of those with the same keys.
fn replace_pairs(before: Option<Value>, pairs: Vec<(String, String)>) -> Value {
    let mut map = match before {
        Some(Value::Map(map)) => map,
        _ => Vec::new(),
    };
    for (key, value) in pairs {
        map.retain(|(known, _)| *known != key);
        map.push((key, value));
    }
    Value::Map(map)
}

fn invalid_syntax(function: &str, text: &str) -> String {
    format!("strconv.{function}: parsing {text:?}: invalid syntax")
}

fn out_of_range(function: &str, text: &str) -> String {
    format!("strconv.{function}: parsing {text:?}: value out of range")
}

fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(invalid_syntax("ParseBool", text)),
    }
}

/// Parses an integer with Go's prefixes: `0x` for base 16, `0b` for base 2, `0o` and `0` for base 8.
fn parse_int(function: &str, text: &str) -> Result<i64, String> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let lower = digits.to_ascii_lowercase();
    let (base, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(base)) {
        return Err(invalid_syntax(function, text));
    }
    let sign = if text.starts_with('-') { "-" } else { "" };
    i64::from_str_radix(&format!("{sign}{digits}"), base).map_err(|_| out_of_range(function, text))
}

fn parse_level(text: &str) -> Result<i64, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid_syntax("ParseUint", text));
    }
    text.parse::<i32>().map(i64::from).map_err(|_| out_of_range("ParseUint", text))
}

fn parse_float(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| invalid_syntax("ParseFloat", text))?;
    let names_infinity = text.to_ascii_lowercase().contains("inf");
    if value.is_infinite() && !names_infinity {
        return Err(out_of_range("ParseFloat", text));
    }
    Ok(value)
}

/// Parses one line of comma-separated values, which may be quoted, like Go's `encoding/csv`.
fn parse_csv(text: &str) -> Result<Vec<String>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let (mut items, mut rest) = (Vec::new(), text);
    loop {
        let (item, after) = match rest.strip_prefix('"') {
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                if let Some(quote) = rest[..end].find('"') {
                    let column = text.len() - rest.len() + quote + 1;
                    return Err(format!(
                        "parse error on line 1, column {column}: bare \" in non-quoted-field"
                    ));
                }
                (rest[..end].to_owned(), &rest[end..])
            }
            Some(quoted) => {
                let (item, after) = unquote(quoted);
                if after.is_some_and(|after| after.is_empty() || after.starts_with(',')) {
                    (item, after.unwrap_or_default())
                } else {
                    let column = text.len() + 1 - after.map_or(0, str::len);
                    return Err(format!(
                        "parse error on line 1, column {column}: extraneous or missing \" in quoted-field"
                    ));
                }
            }
        };
        items.push(item);
        match after.strip_prefix(',') {
            Some(after) => rest = after,
            None => return Ok(items),
        }
    }
}

/// Returns the part before the closing quote, and the rest. A doubled quote means a quote.
fn unquote(quoted: &str) -> (String, Option<&str>) {
    let (mut item, mut rest) = (String::new(), quoted);
    while let Some((before, after)) = rest.split_once('"') {
        item.push_str(before);
        let Some(next) = after.strip_prefix('"') else { return (item, Some(after)) };
        item.push('"');
        rest = next;
    }
    (item, None)
}

fn parse_ints(text: &str) -> Result<Vec<String>, String> {
    let int = |text: &str| {
        let value = text.trim();
        if value.is_empty()
            || !value.trim_start_matches(['-', '+']).bytes().all(|b| b.is_ascii_digit())
        {
            return Err(invalid_syntax("ParseInt", value));
        }
        value.parse::<i32>().map(|int| int.to_string()).map_err(|_| out_of_range("ParseInt", value))
    };
    text.split(',').map(int).collect()
}

fn parse_cert_key(text: &str) -> Result<String, String> {
    let (files, names) =
        text.split_once(':').map_or((text, None), |(files, names)| (files, Some(names)));
    let files: Vec<&str> = files.trim().split(',').map(str::trim).collect();
    let names: Option<Vec<&str>> = match names.map(str::trim) {
        Some("") => return Err("empty names list is not allowed".to_owned()),
        names => names.map(|names| names.split(',').map(str::trim).collect()),
    };
    match files.as_slice() {
        [certificate, key] => Ok(match names {
            Some(names) => format!("{certificate},{key}:{}", names.join(",")),
            None => format!("{certificate},{key}"),
        }),
        _ => Err("expected comma separated certificate and key file paths".to_owned()),
    }
}

fn parse_pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let items = match text.matches('=').count() {
        0 => return Err(format!("{text} must be formatted as key=value")),
        1 => vec![text.trim_matches('"').to_owned()],
        _ => parse_csv(text)?,
    };
    let pair = |item: String| match item.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(format!("{item} must be formatted as key=value")),
    };
    items.into_iter().map(pair).collect()
}

fn parse_components(text: &str) -> Vec<(String, String)> {
    let pair = |item: &str| {
        let (component, value) = item.split_once(':').unwrap_or(("", item));
        (component.trim().to_owned(), value.trim().to_owned())
    };
    text.split(',').filter(|item| !item.is_empty()).map(pair).collect()
}

fn parse_levels(text: &str) -> Result<String, String> {
    let mut levels = Vec::new();
    for item in text.split(',').filter(|item| !item.is_empty()) {
        let Some((pattern, verbosity)) = item.split_once('=') else {
            return Err(format!("{item:?} does not have the pattern=N format"));
        };
        let verbosity = parse_level(verbosity)
            .map_err(|error| format!("parsing verbosity in {item:?}: {error}"))?;
        levels.push(format!("{pattern}={verbosity}"));
    }
    Ok(levels.join(","))
}
