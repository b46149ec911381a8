//! Functions of lists and sets.

use std::cmp::Ordering;

use super::Outcome;
use crate::expand::SORT_BY_KEYS;
use crate::value::Val;

/// Returns the values of a list's optional elements, without absent elements.
///
/// Upstream: `optUnwrap` of cel-go's `cel`.
pub(super) fn unwrap_optionals<'a>(list: &Val<'a>) -> Outcome<'a> {
    let mut present = Vec::new();
    for item in list.elements() {
        match item {
            Val::Optional(Some(value)) => present.push((*value).clone()),
            Val::Optional(None) => {}
            other => return Err(format!("value {} is not optional", other.shown())),
        }
    }
    Ok(Val::list(present))
}

pub(super) fn member<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    let (target, rest) = args.split_first()?;
    let items = target.items()?;
    Some(match (name, rest) {
        ("isSorted", []) => Ok(Val::Bool(
            items.windows(2).all(|pair| pair[0].compare(&pair[1]) != Some(Ordering::Greater)),
        )),
        ("sum", []) => sum(&items),
        ("unwrapOpt", []) => unwrap_optionals(target),
        ("min", []) => extreme(items, Ordering::Less, "min"),
        ("max", []) => extreme(items, Ordering::Greater, "max"),
        ("indexOf", [item]) => index_or_minus_one(items.iter().position(|i| i.equals(item))),
        ("lastIndexOf", [item]) => index_or_minus_one(items.iter().rposition(|i| i.equals(item))),
        ("contains" | "includes", [item]) => Ok(Val::Bool(items.iter().any(|i| i.equals(item)))),
        ("first", []) => Ok(items.first().cloned().map_or(Val::Optional(None), Val::some)),
        ("last", []) => Ok(items.last().cloned().map_or(Val::Optional(None), Val::some)),
        ("reverse", []) => Ok(Val::list(items.into_iter().rev().collect())),
        ("sort", []) => sort_by_keys(items.into_iter().map(|item| (item.clone(), item)).collect()),
        (SORT_BY_KEYS, [keys]) => match keys.items() {
            Some(keys) => sort_by_keys(keys.into_iter().zip(items).collect()),
            None => Err("no such overload".to_owned()),
        },
        ("distinct", []) => {
            let mut unique: Vec<Val<'a>> = Vec::with_capacity(items.len());
            for item in items {
                if !unique.iter().any(|other| other.equals(&item)) {
                    unique.push(item);
                }
            }
            Ok(Val::list(unique))
        }
        ("slice", [Val::Int(from), Val::Int(to)]) => slice(&items, *from, *to),
        ("flatten", []) => Ok(Val::list(flattened(target, 1))),
        ("flatten", [Val::Int(depth)]) => match u64::try_from(*depth) {
            Ok(depth) => Ok(Val::list(flattened(target, depth))),
            Err(_) => Err("level must be non-negative".to_owned()),
        },
        ("join", []) => join(&items, ""),
        ("join", [Val::Str(separator)]) => join(&items, separator),
        _ => return None,
    })
}

fn slice<'a>(items: &[Val<'a>], from: i64, to: i64) -> Outcome<'a> {
    let cannot = |why: String| Err(format!("cannot slice({from}, {to}), {why}"));
    let (Ok(first), Ok(end)) = (usize::try_from(from), usize::try_from(to)) else {
        return cannot("negative indexes not supported".to_owned());
    };
    if first > end {
        return cannot("start index must be less than or equal to end index".to_owned());
    }
    match items.get(first..end) {
        Some(part) => Ok(Val::list(part.to_vec())),
        None => cannot(format!("list is length {}", items.len())),
    }
}

/// Returns the elements of a list, with nested lists down to a depth replaced by their elements.
fn flattened<'a>(list: &Val<'a>, depth: u64) -> Vec<Val<'a>> {
    let mut elements = Vec::new();
    for item in list.elements() {
        if depth > 0 && item.list_len().is_some() {
            elements.extend(flattened(&item, depth - 1));
        } else {
            elements.push(item);
        }
    }
    elements
}

