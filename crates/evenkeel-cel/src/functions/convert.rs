//! Conversions between types, optional values, sizes.

use std::rc::Rc;

use base64::Engine as _;
use jiff::SignedDuration;

use super::number::parse_f64;
use super::time::Time;
use super::{Outcome, time};
use crate::value::Val;

pub(super) fn member<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    match (name, args) {
        ("size", [value]) => Some(size(value)),
        ("validate", [Val::Format(format), Val::Str(text)]) => Some(Ok(validate(format, text))),
        _ => None,
    }
}

fn size<'a>(value: &Val<'a>) -> Outcome<'a> {
    value.size().map(|n| Val::Int(n as i64)).ok_or_else(|| "no such overload".to_owned())
}

pub(super) fn global<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    Some(match (name, args) {
        ("size", [value]) => size(value),
        ("dyn", [value]) => Ok(value.clone()),
        ("type", [value]) => Ok(Val::Type(value.type_name())),
        ("int", [value]) => int(value),
        ("uint", [value]) => uint(value),
        ("double", [value]) => double(value),
        ("string", [value]) => string(value),
        ("bool", [Val::Bool(b)]) => Ok(Val::Bool(*b)),
        ("bool", [Val::Str(text)]) => match &**text {
            "true" | "True" | "TRUE" | "t" | "T" | "1" => Ok(Val::Bool(true)),
            "false" | "False" | "FALSE" | "f" | "F" | "0" => Ok(Val::Bool(false)),
            _ => Err(conversion_error("bool")),
        },
        ("bool" | "bytes" | "duration" | "timestamp", [value]) if !is_convertible(name, value) => {
            Err(no_overload(name, value))
        }
        ("bytes", [Val::Str(text)]) => Ok(Val::Bytes(text.as_bytes().into())),
        ("bytes", [Val::Bytes(bytes)]) => Ok(Val::Bytes(bytes.clone())),
        ("duration", [Val::Duration(length)]) => Ok(Val::Duration(*length)),
        ("duration", [Val::Str(text)]) => time::parse_duration(text)
            .map(Val::Duration)
            .ok_or_else(|| conversion_error("google.protobuf.Duration")),
        ("timestamp", [Val::Time(at)]) => Ok(Val::Time(*at)),
        ("timestamp", [Val::Int(seconds)]) => Time::new(SignedDuration::from_secs(*seconds))
            .map(Val::Time)
            .ok_or_else(|| "timestamp overflow".to_owned()),
        ("timestamp", [Val::Str(text)]) => time::parse_timestamp(text)
            .unwrap_or_else(|| Err(conversion_error("google.protobuf.Timestamp")))
            .map(Val::Time),
        ("optional.of", [value]) => Ok(Val::some(value.clone())),
        ("optional.none", []) => Ok(Val::Optional(None)),
        ("optional.unwrap", [list]) if list.list_len().is_some() => {
            super::lists::unwrap_optionals(list)
        }
        ("optional.ofNonZeroValue", [value]) => {
            Ok(if is_zero(value) { Val::Optional(None) } else { Val::some(value.clone()) })
        }
        ("base64.encode", [Val::Bytes(bytes)]) => {
            Ok(Val::str(base64::prelude::BASE64_STANDARD.encode(bytes)))
        }
        ("base64.decode", [Val::Str(text)]) => base64::prelude::BASE64_STANDARD
            .decode(text.as_bytes())
            .map(|bytes| Val::Bytes(bytes.into()))
            .map_err(|error| error.to_string()),
        ("jsonpatch.escapeKey", [Val::Str(key)]) => {
            Ok(Val::str(key.replace('~', "~0").replace('/', "~1")))
        }
        ("format.named", [Val::Str(name)]) => Ok(if FORMATS.contains(&&**name) {
            Val::some(Val::Format(Rc::from(&**name)))
        } else {
            Val::Optional(None)
        }),
        (name, []) if name.strip_prefix("format.").is_some_and(|f| FORMATS.contains(&f)) => {
            Ok(Val::Format(name.trim_start_matches("format.").into()))
        }
        _ => return None,
    })
}

