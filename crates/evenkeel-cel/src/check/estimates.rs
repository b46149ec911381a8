//! Estimated cost of a call, and the size of its result.
//!
//! Upstream: `EstimateCallCost` of `cel/library/cost.go`, and the estimators of cel-go's `checker` and `ext`.

use cel::common::ast::{Expr, LiteralValue, operators as op};
use cel::parser::Expression;

use super::costs::{DeclaredPath, declared};
use super::functions::{FORMAT, Overload, URL};
use super::range::Range;
use super::{Declared, Type};
use crate::cost::{AUTHORIZATION_CHECK, LIST_CALL};

/// Cost of reading one character of a string.
const READ: f64 = 0.1;
/// Cost of one character of a regular expression.
const PATTERN: f64 = 0.25;
/// Maximum size of the pattern of a format. Upstream: `MaxNameFormatRegexSize`.
const FORMAT_PATTERN: f64 = 128.0;
/// Maximum size of the name of a format. Upstream: `MaxFormatSize`.
const FORMAT_NAME: u64 = 64;
/// Size of an IP address in bytes.
const ADDRESS: Range = Range { min: 4, max: 16 };
/// Maximum number of values of a device's attribute. Upstream: `ResourceSliceMaxAttributeValuesPerDevice`.
const ATTRIBUTE_VALUES: u64 = 48;

/// Argument of a call, and what is known of it.
pub(super) struct Argument<'c> {
    pub(super) e: &'c Expression,
    pub(super) kind: &'c Type,
    pub(super) place: DeclaredPath<'c>,
    pub(super) size: Option<Range>,
}

impl Argument<'_> {
    pub(super) fn size_or_unknown(&self) -> Range {
        self.size.unwrap_or(Range::UNKNOWN)
    }

    /// Returns the value of a literal of type `int`.
    fn number(&self) -> Option<i64> {
        match &self.e.expr {
            Expr::Literal(LiteralValue::Int(number)) => Some(*number.inner()),
            _ => None,
        }
    }

    /// Returns the value of a literal that is a count; `other` for other expressions.
    ///
    /// Upstream: `nodeAsUintValue`.
    fn count(&self, other: u64) -> u64 {
        self.number().map_or(other, |number| u64::try_from(number).unwrap_or(0))
    }
}

/// One form of a call.
pub(super) struct Estimate<'e, 'c> {
    /// Name of the function, with its namespace.
    pub(super) name: &'e str,
    pub(super) overload: &'static Overload,
    pub(super) target: Option<&'e Argument<'c>>,
    pub(super) args: &'e [Argument<'c>],
}

impl Estimate<'_, '_> {
    /// Returns the cost without that of the arguments, and the size of the result if there is a bound.
    pub(super) fn cost(&self) -> (Range, Option<Range>) {
        self.of_lists()
            .or_else(|| self.of_libraries())
            .or_else(|| self.of_standard())
            .unwrap_or((Range::fixed(1), None))
    }

    fn size(&self, index: usize) -> Range {
        self.args.get(index).map_or(Range::UNKNOWN, Argument::size_or_unknown)
    }

    fn target_size(&self) -> Range {
        self.target.map_or(Range::UNKNOWN, Argument::size_or_unknown)
    }

    /// Whether an argument of this form is a string, rather than what a string spells.
    fn takes_text(&self, index: usize) -> bool {
        self.overload.args.get(index) == Some(&Type::Str)
    }

    /// Upstream: the estimators of `ext/lists.go` and `ext/sets.go`.
    fn of_lists(&self) -> Option<(Range, Option<Range>)> {
        let made = |factor: f64, size: Range| {
            Some((size.scaled(factor).plus(Range::fixed(LIST_CALL)), Some(size)))
        };
        match (self.name, self.target, self.args) {
            ("slice", Some(_), [from, to]) => {
                let (from, to) = (from.count(0), to.count(self.target_size().max));
                // Upstream's numbers wrap, which makes an invalid slice as expensive as can be.
                made(1.0, Range::fixed(to.wrapping_sub(from)))
            }
            ("lists.range", None, [count]) => made(1.0, Range::fixed(count.count(u64::MAX))),
            ("reverse", Some(_), []) => made(1.0, self.target_size()),
            ("flatten", Some(_), []) => made(1.0, self.target_size()),
            ("flatten", Some(_), [depth]) => made(depth.count(u64::MAX) as f64, self.target_size()),
            ("distinct", Some(_), []) => made(2.0, self.target_size().times(self.target_size())),
            ("sort", Some(_), []) => {
                made(self.order(0), self.target_size().times(self.target_size()))
            }
            ("@sortByAssociatedKeys", Some(_), [keys]) => {
                let size = keys.size_or_unknown();
                made(self.order(1), size.times(size))
            }
            ("sets.contains" | "sets.intersects" | "sets.equivalent", _, [_, _]) => {
                let factor = if self.name == "sets.equivalent" { 2.0 } else { 1.0 };
                let cost = self.size(0).times(self.size(1)).scaled(factor);
                Some((cost.plus(Range::fixed(1)), None))
            }
            _ => None,
        }
    }