/// Sorts pairs of a key and a value by the keys, which must be of one type. Returns the values.
///
/// Upstream: `sortListByAssociatedKeys`.
fn sort_by_keys<'a>(mut keyed: Vec<(Val<'a>, Val<'a>)>) -> Outcome<'a> {
    if let Some((first, _)) = keyed.first() {
        // NaN has no order, but its type has.
        let is_double = matches!(first, Val::Double(_));
        if !is_double && first.compare(first).is_none() {
            return Err("list elements must be comparable".to_owned());
        }
        let kind = first.type_name();
        if keyed.iter().any(|(key, _)| key.type_name() != kind) {
            return Err("list elements must have the same type".to_owned());
        }
    }
    keyed.sort_by(|(a, _), (b, _)| order(a, b));
    Ok(Val::list(keyed.into_iter().map(|(_, item)| item).collect()))
}

/// Orders two values. NaN is ordered after all other values, so that the order is total.
fn order(a: &Val<'_>, b: &Val<'_>) -> Ordering {
    let is_ordered = |value: &Val<'_>| value.compare(value).is_some();
    a.compare(b).unwrap_or_else(|| is_ordered(b).cmp(&is_ordered(a)))
}

fn join<'a>(items: &[Val<'a>], separator: &str) -> Outcome<'a> {
    let mut texts: Vec<&str> = Vec::with_capacity(items.len());
    for item in items {
        let Val::Str(text) = item else { return Err("no such overload".to_owned()) };
        texts.push(text);
    }
    Ok(Val::str(texts.join(separator)))
}

fn index_or_minus_one<'a>(index: Option<usize>) -> Outcome<'a> {
    Ok(Val::Int(index.map_or(-1, |index| index as i64)))
}

fn sum<'a>(items: &[Val<'a>]) -> Outcome<'a> {
    let mut total: Option<Val<'a>> = None;
    for item in items {
        total = Some(match total {
            None => item.clone(),
            Some(total) => crate::call::add(&total, item)?,
        });
    }
    Ok(total.unwrap_or(Val::Int(0)))
}

/// Returns the least value if `direction` is `Less`, the greatest if it is `Greater`.
fn extreme<'a>(items: Vec<Val<'a>>, direction: Ordering, name: &str) -> Outcome<'a> {
    let mut best: Option<Val<'a>> = None;
    for item in items {
        match &best {
            Some(best) if item.compare(best) != Some(direction) => {}
            _ => best = Some(item),
        }
    }
    best.ok_or_else(|| format!("{name} called on empty list"))
}

/// Maximum number of elements of `lists.range`. Upstream: `ListsMaxRangeSize`.
pub(crate) const MAX_RANGE: i64 = 1_000_000;

fn range<'a>(n: i64) -> Outcome<'a> {
    if n < 0 {
        return Err(format!("lists.range: size must be non-negative, got {n}"));
    }
    if n > MAX_RANGE {
        return Err(format!("lists.range: size {n} exceeds maximum allowed ({MAX_RANGE})"));
    }
    Ok(Val::list((0..n).map(Val::Int).collect()))
}

