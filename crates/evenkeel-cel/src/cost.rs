//! Cost of calls by the size of their arguments. Upstream: `cel/library/cost.go`, cel-go's `runtimecost.go` and `ext`.
//!
//! Upstream charges a call after it, and stops a slow evaluation when the request times out. Here, a call is charged
//! before it allocates or runs: where upstream's cost is far below the work, the work counts.

use cel::common::ast::operators as op;

use super::expand::SORT_BY_KEYS;
use super::functions::MAX_RANGE;
use super::value::Val;

/// Number of elements that an operation may copy at no cost of their own: upstream shares some lists that are copied
/// here.
const FREE: u64 = 10;

/// Cost of a call that makes a list, without its elements.
pub(crate) const LIST_CALL: u64 = 1 + super::eval::LIST;

/// Cost of an authorization check: an expression can pay for two.
pub(crate) const AUTHORIZATION_CHECK: u64 = 350_000;

/// Returns the cost of parsing a selector of this many characters: each second character may begin a requirement.
///
/// Upstream: `selectorCostEstimate`.
pub(crate) fn selector(size: u64) -> u64 {
    const REQUIREMENT: u64 = 50;
    let requirements = size.div_ceil(2).saturating_mul(REQUIREMENT);
    super::eval::LIST.saturating_add(tenth(size)).saturating_add(requirements)
}

/// Returns a tenth, rounded up: the cost of traversing a string of this size.
pub(crate) fn tenth(size: u64) -> u64 {
    size.div_ceil(10)
}

/// Returns the cost of copying this number of elements.
pub(crate) fn copies(count: u64) -> u64 {
    count.saturating_sub(FREE)
}

/// A call whose cost is asked for: the function's name with its namespace, the arguments, and the budget left.
pub(super) struct Call<'c, 'a> {
    pub(super) name: &'c str,
    pub(super) args: &'c [Val<'a>],
    pub(super) room: u64,
}

impl Call<'_, '_> {
    /// Returns the cost, as far as it is known before the call.
    pub(super) fn cost(&self) -> u64 {
        match self.name {
            op::EQUALS | op::NOT_EQUALS => self.equality(),
            op::LESS | op::LESS_EQUALS | op::GREATER | op::GREATER_EQUALS => match self.args {
                [Val::Str(_) | Val::Bytes(_), _] => tenth(self.shorter()),
                _ => 1,
            },
            op::ADD => match self.args.first() {
                Some(Val::Str(_) | Val::Bytes(_)) => {
                    tenth(self.weight(0).saturating_add(self.weight(1)))
                }
                Some(list) if list.list_len().is_some() => {
                    copies(self.weight(0).saturating_add(self.weight(1))).max(1)
                }
                _ => 1,
            },
            op::IN if self.length(1).is_some() => self.weight(1).max(self.search(1, 0)),
            op::IN | op::INDEX | op::OPT_INDEX | op::OPT_SELECT => 1 + self.lookup(),
            _ => self.of_strings().or_else(|| self.of_lists()).unwrap_or_else(|| self.of_others()),
        }
    }

    /// Returns the size of an argument; 0 if it is missing.
    fn weight(&self, index: usize) -> u64 {
        self.args.get(index).map_or(0, Val::weight)
    }

    fn length(&self, index: usize) -> Option<u64> {
        self.args.get(index)?.list_len().map(|length| length as u64)
    }

    /// Returns the number of values within an argument, as far as the budget could pay for them.
    fn nodes(&self, index: usize) -> u64 {
        let limit = self.room.saturating_mul(10).saturating_add(10);
        self.args.get(index).map_or(0, |value| value.nodes(limit))
    }

    /// Returns the size of the smaller of two arguments. Only the shorter of two strings is counted.
    fn shorter(&self) -> u64 {
        match self.args {
            [Val::Str(a), Val::Str(b)] => {
                let shorter = if a.len() < b.len() { a } else { b };
                shorter.chars().count() as u64
            }
            [Val::Str(_), b] => b.weight().min(1),
            [a, Val::Str(_)] => a.weight().min(1),
            _ => self.weight(0).min(self.weight(1)),
        }
    }

