//! Cost of calls by the size of their arguments. Upstream: `cel/library/cost.go`, cel-go's `runtimecost.go` and `ext`.
//!
//! Upstream charges a call after it has run, and stops a slow evaluation when the request times out. Here, a call is
//! charged before it allocates or runs. Where upstream's cost is far below the work, the call costs as much as the
//! work.

use cel::common::ast::operators as op;

use super::expand::SORT_BY_KEYS;
use super::functions::MAX_RANGE;
use super::value::Val;

/// Number of elements that an operation may copy at no cost. Upstream shares some lists, which are copied here.
const FREE_COPIES: u64 = 10;

/// Cost of a call that creates a list, without the cost of its elements.
pub(crate) const LIST_CALL: u64 = 1 + super::eval::LIST_COST;

/// Cost of an authorization check. The limit [`crate::PER_CALL_LIMIT`] suffices for two in one expression.
pub(crate) const AUTHORIZATION_CHECK: u64 = 350_000;

/// Returns the cost of parsing a selector of this many characters. Each second character may begin a requirement.
///
/// Upstream: `selectorCostEstimate`.
pub(crate) fn selector_cost(size: u64) -> u64 {
    const COST_PER_REQUIREMENT: u64 = 50;
    let requirements = size.div_ceil(2).saturating_mul(COST_PER_REQUIREMENT);
    super::eval::LIST_COST.saturating_add(read_cost(size)).saturating_add(requirements)
}

/// Returns the cost of traversing a string of this size: a tenth, rounded up.
pub(crate) fn read_cost(size: u64) -> u64 {
    size.div_ceil(10)
}

/// Returns the cost of copying this number of elements.
pub(crate) fn copy_cost(count: u64) -> u64 {
    count.saturating_sub(FREE_COPIES)
}

/// Call that is about to run.
pub(super) struct Call<'c, 'a> {
    /// Name of the function, with its namespace.
    pub(super) name: &'c str,
    /// Arguments of the call; the target of a method is the first.
    pub(super) args: &'c [Val<'a>],
    pub(super) remaining_budget: u64,
}

impl Call<'_, '_> {
    /// Returns the cost that is known before the call.
    pub(super) fn cost(&self) -> u64 {
        match self.name {
            op::EQUALS | op::NOT_EQUALS => self.equality_cost(),
            op::LESS | op::LESS_EQUALS | op::GREATER | op::GREATER_EQUALS => match self.args {
                [Val::Str(_) | Val::Bytes(_), _] => read_cost(self.shorter()),
                _ => 1,
            },
            op::ADD => match self.args.first() {
                Some(Val::Str(_) | Val::Bytes(_)) => {
                    read_cost(self.weight(0).saturating_add(self.weight(1)))
                }
                Some(list) if list.list_len().is_some() => {
                    copy_cost(self.weight(0).saturating_add(self.weight(1))).max(1)
                }
                _ => 1,
            },
            op::IN if self.length(1).is_some() => self.weight(1).max(self.search_cost(1, 0)),
            op::IN | op::INDEX | op::OPT_INDEX | op::OPT_SELECT => 1 + self.lookup_cost(),
            _ => self
                .cost_for_string()
                .or_else(|| self.cost_for_list())
                .unwrap_or_else(|| self.cost_for_others()),
        }
    }

    /// Returns the size of an argument; 0 if it is missing.
    fn weight(&self, index: usize) -> u64 {
        self.args.get(index).map_or(0, Val::weight)
    }

    /// Returns the number of elements of an argument; `None` if it is not a list.
    fn length(&self, index: usize) -> Option<u64> {
        self.args.get(index)?.list_len().map(|length| length as u64)
    }