pub(super) fn global<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    match (name, args) {
        ("math.greatest" | "math.least", args) => {
            let items = match args {
                [list] => list.items()?,
                numbers => numbers.to_vec(),
            };
            let direction = match name {
                "math.greatest" => Ordering::Greater,
                _ => Ordering::Less,
            };
            return Some(extreme(items, direction, name));
        }
        ("lists.range", [Val::Int(n)]) => {
            return Some(range(*n));
        }
        _ => {}
    }
    let [a, b] = args else { return None };
    let contains =
        |list: &[Val<'a>], item: &Val<'a>| list.iter().any(|element| element.equals(item));
    let contains_all = |a: &[Val<'a>], b: &[Val<'a>]| b.iter().all(|item| contains(a, item));
    match name {
        "sets.contains" => Some(Ok(Val::Bool(contains_all(&a.items()?, &b.items()?)))),
        "sets.intersects" => {
            let (a, b) = (a.items()?, b.items()?);
            Some(Ok(Val::Bool(b.iter().any(|item| contains(&a, item)))))
        }
        "sets.equivalent" => {
            let (a, b) = (a.items()?, b.items()?);
            Some(Ok(Val::Bool(contains_all(&a, &b) && contains_all(&b, &a))))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::assert_results;

    #[test]
    fn integers_are_compared_exactly() {
        assert_results(&[
            ("9007199254740993 == 9007199254740992", "false"),
            ("9007199254740993u == 9007199254740992", "false"),
            ("9007199254740993 == 9007199254740993u", "true"),
            // A double is compared as a double.
            ("9007199254740993 == 9007199254740992.0", "true"),
            ("18446744073709551615u == -1", "false"),
            ("18446744073709551615u > -1 && 9007199254740992u < 9007199254740993", "true"),
            ("9223372036854775807 < 9223372036854775808.0", "false"),
            ("0.0 / 0.0 == 0.0 / 0.0", "false"),
            ("0.0 / 0.0 < 1.0", "error: NaN values cannot be ordered"),
            ("9007199254740993 in [9007199254740992]", "false"),
            ("9007199254740993 in {9007199254740992: 1}", "false"),
            ("[9007199254740993].indexOf(9007199254740992)", "-1"),
            ("[9007199254740993, 9007199254740992].distinct().size()", "2"),
            ("sets.contains([9007199254740993], [9007199254740992])", "false"),
            ("{9007199254740993: 1, 9007199254740992: 2}.size()", "2"),
            ("{1: 1, 1u: 2}", "error: Failed with repeated key: 1"),
            ("[{1: 1}[1.0], {1u: 1}[1], [5, 6][1.0], [5, 6][1u]]", "[1,1,6,6]"),
            ("[1, 2][1.5]", "error: unsupported index value 1.5 in list"),
            ("[1, 2]['a']", "error: unsupported index type 'string' in list"),
            (
                "[1, 2][18446744073709551615u]",
                "error: unsupported index value 18446744073709551615 in list",
            ),
        ]);
    }

    #[test]
    fn lists_are_made_as_upstream_makes_them() {
        assert_results(&[
            ("lists.range(3)", "[0,1,2]"),
            ("lists.range(-1)", "error: lists.range: size must be non-negative, got -1"),
            ("[1, 2, 3].slice(1, 2)", "[2]"),
            (
                "[1, 2, 3].slice(2, 1)",
                "error: cannot slice(2, 1), start index must be less than or equal to end index",
            ),
            (
                "[1, 2, 3].slice(-1, 1)",
                "error: cannot slice(-1, 1), negative indexes not supported",
            ),
            ("[1, 2, 3].slice(1, 4)", "error: cannot slice(1, 4), list is length 3"),
            ("[1, [2, [3, [4]]]].flatten()", "[1,2,[3,[4]]]"),
            ("[1, [2, [3, [4]]]].flatten(2)", "[1,2,3,[4]]"),
            ("[1, [2, [3, [4]]]].flatten(0)", "[1,[2,[3,[4]]]]"),
            ("[1, [2]].flatten(-1)", "error: level must be non-negative"),
            (
                "[3, 1, 2].sort() == [3, 1, 2].sortBy(x, x) && [3, 1, 2].sortBy(x, -x)[0] == 3",
                "true",
            ),
            ("optional.unwrap([optional.of(1), optional.none(), optional.of(2)])", "[1,2]"),
            ("[optional.none()].unwrapOpt()", "[]"),
            ("[optional.of('a')].unwrapOpt() + ['b']", r#"["a","b"]"#),
            ("[1].unwrapOpt()", "error: value 1 is not optional"),
            ("[3, 'a'].sort()", "error: list elements must have the same type"),
            ("[[1], [2]].sort()", "error: list elements must be comparable"),
            ("[1.0, 0.0 / 0.0, -1.0].sort().slice(0, 2)", "[-1.0,1.0]"),
            ("[1, 2].includes(2) && ![1, 2].includes(3) && 1.includes(1u)", "true"),
        ]);
    }
}
