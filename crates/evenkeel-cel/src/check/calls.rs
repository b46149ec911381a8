//! Static checks of calls: accepted argument types, result type and maximum cost.

use crate::authorization::{AUTHORIZER, DECISION, GROUP_CHECK, PATH_CHECK, RESOURCE_CHECK};
use crate::cost::tenth;
use crate::macros::MAP_INSERT;
use cel::common::ast::{CallExpr, Expr, operators as op};
use cel::parser::Expression;

use super::costs::{Estimated, self_comparison};
use super::types::Type;
use super::{Checked, Checker, Declared, Outcome, is_junction, overload, undeclared};

impl<'a> Checker<'a> {
    pub(super) fn call(&mut self, call: &'a CallExpr) -> Outcome<'a> {
        if let Some(outcome) = self.binding(call) {
            return outcome;
        }
        let mut space = None;
        let mut args: Vec<Checked<'a>> = Vec::with_capacity(call.args.len() + 1);
        if let Some(target) = &call.target {
            match &target.expr {
                Expr::Ident(name) if self.variable(name).is_none() => space = Some(name.as_str()),
                _ => args.push(self.expression(target)?),
            }
        }
        for argument in &call.args {
            args.push(self.expression(argument)?);
        }
        let given: u64 = args.iter().fold(0, |sum, arg| sum.saturating_add(arg.cost));
        let known: Vec<&Declared<'a>> = args.iter().map(|arg| &arg.known).collect();
        let name = call.func_name.as_str();
        if let Some(result) = operator(name, &known)? {
            let cost = if is_junction(name) || name == op::CONDITIONAL {
                0
            } else {
                operator_cost(name, &known)
            };
            let cost = match name {
                op::CONDITIONAL => args[0].cost.saturating_add(args[1].cost.max(args[2].cost)),
                _ => given.saturating_add(cost),
            };
            return Ok(Checked { known: result, cost });
        }
        let full = space.map_or_else(|| name.to_owned(), |space| format!("{space}.{name}"));
        let member = call.target.is_some() && space.is_none();
        let Some(kind) = function(&full, member, &known) else {
            return Err(undeclared(space.unwrap_or(name)));
        };
        let kind = kind.ok_or_else(|| overload(name, &known))?;
        let target = call.target.as_deref().filter(|_| member);
        let written = target.into_iter().chain(&call.args).collect();
        let (cost, bound) = Estimated { name: &full, args: &known, written }.cost();
        let cost = given.saturating_add(cost);
        let size = bound.unwrap_or_else(|| known.first().map_or(1, |k| k.size));
        Ok(Checked { known: Declared { size, ..Declared::of(kind) }, cost })
    }

    /// Checks a macro that binds a variable, such as `all` or `map`.
    fn binding(&mut self, call: &'a CallExpr) -> Option<Outcome<'a>> {
        let name = |e: &'a Expression| match &e.expr {
            Expr::Ident(name) => Some(name.as_str()),
            _ => None,
        };
        let target = call.target.as_deref()?;
        let (variable, init, body, how) = match (call.func_name.as_str(), call.args.as_slice()) {
            ("bind", [variable, init, body]) if name(target) == Some("cel") => {
                (name(variable)?, init, body, "bind")
            }
            (how @ ("optMap" | "optFlatMap" | "sortBy"), [variable, body]) => {
                (name(variable)?, target, body, how)
            }
            _ => return None,
        };
        Some(self.bound(variable, init, body, how))
    }

    fn bound(
        &mut self,
        variable: &'a str,
        init: &'a Expression,
        body: &'a Expression,
        how: &str,
    ) -> Outcome<'a> {
        let first = self.expression(init)?;
        let (known, times) = match (how, &first.known.kind) {
            ("bind", _) => (first.known.clone(), 1),
            ("sortBy", _) => (first.known.element(), first.known.size),
            (_, Type::Optional(inner)) => {
                (Declared { kind: (**inner).clone(), ..first.known.clone() }, 1)
            }
            _ => (Declared::of(Type::Dyn), 1),
        };
        self.variables.push((variable, known));
        let second = self.expression(body);
        self.variables.pop();
        let second = second?;
        let mut cost = first.cost.saturating_add(second.cost.saturating_mul(times));
        if how == "sortBy" {
            // The keys are collected in a list, by which the list is sorted.
            let kind = Type::List(Box::new(second.known.kind.clone()));
            let keys = Declared { size: times, ..Declared::of(kind) };
            let collected = times.saturating_mul(KEY).saturating_add(KEYS);
            cost = cost.saturating_add(collected).saturating_add(self_comparison(Some(&keys)).0);
        }
        let known = match how {
            "sortBy" => first.known,
            "optMap" => Declared {
                kind: Type::Optional(Box::new(second.known.kind.clone())),
                ..second.known
            },
            _ => second.known,
        };
        Ok(Checked { known, cost })
    }
}

