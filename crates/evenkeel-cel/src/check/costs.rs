//! Estimated maximum cost of a call, and the maximum size of its result.
//!
//! Upstream: `EstimateCallCost` of `cel/library/cost.go`, and the estimators of cel-go's `checker` and `ext`.

use crate::cost::{AUTHORIZATION_CHECK, LIST_CALL, selector, tenth};
use cel::common::ast::{Expr, LiteralValue};
use cel::parser::Expression;

use super::Declared;
use super::types::Type;

/// Maximum size of the pattern of a format. Upstream: `MaxNameFormatRegexSize`.
const FORMAT_PATTERN: u64 = 128;
/// Cost of comparing an address with a network of the same family.
const ADDRESS: u64 = 4;

/// Returns the cost of a search with a regular expression.
fn search(text: u64, pattern: u64) -> u64 {
    tenth(text.saturating_add(1)).saturating_mul(pattern.div_ceil(4))
}

/// A call: the function's name with its namespace, and what is known of the arguments, with the target first.
pub(super) struct Estimated<'c, 'a> {
    pub(super) name: &'c str,
    pub(super) args: &'c [&'c Declared<'a>],
    /// Expressions of the arguments, in the same order.
    pub(super) written: Vec<&'c Expression>,
}

impl Estimated<'_, '_> {
    /// Returns the cost without that of the arguments, and the size of the result if there is a bound.
    pub(super) fn cost(&self) -> (u64, Option<u64>) {
        let size = self.size(0);
        let same = Some(size);
        match self.name {
            "contains" => (tenth(size).saturating_mul(tenth(self.size(1))), None),
            "matches" => (search(size, self.size(1)), None),
            "find" | "findAll" => (search(size, self.size(1)), same),
            "startsWith" | "endsWith" => (tenth(self.size(1)), None),
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" | "includes" => {
                (self.traversal(), None)
            }
            "url" | "jsonpatch.escapeKey" | "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                (tenth(size), same)
            }
            "bytes" if self.is_text(0) => (tenth(size), Some(size.saturating_mul(4))),
            "string" if self.args.first().is_some_and(|arg| arg.kind == Type::Bytes) => {
                (tenth(size), same)
            }
            "strings.quote" => (tenth(size), Some(size.saturating_mul(2).saturating_add(2))),
            "replace" => (tenth(size.saturating_mul(2)), Some(self.replaced())),
            "split" => {
                let limit = self.number(2).map_or(size, |limit| limit as u64);
                (tenth(size.saturating_mul(2)), Some(limit))
            }
            "join" => {
                let joined = self.joined();
                (tenth(joined), Some(joined))
            }
            "format" | "quantity" | "isQuantity" | "semver" | "isSemver" | "cidr" | "isIP"
            | "isCIDR" => (tenth(size), None),
            "ip" if self.is_text(0) => (tenth(size), None),
            "ip.isCanonical" => (tenth(size.saturating_mul(2)), None),
            "containsIP" => (ADDRESS.saturating_add(self.parsed(1)), None),
            "containsCIDR" => ((ADDRESS + 3).saturating_add(self.parsed(1)), None),
            "check" => (AUTHORIZATION_CHECK, None),
            "fieldSelector" | "labelSelector" => (selector(self.size(1)), None),
            "validate" => (tenth(self.size(1)).saturating_mul(FORMAT_PATTERN.div_ceil(4)), None),
            _ => self.of_lists(),
        }
    }

    fn of_lists(&self) -> (u64, Option<u64>) {
        let size = self.size(0);
        let list = |cost: u64, size: u64| (cost.saturating_add(LIST_CALL), Some(size));
        match self.name {
            "lists.range" => {
                let count = self.number(0).map_or(u64::MAX, |count| count.max(0) as u64);
                list(count, count)
            }
            "reverse" => list(size, size),
            "slice" => {
                let from = self.number(1).map_or(0, |from| from.max(0) as u64);
                let to = self.number(2).map_or(size, |to| to.max(0) as u64);
                // Upstream's numbers wrap, which makes an invalid slice as expensive as can be.
                let count = to.wrapping_sub(from);
                list(count, count)
            }
            "flatten" => {
                let depth = match self.written.get(1) {
                    None => 1,
                    Some(_) => self.number(1).map_or(u64::MAX, |depth| depth.max(0) as u64),
                };
                list(size.saturating_mul(depth), size)
            }
            "distinct" => {
                let pairs = size.saturating_mul(size);
                list(pairs.saturating_mul(2), pairs)
            }
            "sort" => self_comparison(self.args.first().copied()),
            "sets.contains" | "sets.intersects" | "sets.equivalent" => {
                let times = if self.name == "sets.equivalent" { 2 } else { 1 };
                let pairs = size.saturating_mul(self.size(1));
                (pairs.saturating_mul(times).saturating_add(1), None)
            }
            _ => (1, None),
        }
    }

    fn size(&self, index: usize) -> u64 {
        self.args.get(index).map_or(1, |arg| arg.size)
    }

    fn is_text(&self, index: usize) -> bool {
        self.args.get(index).is_some_and(|arg| arg.kind == Type::Str)
    }

    /// Returns the cost of parsing an argument if it is a string.
    fn parsed(&self, index: usize) -> u64 {
        if self.is_text(index) { tenth(self.size(index)) } else { 0 }
    }

    /// Returns an argument that is a literal of type `int`.
    fn number(&self, index: usize) -> Option<i64> {
        match &self.written.get(index)?.expr {
            Expr::Literal(LiteralValue::Int(number)) => Some(*number.inner()),
            _ => None,
        }
    }

    /// Returns the cost of comparing each element of a list, or each character of a string.
    fn traversal(&self) -> u64 {
        let Some(target) = self.args.first() else { return 1 };
        match &target.kind {
            Type::List(of) if matches!(**of, Type::Str | Type::Bytes) => {
                target.size.saturating_mul(tenth(target.element().size).saturating_add(1))
            }
            Type::Str => tenth(target.size),
            _ => target.size,
        }
    }

    /// Returns the maximum size of the result of `replace`.
    fn replaced(&self) -> u64 {
        let (size, to) = (self.size(0), self.size(2));
        let least = match self.written.get(1).map(|from| &from.expr) {
            Some(Expr::Literal(_)) => self.size(1),
            _ => 0,
        };
        if least == 0 {
            // Each character is surrounded.
            return size.saturating_add(1).saturating_mul(to).saturating_add(size);
        }
        if to <= least { size } else { size.div_ceil(least).saturating_mul(to) }
    }

    /// Returns the maximum size of the result of `join`.
    fn joined(&self) -> u64 {
        let Some(list) = self.args.first() else { return 0 };
        let between = if self.args.len() > 1 { self.size(1) } else { 0 };
        let texts = list.size.saturating_mul(list.element().size);
        texts.saturating_add(between.saturating_mul(list.size.saturating_sub(1)))
    }
}