    /// Returns the cost of comparing two elements of a list, which is an argument of this form.
    fn order(&self, list: usize) -> f64 {
        match self.overload.args.get(list) {
            Some(Type::List(of)) if matches!(**of, Type::Str | Type::Bytes) => 2.0 + READ,
            _ => 2.0,
        }
    }

    /// Upstream: `EstimateCallCost`.
    fn of_libraries(&self) -> Option<(Range, Option<Range>)> {
        let read = |size: Range| (size.scaled(READ), None);
        let one = Some((Range::fixed(1), None));
        match self.name {
            "check" => Some((Range::fixed(AUTHORIZATION_CHECK), None)),
            "fieldSelector" | "labelSelector" => {
                let size = self.size(0);
                let requirements = size.scaled(0.5).scaled(50.0);
                let cost = Range::fixed(10).plus(size.scaled(READ)).plus(requirements);
                Some((cost, None))
            }
            "includes" => Some((Range::new(0, ATTRIBUTE_VALUES), None)),
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
                self.target.map(|target| (self.traversal(target), None))
            }
            "url" | "jsonpatch.escapeKey" => Some((self.size(0).scaled(READ), Some(self.size(0)))),
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                Some((self.target_size().scaled(READ), Some(self.target_size())))
            }
            "replace" => Some((self.target_size().scaled(2.0 * READ), Some(self.replaced()))),
            "split" => {
                let size = self.target_size();
                let limit = self.args.get(1).and_then(Argument::number);
                let most = limit.map_or(size.max, |limit| limit as u64);
                Some((size.scaled(2.0 * READ), Some(Range::new(0, most))))
            }
            "join" => {
                let size = self.joined();
                Some((size.scaled(READ), Some(size)))
            }
            "find" | "findAll" => {
                let size = self.target_size();
                let text = size.plus(Range::fixed(1)).scaled(READ);
                let cost = text.times(self.size(0).scaled(PATTERN));
                Some((cost, Some(Range::new(0, size.max))))
            }
            "ip" if !self.takes_text(0) => one,
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver"
            | "isSemver" => Some(read(self.size(0))),
            "ip.isCanonical" => Some((self.size(0).scaled(2.0 * READ), None)),
            "containsIP" | "containsCIDR" => {
                let mut cost = ADDRESS.plus(ADDRESS).scaled(READ);
                if self.name == "containsCIDR" {
                    cost = cost.plus(ADDRESS.scaled(READ)).plus(Range::fixed(1));
                }
                if self.takes_text(1) {
                    cost = cost.plus(self.size(0).scaled(READ));
                }
                Some((cost, None))
            }
            "validate" => {
                let cost = self.size(0).scaled(READ).scaled(FORMAT_PATTERN * PATTERN);
                Some((cost, None))
            }
            op::EQUALS => self.equality(),
            _ => None,
        }
    }

    /// Returns the cost of comparing two values of one library.
    fn equality(&self) -> Option<(Range, Option<Range>)> {
        let [a, b] = self.args else { return None };
        if a.kind != b.kind {
            return None;
        }
        let cost = match a.kind {
            Type::Library(FORMAT) => Range::new(1, FORMAT_NAME).scaled(READ),
            Type::Library(URL) => Range::new(1, b.size.map_or(1, |size| size.max)).scaled(READ),
            Type::Library(_) => Range::fixed(1),
            _ => return None,
        };
        Some((cost, None))
    }

    /// Upstream: `functionCost` of cel-go.
    fn of_standard(&self) -> Option<(Range, Option<Range>)> {
        let is_text =
            |index: usize| matches!(self.overload.args.get(index), Some(Type::Str | Type::Bytes));
        match (self.name, self.target, self.args) {
            ("format", Some(_), _) => Some((self.target_size().scaled(READ), None)),
            ("bytes", None, [_]) if self.takes_text(0) => {
                let size = self.size(0);
                let result = Range::new(size.min, size.max.wrapping_mul(4));
                Some((size.scaled(READ), Some(result)))
            }
            ("string", None, [_]) if self.overload.args.first() == Some(&Type::Bytes) => {
                let size = self.size(0);
                Some((size.scaled(READ), Some(Range::new(size.min / 4, size.max))))
            }
            ("strings.quote", None, [_]) => {
                let size = self.size(0);
                let result =
                    Range::new(size.min.wrapping_add(2), size.max.wrapping_mul(2).wrapping_add(2));
                Some((size.scaled(READ), Some(result)))
            }
            ("startsWith" | "endsWith", Some(_), [_]) => Some((self.size(0).scaled(READ), None)),
            (op::IN, None, [_, _]) if matches!(self.overload.args.get(1), Some(Type::List(_))) => {
                Some((self.size(1), None))
            }
            ("matches", Some(_), [_]) => {
                let text = self.target_size().plus(Range::fixed(1)).scaled(READ);
                Some((text.times(self.size(0).scaled(PATTERN)), None))
            }
            ("matches", None, [text, _]) => {
                let text = text.size_or_unknown().plus(Range::fixed(1)).scaled(READ);
                Some((text.times(self.size(1).scaled(PATTERN)), None))
            }
            ("contains", Some(_), [_]) => {
                Some((self.target_size().scaled(READ).times(self.size(0).scaled(READ)), None))
            }
            (op::ADD, None, [_, _]) => {
                let size = self.size(0).plus(self.size(1));
                match self.overload.args.first() {
                    Some(Type::List(_)) => Some((Range::fixed(1), Some(size))),
                    _ if is_text(0) => Some((size.scaled(READ), Some(size))),
                    _ => None,
                }
            }
            (op::EQUALS | op::NOT_EQUALS, None, [_, _]) => Some((self.comparison(), None)),
            (op::LESS | op::LESS_EQUALS | op::GREATER | op::GREATER_EQUALS, None, [_, _])
                if is_text(0) =>
            {
                Some((self.comparison(), None))
            }
            _ => None,
        }
    }

    fn comparison(&self) -> Range {
        let most = self.size(0).max.min(self.size(1).max);
        Range::new(u64::from(most > 0), most).scaled(READ)
    }

    /// Returns the declared size and the type of a list's elements.
    fn element(&self, list: &Argument<'_>) -> Option<(Type, Range)> {
        let kind = list.kind.parts()[0]?.clone();
        let size = declared(list.place.map(|place| place.and_then(Declared::element)));
        Some((kind, size.unwrap_or(Range::UNKNOWN)))
    }

    /// Returns the cost of comparing each element of a list, or each character of a string.
    fn traversal(&self, target: &Argument<'_>) -> Range {
        let size = target.size_or_unknown();
        match self.element(target) {
            Some((Type::Str | Type::Bytes, element)) => {
                size.times(Range::fixed(1).plus(element.scaled(READ)))
            }
            Some(_) => size,
            None => size.scaled(READ),
        }
    }

    /// Returns the size of the result of `replace`.
    fn replaced(&self) -> Range {
        let (size, from, to) = (self.target_size(), self.size(0), self.size(1));
        let times = |size: u64, part: u64| (size as f64 / part as f64).ceil() as u64;
        let (most, most_kept) = match from.min {
            0 => (size.max.saturating_add(1), size.max),
            from if to.max <= from => (0, size.max),
            from => (times(size.max, from), 0),
        };
        let (least, least_kept) = match from.max {
            0 => (size.min.saturating_add(1), size.min),
            from if from <= to.min => (0, size.min),
            from => (times(size.min, from), 0),
        };
        Range::new(least, most).times(to).plus(Range::new(least_kept, most_kept))
    }

    /// Returns the size of the result of `join`.
    fn joined(&self) -> Range {
        let Some(target) = self.target else { return Range::UNKNOWN };
        let list = target.size_or_unknown();
        let texts = self.element(target).map_or(Range::fixed(0), |(_, size)| list.times(size));
        if self.args.is_empty() {
            return texts;
        }
        let between = Range::new(list.min.saturating_sub(1), list.max.saturating_sub(1));
        texts.plus(self.size(0).times(between))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Variable, check};
    use super::*;
    use crate::Program;

    /// Estimates that upstream has for these expressions: `t` has at most 20 characters, `l` and `s` 5 elements.
    #[test]
    fn estimates_are_upstreams() {
        let text = || Declared::of(Type::Str).at_most(20);
        let root = Declared::object(
            Some("root"),
            [
                ("t", text()),
                ("n", Declared::of(Type::Int)),
                ("l", Declared::list(Declared::of(Type::Int), 5)),
                ("s", Declared::list(text(), 5)),
            ],
        );
        for (source, want) in [
            ("self.t", 2),
            ("has({'a': 1}.a)", 30),
            ("self.t == self.t", 6),
            ("self.t < self.t", 6),
            ("self.t.contains('abc')", 4),
            ("self.t.matches('abcde')", 8),
            ("self.l.isSorted()", 7),
            ("self.s.max()", 17),
            ("self.t.replace('a', 'bc') == self.t", 10),
            ("self.l.all(x, x > 1)", 28),
            ("self.l.map(x, x + 1)", 83),
            ("lists.range(7)", 18),
            ("self.n in self.l", 9),
            ("sign(quantity('1'))", 2),
        ] {
            let program = Program::parse(source).expect(source);
            let variables = [Variable::new("self", root.kind.clone())];
            let found = check(&program, &variables).map(|checked| checked.max_cost(&root));
            assert_eq!(found, Ok(want), "{source}");
        }
    }
}
