//! Estimates of the cost of a call, and of the size of its result.
//!
//! Upstream: `EstimateCallCost` of `cel/library/cost.go`, and the estimators of cel-go's `checker` and `ext`.

use cel::common::ast::{Expr, LiteralValue, operators as op};
use cel::parser::Expression;

use super::costs::DeclaredPath;
use super::functions::{FORMAT, Overload, URL};
use super::range::Range;
use super::{DeclType, Type};
use crate::cost::{AUTHORIZATION_CHECK, LIST_CALL};

/// Cost per character of traversing a string. Upstream: `StringTraversalCostFactor`.
const READ: f64 = 0.1;
/// Cost per character of a regular expression. Upstream: `RegexStringLengthCostFactor`.
const PATTERN: f64 = 0.25;
/// Maximum number of characters in the pattern of a format. Upstream: `MaxNameFormatRegexSize`.
const MAX_FORMAT_PATTERN: f64 = 128.0;
/// Maximum number of characters in the name of a format. Upstream: `MaxFormatSize`.
const MAX_FORMAT_NAME: u64 = 64;
/// Size of an IP address in bytes.
const ADDRESS: Range = Range { min: 4, max: 16 };
/// Maximum number of values of a device's attribute. Upstream: `ResourceSliceMaxAttributeValuesPerDevice`.
const MAX_ATTRIBUTE_VALUES: u64 = 48;

/// Argument of a call, with the results of the type check and of the estimate so far.
pub(super) struct Argument<'c> {
    pub(super) expression: &'c Expression,
    pub(super) kind: &'c Type,
    pub(super) path: DeclaredPath<'c>,
    /// Size of the value; `None` without a known bound.
    pub(super) size: Option<Range>,
}

/// Estimate of the cost and the result of a call.
pub(super) struct CallEstimate {
    /// Cost of the call, without the cost of its arguments.
    pub(super) cost: Range,
    /// Size of the result; `None` if the function does not determine it.
    pub(super) result_size: Option<Range>,
}

impl CallEstimate {
    fn cost(cost: Range) -> Self {
        Self { cost, result_size: None }
    }

    fn with_result(cost: Range, result_size: Range) -> Self {
        Self { cost, result_size: Some(result_size) }
    }

    /// Returns the estimate of a call that creates a list of this size, at a cost of `factor` for each element.
    fn new_list(size: Range, factor: f64) -> Self {
        Self::with_result(size.scaled(factor).plus(Range::fixed(LIST_CALL)), size)
    }
}

impl Argument<'_> {
    pub(super) fn size_or_unknown(&self) -> Range {
        self.size.unwrap_or(Range::UNKNOWN)
    }

    /// Returns the value of a literal of type `int`; `None` for other expressions.
    fn int_literal(&self) -> Option<i64> {
        match &self.expression.expr {
            Expr::Literal(LiteralValue::Int(number)) => Some(*number.inner()),
            _ => None,
        }
    }

    /// Returns the value of a literal of type `int`, 0 if it is negative; `default` for other expressions.
    ///
    /// Upstream: `nodeAsUintValue`.
    fn count_or(&self, default: u64) -> u64 {
        self.int_literal().map_or(default, |number| u64::try_from(number).unwrap_or(0))
    }
}

/// Call of one overload, whose cost is to be estimated.
pub(super) struct Estimate<'e, 'c> {
    /// Name of the function, with its namespace.
    pub(super) name: &'e str,
    pub(super) overload: &'static Overload,
    pub(super) target: Option<&'e Argument<'c>>,
    pub(super) args: &'e [Argument<'c>],
}

impl Estimate<'_, '_> {
    /// Estimates the call. A function without an estimator costs 1.
    pub(super) fn cost(&self) -> CallEstimate {
        self.estimate_lists()
            .or_else(|| self.estimate_libraries())
            .or_else(|| self.estimate_standard())
            .unwrap_or(CallEstimate::cost(Range::fixed(1)))
    }

