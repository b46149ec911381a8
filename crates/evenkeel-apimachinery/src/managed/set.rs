//! Sets of fields, as `fieldsV1` writes them: a tree of path elements, some of which are owned.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element;

/// A set of fields. An element is a string in the notation of `fieldsV1`: `f:name`, `k:{"name":"a"}`, `v:"x"`, `i:0`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    nodes: BTreeMap<Box<str>, Node>,
}

/// One element: in the set itself, on the way to others, or both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Node {
    owned: bool,
    below: FieldSet,
}

impl Node {
    fn is_empty(&self) -> bool {
        !self.owned && self.below.is_empty()
    }
}

impl FieldSet {
    /// Reads `fieldsV1`. Elements of kinds that are not known are passed over, as upstream does.
    pub(crate) fn parse(fields: &Value) -> Result<Self, String> {
        let Value::Object(entries) = fields else {
            return Err("fieldsV1 must be an object".to_owned());
        };
        let mut set = Self::default();
        for (key, value) in entries.iter().filter(|(k, _)| *k != ".") {
            let Some(key) = element::normalise(key)? else { continue };
            let Value::Object(inner) = value else {
                return Err(format!("{key}: must be an object"));
            };
            let owned = inner.is_empty() || inner.contains_key(".");
            set.put(key, Node { owned, below: Self::parse(value)? });
        }
        Ok(set)
    }

    /// Encodes the set as `fieldsV1` of a managed fields entry.
    pub(crate) fn to_value(&self) -> Value {
        let mut all = Map::new();
        for (key, node) in &self.nodes {
            let mut value = node.below.to_value();
            if let Value::Object(map) = &mut value
                && node.owned
                && !map.is_empty()
            {
                map.insert(".".to_owned(), Value::Object(Map::new()));
            }
            all.insert(key.to_string(), value);
        }
        Value::Object(all)
    }

    /// A set of paths, each of elements.
    pub(crate) fn of(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            set.insert(&path.iter().map(|e| Box::from(*e)).collect::<Vec<_>>());
        }
        set
    }

    /// Whether it has no field.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds a path; the empty path is no field.
    pub(crate) fn insert(&mut self, path: &[Box<str>]) {
        let Some((last, way)) = path.split_last() else { return };
        let mut at = self;
        for step in way {
            at = &mut at.nodes.entry(step.clone()).or_default().below;
        }
        at.nodes.entry(last.clone()).or_default().owned = true;
    }

    /// Whether the path is in the set.
    pub(crate) fn has(&self, path: &[&str]) -> bool {
        match path {
            [] => false,
            [last] => self.owns(last),
            [first, rest @ ..] => self.below(first).is_some_and(|set| set.has(rest)),
        }
    }

    /// Whether the element itself is in the set.
    pub(crate) fn owns(&self, element: &str) -> bool {
        self.nodes.get(element).is_some_and(|n| n.owned)
    }

    /// What is in the set below an element.
    pub(crate) fn below(&self, element: &str) -> Option<&Self> {
        self.nodes.get(element).map(|n| &n.below).filter(|s| !s.is_empty())
    }

    fn put(&mut self, key: Box<str>, node: Node) {
        if !node.is_empty() {
            self.nodes.insert(key, node);
        }
    }

    /// What is in either.
    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.add(other);
        all
    }

    fn add(&mut self, other: &Self) {
        for (key, theirs) in &other.nodes {
            let ours = self.nodes.entry(key.clone()).or_default();
            ours.owned |= theirs.owned;
            ours.below.add(&theirs.below);
        }
    }

    /// What is in both.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let mut both = Self::default();
        for (key, ours) in &self.nodes {
            let Some(theirs) = other.nodes.get(key) else { continue };
            let node = Node {
                owned: ours.owned && theirs.owned,
                below: ours.below.intersection(&theirs.below),
            };
            both.put(key.clone(), node);
        }
        both
    }

    /// What is in this set alone.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        let mut rest = Self::default();
        for (key, ours) in &self.nodes {
            let node = match other.nodes.get(key) {
                None => ours.clone(),
                Some(theirs) => Node {
                    owned: ours.owned && !theirs.owned,
                    below: ours.below.difference(&theirs.below),
                },
            };
            rest.put(key.clone(), node);
        }
        rest
    }

    /// What is in this set and neither in the other nor below a field of the other.
    pub(crate) fn outside(&self, other: &Self) -> Self {
        let mut rest = Self::default();
        for (key, ours) in &self.nodes {
            let node = match other.nodes.get(key) {
                None => ours.clone(),
                Some(theirs) if theirs.owned => continue,
                Some(theirs) => {
                    Node { owned: ours.owned, below: ours.below.outside(&theirs.below) }
                }
            };
            rest.put(key.clone(), node);
        }
        rest
    }

    /// The same set, with elements on the way to others in it as well where `named` says so; `named` gives the state for what is below.
    pub(crate) fn with_ways<S: Copy>(
        &self,
        state: S,
        named: &impl Fn(S, &str) -> (bool, S),
    ) -> Self {
        let nodes = self.nodes.iter().map(|(key, node)| {
            let (is_named, next) = named(state, key);
            let owned = node.owned || (is_named && !node.below.is_empty());
            (key.clone(), Node { owned, below: node.below.with_ways(next, named) })
        });
        Self { nodes: nodes.collect() }
    }

    /// Calls `each` with every path of the set.
    pub(crate) fn for_each(&self, each: &mut impl FnMut(&[&str])) {
        self.walk(&mut Vec::new(), each);
    }

    fn walk<'s>(&'s self, path: &mut Vec<&'s str>, each: &mut impl FnMut(&[&str])) {
        for (key, node) in &self.nodes {
            path.push(key);
            if node.owned {
                each(path);
            }
            node.below.walk(path, each);
            path.pop();
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_and_writes_fields_v1() {
        let fields = json!({"f:data": {".": {}, "f:k": {}}, "f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}});
        let set = FieldSet::parse(&fields).expect("valid");
        assert_eq!(set.to_value(), fields);
        assert!(set.has(&["f:data"]) && set.has(&["f:data", "f:k"]) && !set.has(&["f:spec"]));
        assert!(FieldSet::parse(&json!({"x:what": {}})).is_ok_and(|s| s.is_empty()));
        assert!(FieldSet::parse(&json!({"k:nope": {}})).is_err());
        assert!(FieldSet::parse(&json!({"nocolon": {}})).is_err());
    }

    pub(crate) fn any_set() -> impl Strategy<Value = FieldSet> {
        let path = prop::collection::vec(prop_oneof![Just("f:a"), Just("f:b"), Just("v:1")], 1..4);
        prop::collection::vec(path, 0..6).prop_map(|paths| {
            let paths: Vec<&[&str]> = paths.iter().map(Vec::as_slice).collect();
            FieldSet::of(&paths)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn obeys_the_laws_of_sets(a in any_set(), b in any_set(), c in any_set()) {
            prop_assert_eq!(a.union(&b), b.union(&a));
            prop_assert_eq!(a.union(&b).union(&c), a.union(&b.union(&c)));
            prop_assert_eq!(a.intersection(&b), b.intersection(&a));
            prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
            prop_assert!(a.difference(&b).intersection(&b).is_empty());
            prop_assert_eq!(a.union(&b).difference(&b), a.difference(&b));
            prop_assert_eq!(a.outside(&b).difference(&a), FieldSet::default());
            prop_assert!(a.outside(&a).is_empty() && a.difference(&a).is_empty());
            prop_assert_eq!(FieldSet::parse(&a.to_value()), Ok(a));
        }
    }
}
