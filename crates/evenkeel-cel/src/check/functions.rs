//! Overloads of the functions that expressions can call, with the types of their arguments and results.
//!
//! Upstream: the declarations of cel-go's standard library and extensions, and of `cel/library`.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::types::Type;
use crate::Extensions;
use crate::authorization::{AUTHORIZER, DECISION, GROUP_CHECK, PATH_CHECK, RESOURCE_CHECK};

/// Overload of a function.
#[derive(Debug)]
pub(super) struct Overload {
    /// Whether it is called as a method of its first argument.
    pub(super) is_member: bool,
    /// Types of the arguments, with the target of a method first.
    pub(super) args: Vec<Type>,
    pub(super) result: Type,
    /// Number of type variables in `args` and `result`. They are numbered from 0, and each represents any type.
    pub(super) n_variables: u32,
}

// Names of the types that libraries add.
pub(super) const QUANTITY: &str = "kubernetes.Quantity";
pub(super) const URL: &str = "kubernetes.URL";
pub(super) const IP: &str = "net.IP";
pub(super) const CIDR: &str = "net.CIDR";
pub(super) const SEMVER: &str = "kubernetes.Semver";
pub(super) const FORMAT: &str = "kubernetes.NamedFormat";

/// Types whose values can be compared by `<`. `ordered` in a signature represents each of them.
const ORDERED: [&str; 8] =
    ["int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"];
/// Types whose values can be added. `summable` in a signature represents each of them.
const SUMMABLE: [&str; 4] = ["int", "uint", "double", "duration"];