    fn size(&self, index: usize) -> Range {
        self.args.get(index).map_or(Range::UNKNOWN, Argument::size_or_unknown)
    }

    fn target_size(&self) -> Range {
        self.target.map_or(Range::UNKNOWN, Argument::size_or_unknown)
    }

    /// Returns whether the overload takes a string as this argument, rather than a parsed value such as an IP address.
    fn takes_string(&self, index: usize) -> bool {
        self.overload.args.get(index) == Some(&Type::Str)
    }

    /// Estimates a call of a list or set function; `None` for other functions.
    ///
    /// Upstream: the estimators of `ext/lists.go` and `ext/sets.go`.
    fn estimate_lists(&self) -> Option<CallEstimate> {
        let target_size = self.target_size();
        Some(match (self.name, self.target, self.args) {
            ("slice", Some(_), [from, to]) => {
                let (from, to) = (from.count_or(0), to.count_or(target_size.max));
                // The subtraction wraps as upstream's does, so that an invalid slice gets the maximum cost.
                CallEstimate::new_list(Range::fixed(to.wrapping_sub(from)), 1.0)
            }
            ("lists.range", None, [count]) => {
                CallEstimate::new_list(Range::fixed(count.count_or(u64::MAX)), 1.0)
            }
            ("reverse" | "flatten", Some(_), []) => CallEstimate::new_list(target_size, 1.0),
            ("flatten", Some(_), [depth]) => {
                CallEstimate::new_list(target_size, depth.count_or(u64::MAX) as f64)
            }
            ("distinct", Some(_), []) => {
                CallEstimate::new_list(target_size.times(target_size), 2.0)
            }
            ("sort", Some(_), []) => {
                CallEstimate::new_list(target_size.times(target_size), self.comparison_cost(0))
            }
            ("@sortByAssociatedKeys", Some(_), [keys]) => {
                let size = keys.size_or_unknown();
                CallEstimate::new_list(size.times(size), self.comparison_cost(1))
            }
            ("sets.contains" | "sets.intersects" | "sets.equivalent", _, [_, _]) => {
                let factor = if self.name == "sets.equivalent" { 2.0 } else { 1.0 };
                let cost = self.size(0).times(self.size(1)).scaled(factor);
                CallEstimate::cost(cost.plus(Range::fixed(1)))
            }
            _ => return None,
        })
    }

    /// Returns the cost of comparing two elements of the list that the overload takes as this argument.
    fn comparison_cost(&self, list: usize) -> f64 {
        match self.overload.args.get(list) {
            Some(Type::List(element)) if matches!(**element, Type::Str | Type::Bytes) => 2.0 + READ,
            _ => 2.0,
        }
    }

