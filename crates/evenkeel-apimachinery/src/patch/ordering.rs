//! The order of a merged list: as the patch has it, with what only the server has in between.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::go_text::go;
use super::strategic::Refused;
use crate::value;

/// How elements of a list are told apart: by a field of theirs, or by value.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListOf<'a> {
    pub key: Option<&'a str>,
}

impl ListOf<'_> {
    fn id<'v>(&self, element: &'v Value) -> Option<&'v Value> {
        match self.key {
            Some(key) => element.get(key),
            None => Some(element),
        }
    }

    /// Where each element first is, so that long lists are not searched once for every element.
    pub(super) fn positions(&self, list: &[Value]) -> Positions {
        let mut first = HashMap::with_capacity(list.len());
        for (at, element) in list.iter().enumerate() {
            first.entry(self.id(element).map(Value::to_string)).or_insert(at);
        }
        Positions(first)
    }

    fn require(&self, list: &[Value]) -> Result<(), Refused> {
        let Some(key) = self.key else { return Ok(()) };
        match list.iter().find(|v| v.get(key).is_none()) {
            None => Ok(()),
            Some(Value::Object(_)) => Err(list
                .iter()
                .find(|v| v.get(key).is_none())
                .map_or(Refused::Unprocessable, |v| no_key(v, key))),
            Some(other) => {
                let kind = go_type(other);
                Err(Refused::Internal(format!(
                    "expected a map[string]interface {{}}, but received a {kind}"
                )))
            }
        }
    }
}

/// Positions of a list's elements, by their ids as JSON.
#[derive(Debug, Default)]
pub(super) struct Positions(HashMap<Option<String>, usize>);

impl Positions {
    /// Where an element with the same id first is.
    pub(super) fn of(&self, of: ListOf<'_>, element: &Value) -> Option<usize> {
        self.0.get(&of.id(element).map(Value::to_string)).copied()
    }

    /// Adds an element whose id is new.
    pub(super) fn add(&mut self, of: ListOf<'_>, element: &Value, at: usize) {
        self.0.insert(of.id(element).map(Value::to_string), at);
    }
}

/// An element of a keyed list without the key.
pub(super) fn no_key(element: &Value, key: &str) -> Refused {
    Refused::Internal(format!("map: {} does not contain declared merge key: {key}", go(element)))
}

/// Go's name for the type of an untyped value; of null, what Go prints for a nil type.
pub(super) fn go_type(value: &Value) -> &'static str {
    value::go_type(value).unwrap_or("%!s(<nil>)")
}

/// Whether two lists are of objects; lists of lists and mixed lists cannot be merged.
pub(super) fn of_objects(before: &[Value], patch: &[Value]) -> Result<bool, Refused> {
    let mut kinds = before.iter().chain(patch).map(go_type);
    let first = kinds.next();
    if first == Some("[]interface {}") {
        return Err(Refused::Unprocessable);
    }
    if kinds.any(|kind| Some(kind) != first) {
        let lists = go(&Value::Array(vec![before.to_vec().into(), patch.to_vec().into()]));
        return Err(Refused::Internal(format!("list element types are not identical: {lists}")));
    }
    Ok(first == Some("map[string]interface {}"))
}

/// Each value once, where it first is.
pub(super) fn without_repeats(list: Vec<Value>) -> Vec<Value> {
    let mut seen = HashSet::with_capacity(list.len());
    list.into_iter().filter(|value| seen.insert(value.to_string())).collect()
}

/// The values of a list as JSON, to look values up in.
pub(super) fn texts(list: &[Value]) -> HashSet<String> {
    list.iter().map(Value::to_string).collect()
}

/// Sorts the elements that `order` names as it has them, the others as the server had them, and weaves both together:
/// before an element that the patch names comes every other that the server had before it.
pub(super) fn arrange(
    merged: Vec<Value>,
    order: &[Value],
    server: &[Value],
    of: ListOf<'_>,
) -> Result<Vec<Value>, Refused> {
    of.require(&merged)?;
    of.require(order)?;
    let (order, server) = (of.positions(order), of.positions(server));
    let (mut named, mut others): (Vec<_>, Vec<_>) =
        merged.into_iter().partition(|v| order.of(of, v).is_some());
    named.sort_by_cached_key(|v| order.of(of, v));
    others.sort_by_cached_key(|v| server.of(of, v));
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    let mut all = Vec::new();
    while let (Some(other), Some(name)) = (others.peek(), named.peek()) {
        let before = match (server.of(of, other), server.of(of, name)) {
            (Some(o), Some(n)) => o < n,
            _ => false,
        };
        all.extend(if before { others.next() } else { named.next() });
    }
    all.extend(others);
    all.extend(named);
    Ok(all)
}

/// The patch's own list must be in the order that its `$setElementOrder` states.
pub(super) fn check_order(patch: &[Value], order: &[Value], of: ListOf<'_>) -> Result<(), Refused> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for element in patch.iter().filter(|v| v.get("$patch").is_none()) {
        if !rest.any(|v| of.id(v) == of.id(element)) {
            let (patch, order) = (go(&patch.to_vec().into()), go(&order.to_vec().into()));
            let text = format!(
                "The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n"
            );
            return Err(Refused::Internal(text));
        }
    }
    Ok(())
}