/// Signatures of the overloads of each function: `(arguments) result`, with a leading dot for methods. `ordered` and
/// `summable` represent each type of [`ORDERED`] and [`SUMMABLE`]. `A`, `B` and `V` are type variables.
#[rustfmt::skip]
const FUNCTIONS: &[(&str, &[&str])] = &[
    ("!_", &["(bool) bool"]),
    ("@not_strictly_false", &["(bool) bool"]),
    ("_&&_", &["(bool, bool) bool"]),
    ("_||_", &["(bool, bool) bool"]),
    ("_?_:_", &["(bool, A, A) A"]),
    ("_==_", &["(A, A) bool"]),
    ("_!=_", &["(A, A) bool"]),
    ("_+_", &["(bytes, bytes) bytes", "(double, double) double", "(duration, duration) duration",
        "(duration, timestamp) timestamp", "(timestamp, duration) timestamp", "(int, int) int",
        "(list(A), list(A)) list(A)", "(string, string) string", "(uint, uint) uint"]),
    ("_/_", &["(double, double) double", "(int, int) int", "(uint, uint) uint"]),
    ("_%_", &["(int, int) int", "(uint, uint) uint"]),
    ("_*_", &["(double, double) double", "(int, int) int", "(uint, uint) uint"]),
    ("-_", &["(double) double", "(int) int"]),
    ("_-_", &["(double, double) double", "(duration, duration) duration", "(int, int) int",
        "(timestamp, duration) timestamp", "(timestamp, timestamp) duration", "(uint, uint) uint"]),
    ("_<_", COMPARISON), ("_<=_", COMPARISON), ("_>_", COMPARISON), ("_>=_", COMPARISON),
    ("_[_]", &["(list(A), int) A", "(map(A, B), A) B", "(optional(list(A)), int) optional(A)",
        "(optional(map(A, B)), A) optional(B)"]),
    ("_[?_]", &["(list(A), int) optional(A)", "(optional(list(A)), int) optional(A)",
        "(map(A, B), A) optional(B)", "(optional(map(A, B)), A) optional(B)"]),
    ("_?._", &["(dyn, string) optional(A)"]),
    ("@in", &["(A, list(A)) bool", "(A, map(A, B)) bool"]),
    ("size", &["(bytes) int", ".(bytes) int", "(list(A)) int", ".(list(A)) int", "(map(A, B)) int",
        ".(map(A, B)) int", "(string) int", ".(string) int"]),
    ("type", &["(A) type(A)"]),
    ("bool", &["(bool) bool", "(string) bool"]),
    ("bytes", &["(bytes) bytes", "(string) bytes"]),
    ("double", &["(double) double", "(int) double", "(string) double", "(uint) double"]),
    ("duration", &["(duration) duration", "(string) duration"]),
    ("dyn", &["(A) dyn"]),
    ("int", &["(int) int", "(double) int", "(duration) int", "(string) int", "(timestamp) int", "(uint) int"]),
    ("string", &["(string) string", "(bool) string", "(bytes) string", "(double) string", "(duration) string",
        "(int) string", "(timestamp) string", "(uint) string", "(ip) string", "(cidr) string"]),
    ("timestamp", &["(timestamp) timestamp", "(int) timestamp", "(string) timestamp"]),
    ("uint", &["(uint) uint", "(double) uint", "(int) uint", "(string) uint"]),
    ("contains", &[".(string, string) bool"]),
    ("endsWith", &[".(string, string) bool"]),
    ("startsWith", &[".(string, string) bool"]),
    ("matches", &["(string, string) bool", ".(string, string) bool"]),
    ("getFullYear", OF_DATES), ("getMonth", OF_DATES), ("getDayOfYear", OF_DATES),
    ("getDayOfMonth", OF_DATES), ("getDate", OF_DATES), ("getDayOfWeek", OF_DATES),
    ("getHours", OF_TIMES), ("getMinutes", OF_TIMES), ("getSeconds", OF_TIMES), ("getMilliseconds", OF_TIMES),
    // Optional values.
    ("optional.of", &["(V) optional(V)"]),
    ("optional.ofNonZeroValue", &["(V) optional(V)"]),
    ("optional.none", &["() optional(V)"]),
    ("optional.unwrap", &["(list(optional(V))) list(V)"]),
    ("value", &[".(optional(V)) V"]),
    ("hasValue", &[".(optional(V)) bool"]),
    ("or", &[".(optional(V), optional(V)) optional(V)"]),
    ("orValue", &[".(optional(V), V) V"]),
    ("unwrapOpt", &[".(list(optional(V))) list(V)"]),
    ("first", &[".(list(V)) optional(V)"]),
    ("last", &[".(list(V)) optional(V)"]),
    // Strings.
    ("charAt", &[".(string, int) string"]),
    ("indexOf", &[".(list(A), A) int", ".(string, string) int", ".(string, string, int) int"]),
    ("lastIndexOf", &[".(list(A), A) int", ".(string, string) int", ".(string, string, int) int"]),
    ("lowerAscii", &[".(string) string"]),
    ("upperAscii", &[".(string) string"]),
    ("trim", &[".(string) string"]),
    ("replace", &[".(string, string, string) string", ".(string, string, string, int) string"]),
    ("split", &[".(string, string) list(string)", ".(string, string, int) list(string)"]),
    ("substring", &[".(string, int) string", ".(string, int, int) string"]),
    ("format", &[".(string, list(dyn)) string"]),
    ("strings.quote", &["(string) string"]),
    ("join", &[".(list(string)) string", ".(list(string), string) string"]),
    ("find", &[".(string, string) string"]),
    ("findAll", &[".(string, string) list(string)", ".(string, string, int) list(string)"]),
    ("jsonpatch.escapeKey", &["(string) string"]),
    // Lists, sets and maps.
    ("isSorted", &[".(list(ordered)) bool"]),
    ("sum", &[".(list(summable)) summable"]),
    ("max", &[".(list(ordered)) ordered"]),
    ("min", &[".(list(ordered)) ordered"]),
    ("includes", &[".(dyn, dyn) bool"]),
    ("slice", &[".(list(A), int, int) list(A)"]),
    ("flatten", &[".(list(list(A))) list(A)", ".(list(dyn), int) list(dyn)"]),
    ("sort", &[".(list(ordered)) list(ordered)"]),
    ("@sortByAssociatedKeys", &[".(list(A), list(ordered)) list(A)"]),
    ("lists.range", &["(int) list(int)"]),
    ("reverse", &[".(list(A)) list(A)"]),
    ("distinct", &[".(list(A)) list(A)"]),
    ("sets.contains", &["(list(A), list(A)) bool"]),
    ("sets.equivalent", &["(list(A), list(A)) bool"]),
    ("sets.intersects", &["(list(A), list(A)) bool"]),
    ("cel.@mapInsert", &["(map(A, B), A, B) map(A, B)", "(map(A, B), map(A, B)) map(A, B)"]),
    // Values that are parsed from strings.
    ("url", &["(string) url"]),
    ("isURL", &["(string) bool"]),
    ("getScheme", OF_URLS), ("getHost", OF_URLS), ("getHostname", OF_URLS), ("getPort", OF_URLS),
    ("getEscapedPath", OF_URLS),
    ("getQuery", &[".(url) map(string, list(string))"]),
    ("ip", &["(string) ip", ".(cidr) ip"]),
    ("family", &[".(ip) int"]),
    ("ip.isCanonical", &["(string) bool"]),
    ("isUnspecified", OF_ADDRESSES), ("isLoopback", OF_ADDRESSES), ("isLinkLocalMulticast", OF_ADDRESSES),
    ("isLinkLocalUnicast", OF_ADDRESSES), ("isGlobalUnicast", OF_ADDRESSES),
    ("isIP", &["(string) bool"]),
    ("cidr", &["(string) cidr"]),
    ("containsIP", &[".(cidr, string) bool", ".(cidr, ip) bool"]),
    ("containsCIDR", &[".(cidr, string) bool", ".(cidr, cidr) bool"]),
    ("prefixLength", &[".(cidr) int"]),
    ("masked", &[".(cidr) cidr"]),
    ("isCIDR", &["(string) bool"]),
    ("quantity", &["(string) quantity"]),
    ("isQuantity", &["(string) bool"]),
    ("sign", &["(quantity) int"]),
    ("isGreaterThan", &[".(quantity, quantity) bool", ".(semver, semver) bool"]),
    ("isLessThan", &[".(quantity, quantity) bool", ".(semver, semver) bool"]),
    ("compareTo", &[".(quantity, quantity) int", ".(semver, semver) int"]),
    ("asApproximateFloat", &[".(quantity) double"]),
    ("asInteger", &[".(quantity) int"]),
    ("isInteger", &[".(quantity) bool"]),
    ("add", &[".(quantity, quantity) quantity", ".(quantity, int) quantity"]),
    ("sub", &[".(quantity, quantity) quantity", ".(quantity, int) quantity"]),
    ("semver", &["(string) semver", "(string, bool) semver"]),
    ("isSemver", &["(string) bool", "(string, bool) bool"]),
    ("major", &[".(semver) int"]),
    ("minor", &[".(semver) int"]),
    ("patch", &[".(semver) int"]),
    ("validate", &[".(format, string) optional(list(string))"]),
    ("format.named", &["(string) optional(format)"]),
    ("format.dns1123Label", NAMED), ("format.dns1123Subdomain", NAMED), ("format.dns1035Label", NAMED),
    ("format.dns1123LabelPrefix", NAMED), ("format.dns1123SubdomainPrefix", NAMED),
    ("format.dns1035LabelPrefix", NAMED), ("format.qualifiedName", NAMED), ("format.labelValue", NAMED),
    ("format.uri", NAMED), ("format.uuid", NAMED), ("format.byte", NAMED), ("format.date", NAMED),
    ("format.datetime", NAMED),
    // Checks of authorization.
    ("path", &[".(authorizer, string) path"]),
    ("group", &[".(authorizer, string) group"]),
    ("serviceAccount", &[".(authorizer, string, string) authorizer"]),
    ("resource", &[".(group, string) resource"]),
    ("subresource", OF_RESOURCES), ("namespace", OF_RESOURCES), ("name", OF_RESOURCES),
    ("fieldSelector", OF_RESOURCES), ("labelSelector", OF_RESOURCES),
    ("check", &[".(path, string) decision", ".(resource, string) decision"]),
    ("errored", &[".(decision) bool"]),
    ("error", &[".(decision) string"]),
    ("allowed", &[".(decision) bool"]),
    ("reason", &[".(decision) string"]),
];