/// Cost of collecting a key in a list.
const KEY: u64 = 12;
/// Cost of the two lists and three variables of the macro `sortBy`.
const KEYS: u64 = 23;

/// Returns the type of an operator's result; `None` if there is no operator of that name.
fn operator<'a>(name: &str, args: &[&Declared<'a>]) -> Result<Option<Declared<'a>>, String> {
    let wrong = || overload(name, args);
    let kinds: Vec<&Type<'a>> = args.iter().map(|a| &a.kind).collect();
    let numbers =
        |kind: &Type<'a>| matches!(kind, Type::Int | Type::Uint | Type::Double | Type::Dyn);
    let bool_like = |kind: &Type<'a>| matches!(kind, Type::Bool | Type::Dyn);
    Ok(Some(match (name, kinds.as_slice()) {
        (op::LOGICAL_AND | op::LOGICAL_OR, [a, b]) if bool_like(a) && bool_like(b) => {
            Declared::of(Type::Bool)
        }
        (op::LOGICAL_NOT | op::NOT_STRICTLY_FALSE, [a]) if bool_like(a) => Declared::of(Type::Bool),
        (op::CONDITIONAL, [c, a, b]) if bool_like(c) => {
            let kind = if a == b { (*a).clone() } else { Type::Dyn };
            if !a.agrees(b) {
                return Err(wrong());
            }
            Declared { kind, size: args[1].size.max(args[2].size), node: args[1].node }
        }
        (op::EQUALS | op::NOT_EQUALS, [a, b]) if a.agrees(b) => Declared::of(Type::Bool),
        (op::LESS | op::LESS_EQUALS | op::GREATER | op::GREATER_EQUALS, [a, b]) => {
            let ordered = |k: &Type<'a>| {
                numbers(k)
                    || matches!(
                        k,
                        Type::Str | Type::Bool | Type::Bytes | Type::Time | Type::Duration
                    )
            };
            let fits = ordered(a) && ordered(b) && (a.agrees(b) || numbers(a) && numbers(b));
            if !fits {
                return Err(wrong());
            }
            Declared::of(Type::Bool)
        }
        (op::ADD, [a, b]) => {
            let kind = match (a, b) {
                (Type::Dyn, other) | (other, Type::Dyn) => (*other).clone(),
                (Type::Time, Type::Duration) | (Type::Duration, Type::Time) => Type::Time,
                (Type::List(x), Type::List(y)) => {
                    Type::List(Box::new(if x == y { (**x).clone() } else { Type::Dyn }))
                }
                (a, b)
                    if a == b
                        && (numbers(a)
                            || matches!(a, Type::Str | Type::Bytes | Type::Duration)) =>
                {
                    (*a).clone()
                }
                _ => return Err(wrong()),
            };
            Declared { kind, size: args[0].size.saturating_add(args[1].size), node: None }
        }
        (op::SUBSTRACT, [Type::Time, Type::Time]) => Declared::of(Type::Duration),
        (op::SUBSTRACT, [Type::Time, Type::Duration]) => Declared::of(Type::Time),
        (op::SUBSTRACT, [Type::Duration, Type::Duration]) => Declared::of(Type::Duration),
        (op::SUBSTRACT | op::MULTIPLY | op::DIVIDE | op::MODULO, [a, b])
            if numbers(a) && a.agrees(b) =>
        {
            Declared::of(if **a == Type::Dyn { (*b).clone() } else { (*a).clone() })
        }
        (op::NEGATE, [a]) if numbers(a) => Declared::of((*a).clone()),
        (op::IN, [a, b]) => match b {
            Type::List(of) if of.agrees(a) => Declared::of(Type::Bool),
            Type::Map(_) | Type::Dyn | Type::Object(_) => Declared::of(Type::Bool),
            _ => return Err(wrong()),
        },
        (op::INDEX, [a, key]) => match a {
            Type::List(_) if matches!(key, Type::Int | Type::Uint | Type::Dyn) => args[0].element(),
            Type::Map(_) if matches!(key, Type::Str | Type::Dyn) => args[0].element(),
            Type::Dyn | Type::Optional(_) => Declared::of(Type::Dyn),
            _ => return Err(wrong()),
        },
        (op::OPT_INDEX, [_, _]) => {
            let element = args[0].element();
            Declared { kind: Type::Optional(Box::new(element.kind.clone())), ..element }
        }
        (op::OPT_SELECT, [_, _]) => Declared::of(Type::Optional(Box::new(Type::Dyn))),
        (
            op::LOGICAL_AND
            | op::LOGICAL_OR
            | op::LOGICAL_NOT
            | op::CONDITIONAL
            | op::EQUALS
            | op::NOT_EQUALS
            | op::SUBSTRACT
            | op::MULTIPLY
            | op::DIVIDE
            | op::MODULO
            | op::NEGATE,
            _,
        ) => return Err(wrong()),
        _ => return Ok(None),
    }))
}