    fn equality(&self) -> u64 {
        let is_library = |value: &Val<'_>| {
            matches!(
                value,
                Val::Quantity(_)
                    | Val::Ip(_)
                    | Val::Cidr(..)
                    | Val::Url(_)
                    | Val::Semver(_)
                    | Val::Format(_)
                    | Val::Authorization(_)
            )
        };
        if self.args.first().is_some_and(is_library) {
            return 1;
        }
        let mut work = tenth(self.shorter());
        if let [a, b] = self.args
            && a.map_len().or(a.list_len()).is_some()
            && b.map_len().or(b.list_len()).is_some()
        {
            // The time to compare the parts, and to look up the entries of created maps.
            work = work.max(self.nodes(0).min(self.nodes(1)) / 10);
            if matches!(b, Val::Map(_) | Val::MapOr(..)) {
                work = work.max(self.weight(0).saturating_mul(self.weight(1)) / 100);
            }
        }
        work
    }

    /// Returns the cost of looking up an entry of a map that an expression created.
    fn lookup(&self) -> u64 {
        let map = self.args.iter().find(|arg| matches!(arg, Val::Map(_) | Val::MapOr(..)));
        map.map_or(0, |map| map.weight() / 100)
    }

    /// Returns the cost of comparing each element of a list with an argument.
    fn search(&self, list: usize, item: usize) -> u64 {
        let Some(length) = self.length(list) else { return 0 };
        self.nodes(list).min(self.nodes(item).saturating_mul(length)) / 10
    }

    fn of_strings(&self) -> Option<u64> {
        let Some(Val::Str(text)) = self.args.first() else { return None };
        let size = || self.weight(0);
        Some(match self.name {
            "contains" => tenth(size()).saturating_mul(tenth(self.weight(1))),
            "matches" | "find" | "findAll" => {
                tenth(size() + 1).saturating_mul(self.weight(1).div_ceil(4))
            }
            "startsWith" | "endsWith" => tenth(self.weight(1)),
            "indexOf" | "lastIndexOf" | "includes" => text.len() as u64 / 10,
            "lowerAscii"
            | "upperAscii"
            | "substring"
            | "trim"
            | "reverse"
            | "url"
            | "jsonpatch.escapeKey"
            | "bytes"
            | "strings.quote"
            | "base64.decode"
            | "format"
            | "quantity"
            | "isQuantity"
            | "semver"
            | "isSemver"
            | "ip"
            | "isIP"
            | "cidr"
            | "isCIDR" => tenth(size()),
            "ip.isCanonical" => tenth(2 * size()),
            "replace" => tenth(2 * size()).max(self.replaced() / 10),
            "split" => tenth(2 * size()).max(copies(self.parts())),
            _ => 1 + text.len() as u64 / 100,
        })
    }

    /// Returns the size of the result of `replace` in bytes.
    fn replaced(&self) -> u64 {
        let [Val::Str(text), Val::Str(from), Val::Str(to), rest @ ..] = self.args else { return 0 };
        let most = match rest {
            [Val::Int(n)] => u64::try_from(*n).unwrap_or(u64::MAX),
            _ => u64::MAX,
        };
        if to.len() <= from.len() {
            return text.len() as u64;
        }
        let count = (text.matches(&**from).count() as u64).min(most);
        (text.len() as u64).saturating_add(count.saturating_mul((to.len() - from.len()) as u64))
    }

    /// Returns the number of parts of `split`.
    fn parts(&self) -> u64 {
        let [Val::Str(text), Val::Str(by), rest @ ..] = self.args else { return 0 };
        let count = if by.is_empty() { self.weight(0) } else { text.matches(&**by).count() as u64 };
        match rest {
            [Val::Int(n)] => count.min(u64::try_from(*n).unwrap_or(u64::MAX)),
            _ => count,
        }
    }

    fn of_lists(&self) -> Option<u64> {
        if let ("lists.range", [Val::Int(n)]) = (self.name, self.args) {
            // A size beyond the limit is an error.
            let made = u64::try_from(*n).ok().filter(|_| *n <= MAX_RANGE);
            return Some(made.unwrap_or(0).saturating_add(LIST_CALL));
        }
        let length = self.length(0)?;
        Some(match self.name {
            "isSorted" | "sum" | "max" | "min" => traversal(&self.args[0]),
            "indexOf" | "lastIndexOf" | "includes" => {
                traversal(&self.args[0]).max(self.search(0, 1))
            }
            "sort" | "distinct" => self_comparison(&self.args[0]).max(match self.name {
                "distinct" => length.saturating_mul(self.nodes(0)) / 10,
                _ => 0,
            }),
            SORT_BY_KEYS => self.args.get(1).map_or(1, self_comparison),
            "reverse" => length.saturating_add(LIST_CALL),
            "slice" => match self.args {
                [_, Val::Int(from), Val::Int(to)] => {
                    let count = u64::try_from(to.saturating_sub(*from)).unwrap_or(0);
                    count.min(length).saturating_add(LIST_CALL)
                }
                _ => LIST_CALL,
            },
            "flatten" => {
                let depth = match self.args {
                    [_, Val::Int(depth)] => u64::try_from(*depth).unwrap_or(1),
                    _ => 1,
                };
                let limit = self.room.saturating_add(FREE).saturating_add(1);
                let count = flat_length(&self.args[0], depth, limit);
                depth.saturating_mul(length).saturating_add(LIST_CALL).max(copies(count))
            }
            "unwrapOpt" | "optional.unwrap" => copies(length).max(1),
            "join" => tenth(self.joined().saturating_mul(2)),
            "sets.contains" | "sets.intersects" | "sets.equivalent" => {
                let other = self.length(1).unwrap_or(0);
                let times = if self.name == "sets.equivalent" { 2 } else { 1 };
                let deep =
                    self.nodes(0).saturating_mul(other).min(self.nodes(1).saturating_mul(length));
                let once = length.saturating_mul(other).max(deep / 10);
                once.saturating_mul(times).saturating_add(1)
            }
            _ => return None,
        })
    }

    /// Returns the number of characters of the result of `join`.
    fn joined(&self) -> u64 {
        let Some(list) = self.args.first() else { return 0 };
        let texts: u64 = list.elements().map(|item| item.weight()).sum();
        let length = self.length(0).unwrap_or(0);
        let between = self.args.get(1).map_or(0, Val::weight);
        texts.saturating_add(between.saturating_mul(length.saturating_sub(1)))
    }

    fn of_others(&self) -> u64 {
        let parsed = |index: usize| match self.args.get(index) {
            Some(Val::Str(_)) => tenth(self.weight(index)),
            _ => 0,
        };
        match (self.name, self.args) {
            ("string" | "base64.encode", [Val::Bytes(bytes)]) => tenth(bytes.len() as u64),
            ("containsIP", [..]) => tenth(2 * self.weight(0)) + parsed(1),
            ("containsCIDR", [..]) => {
                tenth(2 * self.weight(0)) + tenth(self.weight(0)) + 1 + parsed(1)
            }
            ("validate", [Val::Format(format), Val::Str(_)]) => {
                tenth(self.weight(1) + 1).saturating_mul(pattern_cost(format))
            }
            ("check", [Val::Authorization(_), ..]) => AUTHORIZATION_CHECK,
            ("fieldSelector" | "labelSelector", [Val::Authorization(_), ..]) => {
                selector(self.weight(1))
            }
            ("getQuery", [Val::Url(url)]) => 1 + url.text.len() as u64 / 10,
            (name, [Val::Url(url)]) if name.starts_with("get") => 1 + url.text.len() as u64 / 100,
            ("includes", [..]) => tenth(self.shorter()).max(self.nodes(0).min(self.nodes(1)) / 10),
            _ => 1,
        }
    }
}