const COMPARISON: &[&str] = &[
    "(bool, bool) bool",
    "(int, int) bool",
    "(int, double) bool",
    "(int, uint) bool",
    "(uint, uint) bool",
    "(uint, double) bool",
    "(uint, int) bool",
    "(double, double) bool",
    "(double, int) bool",
    "(double, uint) bool",
    "(string, string) bool",
    "(bytes, bytes) bool",
    "(timestamp, timestamp) bool",
    "(duration, duration) bool",
];
const OF_DATES: &[&str] = &[".(timestamp) int", ".(timestamp, string) int"];
const OF_TIMES: &[&str] = &[".(timestamp) int", ".(timestamp, string) int", ".(duration) int"];
const OF_URLS: &[&str] = &[".(url) string"];
const OF_ADDRESSES: &[&str] = &[".(ip) bool"];
const OF_RESOURCES: &[&str] = &[".(resource, string) resource"];
const NAMED: &[&str] = &["() format"];

/// Parsed [`FUNCTIONS`], by name.
static OVERLOADS: LazyLock<HashMap<&'static str, Vec<Overload>>> = LazyLock::new(|| {
    let parse_all = |signatures: &[&str]| {
        signatures
            .iter()
            .flat_map(|signature| expand_type_class(signature))
            .filter_map(|signature| parse_signature(&signature))
            .collect()
    };
    FUNCTIONS.iter().map(|(name, signatures)| (*name, parse_all(signatures))).collect()
});

