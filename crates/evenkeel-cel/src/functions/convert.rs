//! Conversions between types, optional values, sizes.

use std::rc::Rc;

use base64::Engine as _;

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
            "true" | "True" | "TRUE" | "t" | "1" => Ok(Val::Bool(true)),
            "false" | "False" | "FALSE" | "f" | "0" => Ok(Val::Bool(false)),
            _ => Err("type conversion error from 'string' to 'bool'".to_owned()),
        },
        ("bytes", [Val::Str(text)]) => Ok(Val::Bytes(text.as_bytes().into())),
        ("bytes", [Val::Bytes(bytes)]) => Ok(Val::Bytes(bytes.clone())),
        ("duration", [Val::Duration(length)]) => Ok(Val::Duration(*length)),
        ("duration", [Val::Str(text)]) => time::parse_duration(text)
            .map(Val::Duration)
            .ok_or_else(|| format!("time: invalid duration {}", evenkeel_api::quote::quote(text))),
        ("timestamp", [Val::Time(at)]) => Ok(Val::Time(*at)),
        ("timestamp", [Val::Int(seconds)]) => jiff::Timestamp::from_second(*seconds)
            .map(Val::Time)
            .map_err(|_| "timestamp overflow".to_owned()),
        ("timestamp", [Val::Str(text)]) => {
            text.parse().map(Val::Time).map_err(|error: jiff::Error| error.to_string())
        }
        ("optional.of", [value]) => Ok(Val::some(value.clone())),
        ("optional.none", []) => Ok(Val::Optional(None)),
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

fn validate<'a>(format: &str, text: &str) -> Val<'a> {
    use evenkeel_api::forms::{
        dns_1035_label, dns_label, dns_subdomain, label_value, qualified_name,
    };
    let prefix = |text: &str| text.strip_suffix('-').map_or(text.to_owned(), |t| format!("{t}a"));
    let wrong = match format {
        "dns1123Label" => dns_label(text),
        "dns1123Subdomain" => dns_subdomain(text),
        "dns1035Label" => dns_1035_label(text),
        "dns1123LabelPrefix" => dns_label(&prefix(text)),
        "dns1123SubdomainPrefix" => dns_subdomain(&prefix(text)),
        "dns1035LabelPrefix" => dns_1035_label(&prefix(text)),
        "qualifiedName" => qualified_name(text),
        "labelValue" => label_value(text),
        other if crate::formats::fits(other, text) => Vec::new(),
        _ => vec!["invalid".to_owned()],
    };
    if wrong.is_empty() {
        return Val::Optional(None);
    }
    Val::some(Val::list(wrong.into_iter().map(Val::str).collect()))
}

fn is_zero(value: &Val<'_>) -> bool {
    match value {
        Val::Null | Val::Optional(None) => true,
        Val::Bool(b) => !b,
        Val::Duration(length) => length.is_zero(),
        value => value.number() == Some(0.0) || value.size() == Some(0),
    }
}

fn int<'a>(value: &Val<'a>) -> Outcome<'a> {
    let range = || "integer overflow".to_owned();
    match value {
        Val::Int(n) => Ok(Val::Int(*n)),
        Val::Uint(n) => i64::try_from(*n).map(Val::Int).map_err(|_| range()),
        Val::Double(n) if n.abs() < 9.3e18 => Ok(Val::Int(*n as i64)),
        Val::Double(_) => Err(range()),
        Val::Str(text) => text.parse().map(Val::Int).map_err(|_| {
            format!(
                "strconv.ParseInt: parsing {}: invalid syntax",
                evenkeel_api::quote::quote(text)
            )
        }),
        Val::Time(at) => Ok(Val::Int(at.as_second())),
        Val::Duration(length) => {
            Ok(Val::Int(i64::try_from(length.as_nanos()).map_err(|_| range())?))
        }
        _ => Err("no such overload".to_owned()),
    }
}

fn uint<'a>(value: &Val<'a>) -> Outcome<'a> {
    let range = || "unsigned integer overflow".to_owned();
    match value {
        Val::Uint(n) => Ok(Val::Uint(*n)),
        Val::Int(n) => u64::try_from(*n).map(Val::Uint).map_err(|_| range()),
        Val::Double(n) if *n >= 0.0 && *n < 1.8e19 => Ok(Val::Uint(*n as u64)),
        Val::Double(_) => Err(range()),
        Val::Str(text) => text.parse().map(Val::Uint).map_err(|_| {
            format!(
                "strconv.ParseUint: parsing {}: invalid syntax",
                evenkeel_api::quote::quote(text)
            )
        }),
        _ => Err("no such overload".to_owned()),
    }
}

fn double<'a>(value: &Val<'a>) -> Outcome<'a> {
    match value {
        Val::Str(text) => text.parse().map(Val::Double).map_err(|_| {
            format!(
                "strconv.ParseFloat: parsing {}: invalid syntax",
                evenkeel_api::quote::quote(text)
            )
        }),
        value => value.number().map(Val::Double).ok_or_else(|| "no such overload".to_owned()),
    }
}

fn string<'a>(value: &Val<'a>) -> Outcome<'a> {
    Ok(match value {
        Val::Str(text) => Val::Str(text.clone()),
        Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::Double(_) => Val::str(value.shown()),
        Val::Bytes(bytes) => {
            Val::str(std::str::from_utf8(bytes).map_err(|_| "invalid UTF-8 in bytes".to_owned())?)
        }
        Val::Time(at) => Val::str(at.to_string()),
        Val::Duration(length) => Val::str(time::duration_text(*length)),
        Val::Ip(ip) => Val::str(ip.to_string()),
        Val::Cidr(ip, bits) => Val::str(format!("{ip}/{bits}")),
        Val::Url(url) => Val::str(url.text.clone()),
        Val::Semver(_, text) => Val::str(&**text),
        Val::Quantity(quantity) => Val::str(quantity.to_string()),
        _ => return Err("no such overload".to_owned()),
    })
}
