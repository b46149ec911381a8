//! Functions of lists and sets.

use std::cmp::Ordering;

use super::Outcome;
use crate::value::Val;

pub(super) fn member<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    let (target, rest) = args.split_first()?;
    let items = target.items()?;
    Some(match (name, rest) {
        ("isSorted", []) => Ok(Val::Bool(
            items.windows(2).all(|pair| pair[0].compare(&pair[1]) != Some(Ordering::Greater)),
        )),
        ("sum", []) => sum(&items),
        ("min", []) => extreme(items, Ordering::Less, "min"),
        ("max", []) => extreme(items, Ordering::Greater, "max"),
        ("indexOf", [item]) => place(items.iter().position(|i| i.equals(item))),
        ("lastIndexOf", [item]) => place(items.iter().rposition(|i| i.equals(item))),
        ("contains", [item]) => Ok(Val::Bool(items.iter().any(|i| i.equals(item)))),
        ("first", []) => Ok(items.first().cloned().map_or(Val::Optional(None), Val::some)),
        ("last", []) => Ok(items.last().cloned().map_or(Val::Optional(None), Val::some)),
        ("reverse", []) => Ok(Val::list(items.into_iter().rev().collect())),
        ("sort", []) => {
            let mut items = items;
            items.sort_by(|a, b| a.compare(b).unwrap_or(Ordering::Equal));
            Ok(Val::list(items))
        }
        ("distinct", []) => {
            let mut unique: Vec<Val<'a>> = Vec::with_capacity(items.len());
            for item in items {
                if !unique.iter().any(|u| u.equals(&item)) {
                    unique.push(item);
                }
            }
            Ok(Val::list(unique))
        }
        ("slice", [Val::Int(from), Val::Int(to)]) => {
            let range = usize::try_from(*from).ok().zip(usize::try_from(*to).ok());
            range
                .and_then(|(from, to)| items.get(from..to))
                .map(|part| Val::list(part.to_vec()))
                .ok_or_else(|| {
                    format!("cannot slice({from}, {to}), list is length {}", items.len())
                })
        }
        ("flatten", []) => Ok(Val::list(
            items.into_iter().flat_map(|i| i.items().unwrap_or_else(|| vec![i])).collect(),
        )),
        ("join", []) => join(&items, ""),
        ("join", [Val::Str(between)]) => join(&items, between),
        _ => return None,
    })
}

fn join<'a>(items: &[Val<'a>], between: &str) -> Outcome<'a> {
    let texts: Option<Vec<&str>> = items
        .iter()
        .map(|item| match item {
            Val::Str(text) => Some(&**text),
            _ => None,
        })
        .collect();
    texts.map(|t| Val::str(t.join(between))).ok_or_else(|| "no such overload".to_owned())
}

fn place<'a>(at: Option<usize>) -> Outcome<'a> {
    Ok(Val::Int(at.map_or(-1, |at| at as i64)))
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

fn extreme<'a>(items: Vec<Val<'a>>, wanted: Ordering, name: &str) -> Outcome<'a> {
    let mut found: Option<Val<'a>> = None;
    for item in items {
        match &found {
            Some(best) if item.compare(best) != Some(wanted) => {}
            _ => found = Some(item),
        }
    }
    found.ok_or_else(|| format!("{name} called on empty list"))
}

pub(super) fn global<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    match (name, args) {
        ("math.greatest" | "math.least", args) => {
            let items = match args {
                [one] => one.items()?,
                many => many.to_vec(),
            };
            let wanted = if name == "math.greatest" { Ordering::Greater } else { Ordering::Less };
            return Some(extreme(items, wanted, name));
        }
        ("lists.range", [Val::Int(n)]) => {
            return Some(Ok(Val::list((0..*n).map(Val::Int).collect())));
        }
        _ => {}
    }
    let [a, b] = args else { return None };
    let has = |all: &[Val<'a>], item: &Val<'a>| all.iter().any(|i| i.equals(item));
    let within = |a: &[Val<'a>], b: &[Val<'a>]| b.iter().all(|item| has(a, item));
    match name {
        "sets.contains" => Some(Ok(Val::Bool(within(&a.items()?, &b.items()?)))),
        "sets.intersects" => {
            let (a, b) = (a.items()?, b.items()?);
            Some(Ok(Val::Bool(b.iter().any(|item| has(&a, item)))))
        }
        "sets.equivalent" => {
            let (a, b) = (a.items()?, b.items()?);
            Some(Ok(Val::Bool(within(&a, &b) && within(&b, &a))))
        }
        _ => None,
    }
}