    /// Estimates a call of a function of Kubernetes' CEL libraries; `None` for other functions.
    ///
    /// Upstream: `EstimateCallCost`.
    fn estimate_libraries(&self) -> Option<CallEstimate> {
        let target_size = self.target_size();
        let first_size = self.size(0);
        Some(match self.name {
            "check" => CallEstimate::cost(Range::fixed(AUTHORIZATION_CHECK)),
            "fieldSelector" | "labelSelector" => {
                // Each second character may begin a requirement, whose cost is 50. The list costs 10.
                let requirements = first_size.scaled(0.5).scaled(50.0);
                let cost = Range::fixed(10).plus(first_size.scaled(READ)).plus(requirements);
                CallEstimate::cost(cost)
            }
            "includes" => CallEstimate::cost(Range::new(0, MAX_ATTRIBUTE_VALUES)),
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
                CallEstimate::cost(self.traversal_cost(self.target?))
            }
            "url" | "jsonpatch.escapeKey" => {
                CallEstimate::with_result(first_size.scaled(READ), first_size)
            }
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                CallEstimate::with_result(target_size.scaled(READ), target_size)
            }
            "replace" => {
                CallEstimate::with_result(target_size.scaled(2.0 * READ), self.size_of_replace())
            }
            "split" => {
                let limit = self.args.get(1).and_then(Argument::int_literal);
                // The cast of a negative limit makes it the maximum, as it means no limit.
                let max = limit.map_or(target_size.max, |limit| limit as u64);
                CallEstimate::with_result(target_size.scaled(2.0 * READ), Range::new(0, max))
            }
            "join" => {
                let size = self.size_of_join();
                CallEstimate::with_result(size.scaled(READ), size)
            }
            "find" | "findAll" => {
                let cost = search_cost(target_size, first_size);
                CallEstimate::with_result(cost, Range::new(0, target_size.max))
            }
            // The method of a CIDR.
            "ip" if !self.takes_string(0) => CallEstimate::cost(Range::fixed(1)),
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver"
            | "isSemver" => CallEstimate::cost(first_size.scaled(READ)),
            "ip.isCanonical" => CallEstimate::cost(first_size.scaled(2.0 * READ)),
            "containsIP" | "containsCIDR" => {
                let mut cost = ADDRESS.plus(ADDRESS).scaled(READ);
                if self.name == "containsCIDR" {
                    cost = cost.plus(ADDRESS.scaled(READ)).plus(Range::fixed(1));
                }
                if self.takes_string(1) {
                    cost = cost.plus(first_size.scaled(READ));
                }
                CallEstimate::cost(cost)
            }
            "validate" => {
                let cost = first_size.scaled(READ).scaled(MAX_FORMAT_PATTERN * PATTERN);
                CallEstimate::cost(cost)
            }
            op::EQUALS => CallEstimate::cost(self.library_equality_cost()?),
            _ => return None,
        })
    }

    /// Returns the cost of comparing two values of one library type; `None` for values of other types.
    fn library_equality_cost(&self) -> Option<Range> {
        let [a, b] = self.args else { return None };
        if a.kind != b.kind {
            return None;
        }
        match a.kind {
            Type::Library(FORMAT) => Some(Range::new(1, MAX_FORMAT_NAME).scaled(READ)),
            Type::Library(URL) => {
                let max = b.size.map_or(1, |size| size.max);
                Some(Range::new(1, max).scaled(READ))
            }
            Type::Library(_) => Some(Range::fixed(1)),
            _ => None,
        }
    }

    /// Estimates a call of a standard function or operator; `None` for other functions.
    ///
    /// Upstream: `functionCost` of cel-go.
    fn estimate_standard(&self) -> Option<CallEstimate> {
        let takes = |index: usize| self.overload.args.get(index);
        let first_is_text = matches!(takes(0), Some(Type::Str | Type::Bytes));
        let target_size = self.target_size();
        let first_size = self.size(0);
        Some(match (self.name, self.target, self.args) {
            ("format", Some(_), _) => CallEstimate::cost(target_size.scaled(READ)),
            ("bytes", None, [_]) if self.takes_string(0) => {
                // A character has up to 4 bytes.
                let result = Range::new(first_size.min, first_size.max.wrapping_mul(4));
                CallEstimate::with_result(first_size.scaled(READ), result)
            }
            ("string", None, [_]) if takes(0) == Some(&Type::Bytes) => {
                let result = Range::new(first_size.min / 4, first_size.max);
                CallEstimate::with_result(first_size.scaled(READ), result)
            }
            ("strings.quote", None, [_]) => {
                // Two quotes, and a backslash before each character.
                let min = first_size.min.wrapping_add(2);
                let max = first_size.max.wrapping_mul(2).wrapping_add(2);
                CallEstimate::with_result(first_size.scaled(READ), Range::new(min, max))
            }
            ("startsWith" | "endsWith", Some(_), [_]) => {
                CallEstimate::cost(first_size.scaled(READ))
            }
            (op::IN, None, [_, _]) if matches!(takes(1), Some(Type::List(_))) => {
                CallEstimate::cost(self.size(1))
            }
            ("matches", Some(_), [_]) => CallEstimate::cost(search_cost(target_size, first_size)),
            ("matches", None, [text, _]) => {
                CallEstimate::cost(search_cost(text.size_or_unknown(), self.size(1)))
            }
            ("contains", Some(_), [_]) => {
                CallEstimate::cost(target_size.scaled(READ).times(first_size.scaled(READ)))
            }
            (op::ADD, None, [_, _]) => {
                let size = first_size.plus(self.size(1));
                match takes(0) {
                    Some(Type::List(_)) => CallEstimate::with_result(Range::fixed(1), size),
                    _ if first_is_text => CallEstimate::with_result(size.scaled(READ), size),
                    _ => return None,
                }
            }
            (op::EQUALS | op::NOT_EQUALS, None, [_, _]) => CallEstimate::cost(self.comparison()),
            (op::LESS | op::LESS_EQUALS | op::GREATER | op::GREATER_EQUALS, None, [_, _])
                if first_is_text =>
            {
                CallEstimate::cost(self.comparison())
            }
            _ => return None,
        })
    }

    /// Returns the cost of comparing two arguments: at most all characters of the shorter one.
    fn comparison(&self) -> Range {
        let max = self.size(0).max.min(self.size(1).max);
        Range::new(u64::from(max > 0), max).scaled(READ)
    }

    /// Returns the type and the declared size of a list's elements; `None` for strings.
    fn element(&self, list: &Argument<'_>) -> Option<(Type, Range)> {
        let kind = list.kind.parameters()[0]?.clone();
        let size = list.path.then(DeclType::element).declared_size();
        Some((kind, size.unwrap_or(Range::UNKNOWN)))
    }

    /// Returns the cost of comparing each element of a list, or each character of a string.
    fn traversal_cost(&self, target: &Argument<'_>) -> Range {
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
    fn size_of_replace(&self) -> Range {
        let (size, from, to) = (self.target_size(), self.size(0), self.size(1));
        let occurrences = |size: u64, from: u64| (size as f64 / from as f64).ceil() as u64;
        // An empty string occurs before each character and at the end. A replacement that does not make the string
        // longer (for the maximum) or shorter (for the minimum) does not count: the string keeps its size.
        let (max_replaced, max_kept) = match from.min {
            0 => (size.max.saturating_add(1), size.max),
            from if to.max <= from => (0, size.max),
            from => (occurrences(size.max, from), 0),
        };
        let (min_replaced, min_kept) = match from.max {
            0 => (size.min.saturating_add(1), size.min),
            from if from <= to.min => (0, size.min),
            from => (occurrences(size.min, from), 0),
        };
        Range::new(min_replaced, max_replaced).times(to).plus(Range::new(min_kept, max_kept))
    }

    /// Returns the size of the result of `join`.
    fn size_of_join(&self) -> Range {
        let Some(target) = self.target else { return Range::UNKNOWN };
        let list = target.size_or_unknown();
        let texts = self.element(target).map_or(Range::fixed(0), |(_, size)| list.times(size));
        if self.args.is_empty() {
            return texts;
        }
        let separators = Range::new(list.min.saturating_sub(1), list.max.saturating_sub(1));
        texts.plus(self.size(0).times(separators))
    }
}

/// Returns the cost of searching a string of this size for a pattern. An empty string costs as much as one character.
fn search_cost(text: Range, pattern: Range) -> Range {
    text.plus(Range::fixed(1)).scaled(READ).times(pattern.scaled(PATTERN))
}

#[cfg(test)]
mod tests {
    use super::super::{Variable, check};
    use super::*;
    use crate::Program;

    /// Estimates that upstream has for these expressions: `t` has at most 20 characters, `l` and `s` 5 elements.
    #[test]
    fn estimates_are_upstreams() {
        let text = || DeclType::of(Type::Str).with_max_size(20);
        let root = DeclType::object(
            Some("root"),
            [
                ("t", text()),
                ("n", DeclType::of(Type::Int)),
                ("l", DeclType::list(DeclType::of(Type::Int), 5)),
                ("s", DeclType::list(text(), 5)),
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