fn operator_cost(name: &str, args: &[&Declared<'_>]) -> u64 {
    let size = |index: usize| args.get(index).map_or(1, |a| a.size);
    match name {
        op::EQUALS | op::NOT_EQUALS => match args[0].kind {
            Type::Bool | Type::Int | Type::Uint | Type::Double | Type::Null => 1,
            _ => tenth(size(0).min(size(1))).max(1),
        },
        op::ADD if matches!(args[0].kind, Type::Str | Type::Bytes) => {
            tenth(size(0).saturating_add(size(1))).max(1)
        }
        op::LESS | op::LESS_EQUALS | op::GREATER | op::GREATER_EQUALS
            if matches!(args[0].kind, Type::Str | Type::Bytes) =>
        {
            tenth(size(0).min(size(1)))
        }
        op::IN if matches!(args[1].kind, Type::List(_)) => size(1),
        _ => 1,
    }
}

pub(super) const QUANTITY: &str = "kubernetes.Quantity";
const URL: &str = "kubernetes.URL";
const IP: &str = "net.IP";
const CIDR: &str = "net.CIDR";
const SEMVER: &str = "kubernetes.Semver";

/// Returns the type of a function's result: `None` if no function has that name, `Some(None)` if it takes other
/// arguments.
fn function<'a>(name: &str, member: bool, args: &[&Declared<'a>]) -> Option<Option<Type<'a>>> {
    let first = args.first().map(|a| &a.kind);
    let library = |kind: &'static str| Some(Some(Type::Library(kind)));
    if !member {
        return Some(Some(match name {
            "size" | "int" => Type::Int,
            "uint" => Type::Uint,
            "double" => Type::Double,
            "string" | "strings.quote" | "jsonpatch.escapeKey" | "base64.encode" => Type::Str,
            "bool" | "matches" | "isURL" | "isQuantity" | "isIP" | "isCIDR" | "isSemver"
            | "ip.isCanonical" | "sets.contains" | "sets.intersects" | "sets.equivalent" => {
                Type::Bool
            }
            "bytes" | "base64.decode" => Type::Bytes,
            "dyn" | "math.greatest" | "math.least" => Type::Dyn,
            "type" => Type::OfTypes,
            "duration" => Type::Duration,
            "timestamp" => Type::Time,
            "quantity" => return library(QUANTITY),
            "url" => return library(URL),
            "ip" => return library(IP),
            "cidr" => return library(CIDR),
            "semver" => return library(SEMVER),
            "optional.of" | "optional.ofNonZeroValue" => {
                Type::Optional(Box::new(first.cloned().unwrap_or(Type::Dyn)))
            }
            "optional.unwrap" => Type::List(Box::new(present(first))),
            "optional.none" => Type::Optional(Box::new(Type::Dyn)),
            "sign" => {
                return Some(
                    first
                        .is_some_and(|kind| is_library(kind, &[QUANTITY]) || *kind == Type::Dyn)
                        .then_some(Type::Int),
                );
            }
            MAP_INSERT => match args {
                [_, entries] => entries.kind.clone(),
                [.., value] => Type::Map(Box::new(value.kind.clone())),
                [] => return Some(None),
            },
            "lists.range" => Type::List(Box::new(Type::Int)),
            "format.named" => Type::Optional(Box::new(Type::Library("kubernetes.NamedFormat"))),
            name if name.starts_with("format.") => Type::Library("kubernetes.NamedFormat"),
            _ => return None,
        }));
    }
    let target = first?;
    let on = |wanted: bool, kind: Type<'a>| Some((wanted || *target == Type::Dyn).then_some(kind));
    let text = *target == Type::Str;
    let list = matches!(target, Type::List(_));
    if !takes(name, &args[1..]) {
        return Some(None);
    }
    let inner = || match target {
        Type::List(of) | Type::Optional(of) => (**of).clone(),
        _ => Type::Dyn,
    };
    match name {
        "size" => Some(
            matches!(target, Type::Str | Type::Bytes | Type::List(_) | Type::Map(_) | Type::Dyn)
                .then_some(Type::Int),
        ),
        "contains" | "startsWith" | "endsWith" | "matches" => on(text || list, Type::Bool),
        "includes" => Some(Some(Type::Bool)),
        "find" | "lowerAscii" | "upperAscii" | "trim" | "replace" | "substring" | "charAt"
        | "format" => on(text, Type::Str),
        "findAll" | "split" => on(text, Type::List(Box::new(Type::Str))),
        "indexOf" | "lastIndexOf" => on(text || list, Type::Int),
        "reverse" => on(text || list, target.clone()),
        "join" => on(list, Type::Str),
        "isSorted" => on(list, Type::Bool),
        "sum" | "min" | "max" => on(list, inner()),
        "sort" | "distinct" | "slice" | "flatten" => on(list, target.clone()),
        "unwrapOpt" => on(list, Type::List(Box::new(present(Some(target))))),
        "first" | "last" => on(list, Type::Optional(Box::new(inner()))),
        "hasValue" => on(matches!(target, Type::Optional(_)), Type::Bool),
        "value" | "orValue" => on(matches!(target, Type::Optional(_)), inner()),
        "or" => on(matches!(target, Type::Optional(_)), target.clone()),
        "getFullYear" | "getMonth" | "getDate" | "getDayOfMonth" | "getDayOfYear"
        | "getDayOfWeek" | "getHours" | "getMinutes" | "getSeconds" | "getMilliseconds" => {
            on(matches!(target, Type::Time | Type::Duration), Type::Int)
        }
        "getScheme" | "getHost" | "getHostname" | "getPort" | "getEscapedPath" => {
            on(*target == Type::Library(URL), Type::Str)
        }
        "getQuery" => {
            on(*target == Type::Library(URL), Type::Map(Box::new(Type::List(Box::new(Type::Str)))))
        }
        "isGreaterThan" | "isLessThan" => on(is_library(target, &[QUANTITY, SEMVER]), Type::Bool),
        "compareTo" => on(is_library(target, &[QUANTITY, SEMVER]), Type::Int),
        "sign" | "asInteger" => on(is_library(target, &[QUANTITY]), Type::Int),
        "isInteger" => on(is_library(target, &[QUANTITY]), Type::Bool),
        "asApproximateFloat" => on(is_library(target, &[QUANTITY]), Type::Double),
        "add" | "sub" => on(is_library(target, &[QUANTITY]), Type::Library(QUANTITY)),
        "major" | "minor" | "patch" => on(is_library(target, &[SEMVER]), Type::Int),
        "family" => on(is_library(target, &[IP]), Type::Int),
        "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast" => on(is_library(target, &[IP]), Type::Bool),
        "containsIP" | "containsCIDR" => on(is_library(target, &[CIDR]), Type::Bool),
        "ip" => on(is_library(target, &[CIDR]), Type::Library(IP)),
        "masked" => on(is_library(target, &[CIDR]), Type::Library(CIDR)),
        "prefixLength" => on(is_library(target, &[CIDR]), Type::Int),
        "validate" => on(
            is_library(target, &["kubernetes.NamedFormat"]),
            Type::Optional(Box::new(Type::List(Box::new(Type::Str)))),
        ),
        "path" => on(is_library(target, &[AUTHORIZER]), Type::Library(PATH_CHECK)),
        "group" => on(is_library(target, &[AUTHORIZER]), Type::Library(GROUP_CHECK)),
        "serviceAccount" => on(is_library(target, &[AUTHORIZER]), Type::Library(AUTHORIZER)),
        "resource" => on(is_library(target, &[GROUP_CHECK]), Type::Library(RESOURCE_CHECK)),
        "subresource" | "namespace" | "name" | "fieldSelector" | "labelSelector" => {
            on(is_library(target, &[RESOURCE_CHECK]), Type::Library(RESOURCE_CHECK))
        }
        "check" => on(is_library(target, &[PATH_CHECK, RESOURCE_CHECK]), Type::Library(DECISION)),
        "allowed" | "errored" => on(is_library(target, &[DECISION]), Type::Bool),
        "reason" | "error" => on(is_library(target, &[DECISION]), Type::Str),
        _ => None,
    }
}

/// Returns the type of the values in a list of optional elements.
fn present<'a>(list: Option<&Type<'a>>) -> Type<'a> {
    match list {
        Some(Type::List(element)) => match &**element {
            Type::Optional(value) => (**value).clone(),
            _ => Type::Dyn,
        },
        _ => Type::Dyn,
    }
}

/// Whether a method of an authorization check takes these arguments; true for other methods.
fn takes(name: &str, args: &[&Declared<'_>]) -> bool {
    let wanted = match name {
        "path" | "group" | "resource" | "subresource" | "namespace" | "name" | "fieldSelector"
        | "labelSelector" | "check" => 1,
        "serviceAccount" => 2,
        "allowed" | "errored" | "reason" | "error" => 0,
        _ => return true,
    };
    args.len() == wanted && args.iter().all(|arg| matches!(arg.kind, Type::Str | Type::Dyn))
}

fn is_library(kind: &Type<'_>, names: &[&str]) -> bool {
    matches!(kind, Type::Library(name) if names.contains(name))
}