    /// Returns the number of values within an argument. Stops counting once the budget cannot pay for more.
    fn nodes(&self, index: usize) -> u64 {
        let limit = self.remaining_budget.saturating_mul(10).saturating_add(10);
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

    fn equality_cost(&self) -> u64 {
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
        let mut work = read_cost(self.shorter());
        if let [a, b] = self.args
            && a.map_len().or(a.list_len()).is_some()
            && b.map_len().or(b.list_len()).is_some()
        {
            // The time to compare all nested values, and to search the entries of a created map, which has no index.
            work = work.max(self.nodes(0).min(self.nodes(1)) / 10);
            if matches!(b, Val::Map(_) | Val::MapWithDefault(..)) {
                work = work.max(self.weight(0).saturating_mul(self.weight(1)) / 100);
            }
        }
        work
    }

    /// Returns the cost of looking up an entry of a map that an expression created.
    fn lookup_cost(&self) -> u64 {
        let map = self.args.iter().find(|arg| matches!(arg, Val::Map(_) | Val::MapWithDefault(..)));
        map.map_or(0, |map| map.weight() / 100)
    }

    /// Returns the cost of comparing each element of a list with an argument.
    fn search_cost(&self, list: usize, item: usize) -> u64 {
        let Some(length) = self.length(list) else { return 0 };
        self.nodes(list).min(self.nodes(item).saturating_mul(length)) / 10
    }

    /// Returns the cost if the first argument is a string.
    fn cost_for_string(&self) -> Option<u64> {
        let Some(Val::Str(text)) = self.args.first() else { return None };
        let size = || self.weight(0);
        Some(match self.name {
            "contains" => read_cost(size()).saturating_mul(read_cost(self.weight(1))),
            "matches" | "find" | "findAll" => {
                read_cost(size() + 1).saturating_mul(self.weight(1).div_ceil(4))
            }
            "startsWith" | "endsWith" => read_cost(self.weight(1)),
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
            | "isCIDR" => read_cost(size()),
            "ip.isCanonical" => read_cost(2 * size()),
            "replace" => read_cost(2 * size()).max(self.size_of_replace() / 10),
            "split" => read_cost(2 * size()).max(copy_cost(self.parts_of_split())),
            _ => 1 + text.len() as u64 / 100,
        })
    }

    /// Returns the size of the result of `replace` in bytes.
    fn size_of_replace(&self) -> u64 {
        let [Val::Str(text), Val::Str(from), Val::Str(to), rest @ ..] = self.args else { return 0 };
        // A negative limit means no limit.
        let limit = match rest {
            [Val::Int(n)] => u64::try_from(*n).unwrap_or(u64::MAX),
            _ => u64::MAX,
        };
        if to.len() <= from.len() {
            return text.len() as u64;
        }
        let count = (text.matches(&**from).count() as u64).min(limit);
        let growth = (to.len() - from.len()) as u64;
        (text.len() as u64).saturating_add(count.saturating_mul(growth))
    }

    /// Returns the number of elements of the result of `split`.
    fn parts_of_split(&self) -> u64 {
        let [Val::Str(text), Val::Str(separator), rest @ ..] = self.args else { return 0 };
        let count = if separator.is_empty() {
            self.weight(0)
        } else {
            text.matches(&**separator).count() as u64
        };
        match rest {
            [Val::Int(n)] => count.min(u64::try_from(*n).unwrap_or(u64::MAX)),
            _ => count,
        }
    }

    /// Returns the cost if the first argument is a list, and the cost of `lists.range`; `None` for functions without a
    /// list.
    fn cost_for_list(&self) -> Option<u64> {
        if let ("lists.range", [Val::Int(n)]) = (self.name, self.args) {
            // A size beyond the limit is an error, which creates no elements.
            let elements = u64::try_from(*n).ok().filter(|_| *n <= MAX_RANGE);
            return Some(elements.unwrap_or(0).saturating_add(LIST_CALL));
        }
        let length = self.length(0)?;
        Some(match self.name {
            "isSorted" | "sum" | "max" | "min" => traversal(&self.args[0]),
            "indexOf" | "lastIndexOf" | "includes" => {
                traversal(&self.args[0]).max(self.search_cost(0, 1))
            }
            "sort" => self_comparison(&self.args[0]),
            "distinct" => {
                let deep_comparisons = length.saturating_mul(self.nodes(0)) / 10;
                self_comparison(&self.args[0]).max(deep_comparisons)
            }
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
                let limit = self.remaining_budget.saturating_add(FREE_COPIES).saturating_add(1);
                let count = flat_length(&self.args[0], depth, limit);
                depth.saturating_mul(length).saturating_add(LIST_CALL).max(copy_cost(count))
            }
            "unwrapOpt" | "optional.unwrap" => copy_cost(length).max(1),
            "join" => read_cost(self.size_of_join().saturating_mul(2)),
            "sets.contains" | "sets.intersects" | "sets.equivalent" => {
                let other = self.length(1).unwrap_or(0);
                // `sets.equivalent` checks that each set contains the other.
                let checks = if self.name == "sets.equivalent" { 2 } else { 1 };
                let deep_comparisons =
                    self.nodes(0).saturating_mul(other).min(self.nodes(1).saturating_mul(length));
                let cost_of_check = length.saturating_mul(other).max(deep_comparisons / 10);
                cost_of_check.saturating_mul(checks).saturating_add(1)
            }
            _ => return None,
        })
    }

    /// Returns the number of characters of the result of `join`.
    fn size_of_join(&self) -> u64 {
        let Some(list) = self.args.first() else { return 0 };
        let texts: u64 = list.elements().map(|item| item.weight()).sum();
        let length = self.length(0).unwrap_or(0);
        let separator = self.args.get(1).map_or(0, Val::weight);
        texts.saturating_add(separator.saturating_mul(length.saturating_sub(1)))
    }

    fn cost_for_others(&self) -> u64 {
        // An argument that is a string is parsed first.
        let parse_cost = |index: usize| match self.args.get(index) {
            Some(Val::Str(_)) => read_cost(self.weight(index)),
            _ => 0,
        };
        match (self.name, self.args) {
            ("string" | "base64.encode", [Val::Bytes(bytes)]) => read_cost(bytes.len() as u64),
            ("containsIP", [..]) => read_cost(2 * self.weight(0)) + parse_cost(1),
            ("containsCIDR", [..]) => {
                read_cost(2 * self.weight(0)) + read_cost(self.weight(0)) + 1 + parse_cost(1)
            }
            ("validate", [Val::Format(format), Val::Str(_)]) => {
                read_cost(self.weight(1) + 1).saturating_mul(pattern_cost(format))
            }
            ("check", [Val::Authorization(_), ..]) => AUTHORIZATION_CHECK,
            ("fieldSelector" | "labelSelector", [Val::Authorization(_), ..]) => {
                selector_cost(self.weight(1))
            }
            ("getQuery", [Val::Url(url)]) => 1 + url.text.len() as u64 / 10,
            (name, [Val::Url(url)]) if name.starts_with("get") => 1 + url.text.len() as u64 / 100,
            ("includes", [..]) => {
                read_cost(self.shorter()).max(self.nodes(0).min(self.nodes(1)) / 10)
            }
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
            // An empty list counts as one element, because it takes time, too.
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