/// Returns the cost of sorting a list, or of comparing all of its elements with each other.
///
/// Upstream: `trackListSelfCompare`.
fn self_comparison(list: &Val<'_>) -> u64 {
    let length = list.list_len().unwrap_or(0) as u64;
    let pairs = length.saturating_mul(length);
    let cost = match list.elements().next() {
        Some(Val::Str(_) | Val::Bytes(_)) => (pairs as f64 * 2.1) as u64,
        _ => pairs.saturating_mul(2),
    };
    cost.saturating_add(LIST_CALL)
}

/// Returns the cost of traversing a value. Upstream: `traversalCost`.
fn traversal(value: &Val<'_>) -> u64 {
    match value {
        Val::Str(text) => text.len() as u64 / 10,
        Val::Bytes(bytes) => bytes.len() as u64 / 10,
        value => {
            if value.list_len().is_some() {
                return value.elements().map(|item| traversal(&item)).sum();
            }
            let pairs = value.pairs();
            pairs.map_or(1, |pairs| pairs.map(|(k, v)| traversal(&k) + traversal(&v)).sum())
        }
    }
}

/// Returns the number of elements of a flattened list, at most `limit`.
fn flat_length(list: &Val<'_>, depth: u64, limit: u64) -> u64 {
    let mut count = 0u64;
    for item in list.elements() {
        count += match item.list_len() {
            // An empty list takes time, too.
            Some(_) if depth > 0 => flat_length(&item, depth - 1, limit - count).max(1),
            _ => 1,
        };
        if count >= limit {
            return limit;
        }
    }
    count
}

/// Returns the cost of a format's regular expression. Upstream: `MaxRegexSize` of `cel/library/format.go`.
fn pattern_cost(format: &str) -> u64 {
    match format {
        "dns1123Subdomain" | "dns1123SubdomainPrefix" | "qualifiedName" => 15,
        "labelValue" => 10,
        "uri" => 276,
        "byte" => 21,
        "uuid" | "date" | "datetime" => 18,
        _ => 8,
    }
}