/// Names of the formats of the library `format`.
const FORMATS: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "qualifiedName",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

/// Returns the errors of a string that does not have the format; `optional.none()` for a valid string.
fn validate<'a>(format: &str, text: &str) -> Val<'a> {
    use evenkeel_api::forms::{
        dns_1035_label, dns_label, dns_subdomain, label_value, qualified_name,
    };
    // A prefix may end with a dash, because more characters follow it in a name.
    let complete = |prefix: &str| match prefix.strip_suffix('-') {
        Some(without_dash) => format!("{without_dash}a"),
        None => prefix.to_owned(),
    };
    let errors = match format {
        "dns1123Label" => dns_label(text),
        "dns1123Subdomain" => dns_subdomain(text),
        "dns1035Label" => dns_1035_label(text),
        "dns1123LabelPrefix" => dns_label(&complete(text)),
        "dns1123SubdomainPrefix" => dns_subdomain(&complete(text)),
        "dns1035LabelPrefix" => dns_1035_label(&complete(text)),
        "qualifiedName" => qualified_name(text),
        "labelValue" => label_value(text),
        "uri" => crate::url::Url::request_uri_error(text).into_iter().collect(),
        other if crate::formats::fits(other, text) => Vec::new(),
        "uuid" => vec!["does not match the UUID format".to_owned()],
        "byte" => vec!["invalid base64".to_owned()],
        other => vec![format!("invalid {other}")],
    };
    if errors.is_empty() {
        return Val::Optional(None);
    }
    Val::some(Val::list(errors.into_iter().map(Val::str).collect()))
}

/// Returns whether a value is the zero value of its type in Go.
fn is_zero(value: &Val<'_>) -> bool {
    match value {
        Val::Null | Val::Optional(None) => true,
        Val::Bool(b) => !b,
        Val::Duration(length) => length.is_zero(),
        // Upstream's zero is the first second of the year 1.
        Val::Time(at) => *at == Time::ZERO,
        Val::Str(text) => text.is_empty(),
        value => value.number() == Some(0.0) || value.size() == Some(0),
    }
}

/// Returns the error of a string that cannot be converted to a type.
fn conversion_error(to: &str) -> String {
    format!("type conversion error from 'string' to '{to}'")
}

/// Returns the error of a value whose type a conversion does not accept.
fn no_overload(name: &str, value: &Val<'_>) -> String {
    format!("no such overload: {name}({})", value.type_name())
}

/// Returns whether the conversion `bool`, `bytes`, `duration` or `timestamp` accepts values of this type.
fn is_convertible(name: &str, value: &Val<'_>) -> bool {
    match value {
        Val::Str(_) => true,
        Val::Bool(_) => name == "bool",
        Val::Bytes(_) => name == "bytes",
        Val::Duration(_) => name == "duration",
        Val::Time(_) | Val::Int(_) => name == "timestamp",
        _ => false,
    }
}

/// The least double that does not fit `i64`: 2^63.
const INT_LIMIT: f64 = 9_223_372_036_854_775_808.0;
/// The least double that does not fit `u64`: 2^64.
const UINT_LIMIT: f64 = 18_446_744_073_709_551_616.0;

fn int<'a>(value: &Val<'a>) -> Outcome<'a> {
    let overflow = || "integer overflow".to_owned();
    match value {
        Val::Int(n) => Ok(Val::Int(*n)),
        Val::Uint(n) => i64::try_from(*n).map(Val::Int).map_err(|_| overflow()),
        // Upstream refuses the least `int`, -2^63, too.
        Val::Double(n) if n.abs() < INT_LIMIT => Ok(Val::Int(*n as i64)),
        Val::Double(_) => Err(overflow()),
        Val::Str(text) => text.parse().map(Val::Int).map_err(|_| conversion_error("int")),
        Val::Time(at) => Ok(Val::Int(at.as_second())),
        Val::Duration(length) => {
            Ok(Val::Int(i64::try_from(length.as_nanos()).map_err(|_| overflow())?))
        }
        value => Err(no_overload("int", value)),
    }
}