/// Returns the overloads of a function; `None` if no function has that name or its extension is not enabled.
pub(super) fn find(name: &str, extensions: Extensions) -> Option<&'static [Overload]> {
    let is_enabled = match name {
        "includes" => extensions.includes,
        "jsonpatch.escapeKey" => extensions.patches,
        _ => true,
    };
    OVERLOADS.get(name).filter(|_| is_enabled).map(Vec::as_slice)
}

/// Replaces `ordered` or `summable` by each of its types, and returns one signature for each type. Returns other
/// signatures unchanged.
fn expand_type_class(signature: &str) -> Vec<String> {
    for (class, types) in [("ordered", &ORDERED[..]), ("summable", &SUMMABLE[..])] {
        if signature.contains(class) {
            return types.iter().map(|name| signature.replace(class, name)).collect();
        }
    }
    vec![signature.to_owned()]
}

fn parse_signature(signature: &str) -> Option<Overload> {
    let (is_member, types) = match signature.strip_prefix('.') {
        Some(rest) => (true, rest),
        None => (false, signature),
    };
    let mut parser = SignatureParser { rest: types, n_variables: 0 };
    let args = parser.parse_list()?;
    let result = parser.parse_type()?;
    Some(Overload { is_member, args, result, n_variables: parser.n_variables })
}

/// Parser of the types in a signature.
struct SignatureParser<'s> {
    rest: &'s str,
    n_variables: u32,
}

impl SignatureParser<'_> {
    /// Parses the types in parentheses.
    fn parse_list(&mut self) -> Option<Vec<Type>> {
        let mut types = Vec::new();
        self.rest = self.rest.strip_prefix('(')?;
        loop {
            self.rest = self.rest.trim_start_matches([',', ' ']);
            if let Some(rest) = self.rest.strip_prefix(')') {
                self.rest = rest.trim_start();
                return Some(types);
            }
            types.push(self.parse_type()?);
        }
    }

    fn parse_type(&mut self) -> Option<Type> {
        let end = self.rest.find(['(', ')', ',']).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest;
        let parameters = if rest.starts_with('(') { self.parse_list()? } else { Vec::new() };
        Some(match (name, parameters.as_slice()) {
            ("list", [element]) => Type::list(element.clone()),
            ("map", [key, value]) => Type::map(key.clone(), value.clone()),
            ("optional", [value]) => Type::optional(value.clone()),
            ("type", [kind]) => Type::of_type(kind.clone()),
            ("A" | "V", []) => self.variable(0),
            ("B", []) => self.variable(1),
            (name, []) => simple_type(name)?,
            _ => return None,
        })
    }

    fn variable(&mut self, number: u32) -> Type {
        self.n_variables = self.n_variables.max(number + 1);
        Type::Variable(number)
    }
}

/// Returns the type without parameters that has this name in signatures.
fn simple_type(name: &str) -> Option<Type> {
    Some(match name {
        "dyn" => Type::Dyn,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::Str,
        "bytes" => Type::Bytes,
        "timestamp" => Type::Time,
        "duration" => Type::Duration,
        "quantity" => Type::Library(QUANTITY),
        "url" => Type::Library(URL),
        "ip" => Type::Library(IP),
        "cidr" => Type::Library(CIDR),
        "semver" => Type::Library(SEMVER),
        "format" => Type::Library(FORMAT),
        "authorizer" => Type::Library(AUTHORIZER),
        "path" => Type::Library(PATH_CHECK),
        "group" => Type::Library(GROUP_CHECK),
        "resource" => Type::Library(RESOURCE_CHECK),
        "decision" => Type::Library(DECISION),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signature_is_parsed() {
        for (name, signatures) in FUNCTIONS {
            let wanted: usize =
                signatures.iter().map(|signature| expand_type_class(signature).len()).sum();
            let all = Extensions { bindings: true, includes: true, patches: true };
            assert_eq!(find(name, all).map(<[_]>::len), Some(wanted), "{name}");
        }
        let overload = parse_signature("(map(A, B), A) optional(B)").expect("a signature");
        assert_eq!(overload.n_variables, 2);
        assert_eq!(overload.args.len(), 2);
        assert_eq!(overload.result, Type::optional(Type::Variable(1)));
    }
}
