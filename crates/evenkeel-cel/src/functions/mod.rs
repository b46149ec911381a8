//! Functions of CEL and of the libraries that Kubernetes adds. Upstream: `apiserver/pkg/cel/library`.

mod addresses;
mod authz;
mod convert;
mod format;
mod lists;
mod net;
mod number;
mod quantity;
mod semver;
mod strings;
mod time;
mod url;

use super::value::Val;

pub(super) use addresses::parse_error as address_error;
pub(super) use format::{clause as format_clause, format};
pub(super) use lists::MAX_RANGE;
pub(super) use number::double_text;
pub use semver::Semver;
pub(super) use semver::semver;
pub(super) use strings::{find_all, is_pattern};
pub use time::Time;
pub(super) use time::{checked_duration, duration_text, later, parse_duration, parse_timestamp};

/// Namespaces of functions.
pub(super) const NAMESPACES: [&str; 9] =
    ["base64", "format", "ip", "jsonpatch", "lists", "math", "optional", "sets", "strings"];

/// Result of a function.
pub(super) type Outcome<'a> = Result<Val<'a>, String>;

/// Calls a global function, with its namespace if it has one; `None` if it does not exist.
pub(super) fn global<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    convert::global(name, args)
        .or_else(|| lists::global(name, args))
        .or_else(|| quantity::global(name, args))
        .or_else(|| semver::global(name, args))
        .or_else(|| url::global(name, args))
        .or_else(|| net::global(name, args))
        .or_else(|| strings::global(name, args))
}

/// Calls a method; the target is the first argument. `None` if the method does not exist.
pub(super) fn member<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    if let [Val::Optional(inner), rest @ ..] = args {
        return optional(name, inner.as_deref(), rest);
    }
    strings::member(name, args)
        .or_else(|| lists::member(name, args))
        .or_else(|| time::member(name, args))
        .or_else(|| quantity::member(name, args))
        .or_else(|| semver::member(name, args))
        .or_else(|| url::member(name, args))
        .or_else(|| net::member(name, args))
        .or_else(|| convert::member(name, args))
        .or_else(|| authz::member(name, args))
        .or_else(|| match (name, args) {
            // The method `includes` of a value that is not a list.
            ("includes", [a, b]) => Some(Ok(Val::Bool(a.equals(b)))),
            _ => None,
        })
}

/// Calls a method of an optional value, except `or` and `orValue`, which do not evaluate all of their operands.
fn optional<'a>(name: &str, inner: Option<&Val<'a>>, rest: &[Val<'a>]) -> Option<Outcome<'a>> {
    Some(match (name, inner, rest) {
        ("hasValue", inner, []) => Ok(Val::Bool(inner.is_some())),
        ("value", Some(value), []) => Ok(value.clone()),
        ("value", None, []) => Err("optional.none() dereference".to_owned()),
        _ => return None,
    })
}