fn uint<'a>(value: &Val<'a>) -> Outcome<'a> {
    let overflow = || "unsigned integer overflow".to_owned();
    match value {
        Val::Uint(n) => Ok(Val::Uint(*n)),
        Val::Int(n) => u64::try_from(*n).map(Val::Uint).map_err(|_| overflow()),
        Val::Double(n) if *n >= 0.0 && *n < UINT_LIMIT => Ok(Val::Uint(*n as u64)),
        Val::Double(_) => Err(overflow()),
        // Go accepts no sign before an unsigned number.
        Val::Str(text) if !text.starts_with('+') => {
            text.parse().map(Val::Uint).map_err(|_| conversion_error("uint"))
        }
        Val::Str(_) => Err(conversion_error("uint")),
        value => Err(no_overload("uint", value)),
    }
}

fn double<'a>(value: &Val<'a>) -> Outcome<'a> {
    match value {
        Val::Str(text) => {
            parse_f64(text).map(Val::Double).ok_or_else(|| conversion_error("double"))
        }
        value => value.number().map(Val::Double).ok_or_else(|| no_overload("double", value)),
    }
}

pub(super) fn string<'a>(value: &Val<'a>) -> Outcome<'a> {
    Ok(match value {
        Val::Str(text) => Val::Str(text.clone()),
        Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::Double(_) => Val::str(value.shown()),
        Val::Bytes(bytes) => Val::str(
            std::str::from_utf8(bytes)
                .map_err(|_| "invalid UTF-8 in bytes, cannot convert to string".to_owned())?,
        ),
        Val::Time(at) => Val::str(at.to_string()),
        Val::Duration(length) => Val::str(time::duration_text(*length)),
        Val::Ip(ip) => Val::str(ip.to_string()),
        Val::Cidr(ip, bits) => Val::str(format!("{ip}/{bits}")),
        value => return Err(no_overload("string", value)),
    })
}

#[cfg(test)]
mod tests {
    use crate::tests::assert_results;

    #[test]
    fn conversions_of_numbers_check_the_range() {
        assert_results(&[
            ("int(9223372036854774784.0)", "9223372036854774784"),
            ("int(9.25e18)", "error: integer overflow"),
            ("int(9223372036854775807.0)", "error: integer overflow"),
            ("int(-9223372036854775808.0)", "error: integer overflow"),
            ("int(0.0 / 0.0)", "error: integer overflow"),
            ("int(18446744073709551615u)", "error: integer overflow"),
            ("[int(1.9), int(-1.9), int('+5'), int('-5')]", "[1,-1,5,-5]"),
            ("[uint(1.9), uint(-0.0)]", "[1,0]"),
            ("uint(-0.5)", "error: unsigned integer overflow"),
            ("uint(18446744073709551615.0)", "error: unsigned integer overflow"),
            ("uint(-1)", "error: unsigned integer overflow"),
        ]);
    }

    #[test]
    fn conversions_of_texts_say_the_types() {
        for (name, texts) in [
            ("int", ["'x'", "''", "' 5'", "'1_000'", "'0x10'", "'9223372036854775808'"].as_slice()),
            ("uint", &["'+5'", "'-5'", "'18446744073709551616'"]),
            ("double", &["'x'", "'1e400'", "'-nan'", "''"]),
            ("bool", &["'yes'", "'tRUE'", "''"]),
        ] {
            for text in texts {
                let want = format!("error: type conversion error from 'string' to '{name}'");
                assert_results(&[(&format!("{name}({text})"), &want)]);
            }
        }
        assert_results(&[
            ("[bool('T'), bool('F')]", "[true,false]"),
            ("string(b'\\xff')", "error: invalid UTF-8 in bytes, cannot convert to string"),
            ("[string(1e6), string(1e-5), string(100000.0)]", r#"["1e+06","1e-05","100000"]"#),
            ("string(null)", "error: no such overload: string(null_type)"),
            ("int(null)", "error: no such overload: int(null_type)"),
            ("bool(1)", "error: no such overload: bool(int)"),
            ("duration(1)", "error: no such overload: duration(int)"),
            ("int(timestamp('1960-01-01T00:00:00.5Z'))", "-315619200"),
        ]);
    }
}