/// Returns the cost and the result's size of sorting by these keys. Upstream: `estimateListSortCost`.
pub(super) fn self_comparison(keys: Option<&Declared<'_>>) -> (u64, Option<u64>) {
    let size = keys.map_or(1, |keys| keys.size);
    let pairs = size.saturating_mul(size);
    let is_text = keys.is_some_and(|keys| match &keys.kind {
        Type::List(of) => matches!(**of, Type::Str | Type::Bytes),
        _ => false,
    });
    let more = if is_text { tenth(pairs) } else { 0 };
    (pairs.saturating_mul(2).saturating_add(more).saturating_add(LIST_CALL), Some(pairs))
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;
    use crate::Program;

    /// Estimates that upstream has for these expressions: `t` has at most 20 characters, `l` and `s` 5 elements.
    #[test]
    fn estimates_are_upstreams() {
        let list = |of: Type<'static>| Type::List(Box::new(of));
        for (source, want) in [
            ("t", 1),
            ("has({'a': 1}.a)", 30),
            ("t == t", 4),
            ("t < t", 4),
            ("t + t == t", 9),
            ("t.contains(t)", 6),
            ("t.matches('abcde')", 7),
            ("t.matches(t)", 17),
            ("t.find('abcde')", 7),
            ("t.findAll('abcde').size()", 8),
            ("t.startsWith(t)", 4),
            ("t.indexOf(t)", 4),
            ("l.indexOf(1)", 6),
            ("s.indexOf(t)", 1572872),
            ("l.includes(1)", 6),
            ("l.isSorted()", 6),
            ("s.max()", 1572871),
            ("l.sum()", 6),
            ("t.lowerAscii() == t", 6),
            ("t.substring(1)", 3),
            ("t.trim()", 3),
            ("t.replace('a', 'bc') == t", 8),
            ("t.replace('ab', 'bc').contains(t)", 10),
            ("t.replace('', 'bc').startsWith(t)", 8),
            ("t.replace(t, 'bc').contains('ab')", 13),
            ("t.split(',').map(x, x)", 276),
            ("t.split(',', 2).map(x, 1)", 40),
            ("['ab', t].join('--').contains('a')", 1258303),
            ("s.join(',').size()", 1572866),
            ("url(t).getHost()", 4),
            ("isURL(t)", 2),
            ("quantity(t).isInteger()", 4),
            ("semver(t).major()", 4),
            ("ip(t).family()", 4),
            ("ip.isCanonical(t)", 5),
            ("cidr('1.2.3.4/8').containsIP(t)", 8),
            ("cidr('1.2.3.4/8').containsIP(ip('1.2.3.4'))", 6),
            ("cidr('1.2.3.4/8').containsCIDR(t)", 11),
            ("format.uri().validate(t).hasValue()", 67),
            ("strings.quote(t) == t", 6),
            ("t.format([n])", 14),
            ("bytes(t) == bytes(t)", 14),
            ("string(bytes(t)) == t", 14),
            ("lists.range(7)", 18),
            ("lists.range(3).map(x, x)", 64),
            ("l.reverse()", 17),
            ("l.slice(1, 3).map(x, x)", 51),
            ("l.distinct()", 62),
            ("l.sort()", 62),
            ("s.sort()", 65),
            ("l.sortBy(x, -x)", 155),
            ("sets.contains(l, l)", 28),
            ("sets.intersects(l, [1, 2])", 22),
            ("sets.equivalent(l, l)", 53),
            ("n in l", 7),
            ("l.all(x, x > 1)", 27),
            ("l.exists(x, x > 1)", 32),
            ("l.exists_one(x, x > 1)", 23),
            ("l.filter(x, x > 1)", 87),
            ("l.map(x, x + 1)", 82),
            ("l + l == l", 5),
            ("n > 1 ? t : t + t", 8),
            ("sign(quantity('1'))", 2),
        ] {
            let program = Program::parse(source).expect(source);
            let variables = vec![
                ("t", Declared::sized(Type::Str, 20)),
                ("n", Declared::of(Type::Int)),
                ("l", Declared::sized(list(Type::Int), 5)),
                ("s", Declared::sized(list(Type::Str), 5)),
            ];
            let found = check(&program, variables).map(|checked| checked.cost);
            assert_eq!(found, Ok(want), "{source}");
        }
    }
}
