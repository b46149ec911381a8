//! Sets of field paths: trees of path elements, encoded as `fieldsV1`.

use serde_json::{Map, Value};

use super::path_element;

/// A set of field paths. A path element is a string in the notation of `fieldsV1`: `f:name`, `k:{"name":"a"}`,
/// `v:"x"`, `i:0`.
///
/// Upstream: `Set` of `fieldpath`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    /// Sorted by path element, each once. Most sets have few elements at each level, for which a map of nodes would take
    /// several times the memory.
    nodes: Vec<(Box<str>, Node)>,
}

/// Node of one path element, which is a member of the set, a prefix of members, or both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Node {
    /// Whether the path that ends with this element is a member of the set.
    pub(super) is_member: bool,
    /// Members below this element, as paths without it.
    pub(super) children: FieldSet,
}

impl Node {
    /// Returns whether neither the path nor one below it is a member.
    pub(super) fn is_empty(&self) -> bool {
        !self.is_member && self.children.is_empty()
    }
}

impl FieldSet {
    /// Decodes `fieldsV1`. Unknown kinds of path elements are skipped, as upstream does.
    ///
    /// Upstream: `FieldsToSet`.
    pub(crate) fn parse(fields: &Value) -> Result<Self, String> {
        let Value::Object(entries) = fields else {
            return Err("fieldsV1 must be an object".to_owned());
        };
        let mut set = Self { nodes: Vec::with_capacity(entries.len()) };
        for (key, value) in entries.iter().filter(|(k, _)| *k != ".") {
            let Some(key) = path_element::normalize(key)? else { continue };
            let Value::Object(inner) = value else {
                return Err(format!("{key}: must be an object"));
            };
            let is_member = inner.is_empty() || inner.contains_key(".");
            set.put(key, Node { is_member, children: Self::parse(value)? });
        }
        Ok(set)
    }

    /// Encodes the set as `fieldsV1` of a managed fields entry.
    pub(crate) fn to_value(&self) -> Value {
        let mut fields = Map::new();
        for (key, node) in &self.nodes {
            let mut value = node.children.to_value();
            if let Value::Object(map) = &mut value
                && node.is_member
                && !map.is_empty()
            {
                map.insert(".".to_owned(), Value::Object(Map::new()));
            }
            fields.insert(key.to_string(), value);
        }
        Value::Object(fields)
    }

    /// Returns the set of the given paths.
    pub(crate) fn from_paths(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            set.insert(&path.iter().map(|e| Box::from(*e)).collect::<Vec<_>>());
        }
        set
    }

    /// Returns whether the set has no members.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds a path. The empty path is ignored.
    pub(crate) fn insert(&mut self, path: &[Box<str>]) {
        let Some((last, parents)) = path.split_last() else { return };
        let mut set = self;
        for parent in parents {
            set = &mut set.node_or_default(parent).children;
        }
        set.node_or_default(last).is_member = true;
    }

    fn position(&self, element: &str) -> Result<usize, usize> {
        // Sets are mostly built in order.
        match self.nodes.last() {
            Some((last, _)) if **last < *element => Err(self.nodes.len()),
            _ => self.nodes.binary_search_by(|(key, _)| (**key).cmp(element)),
        }
    }

    fn node(&self, element: &str) -> Option<&Node> {
        self.position(element)
            .ok()
            .and_then(|position| self.nodes.get(position))
            .map(|(_, node)| node)
    }

    fn node_or_default(&mut self, element: &str) -> &mut Node {
        let position = self.position(element).unwrap_or_else(|position| {
            self.nodes.insert(position, (element.into(), Node::default()));
            position
        });
        self.nodes.get_mut(position).map(|(_, node)| node).expect("the node is at its position")
    }

    /// Returns whether the path is in the set.
    pub(crate) fn has(&self, path: &[&str]) -> bool {
        match path {
            [] => false,
            [last] => self.has_element(last),
            [first, rest @ ..] => self.with_prefix(first).is_some_and(|set| set.has(rest)),
        }
    }

    /// Returns whether the path with this single element is in the set.
    pub(crate) fn has_element(&self, element: &str) -> bool {
        self.node(element).is_some_and(|n| n.is_member)
    }

    /// Returns the members below a path element, as paths without it.
    ///
    /// Upstream: `WithPrefix`.
    pub(crate) fn with_prefix(&self, element: &str) -> Option<&Self> {
        self.node(element).map(|n| &n.children).filter(|s| !s.is_empty())
    }

    /// Adds a node unless it is empty.
    pub(super) fn put(&mut self, key: Box<str>, node: Node) {
        if node.is_empty() {
            return;
        }
        match self.position(&key) {
            Ok(position) => {
                if let Some((_, known)) = self.nodes.get_mut(position) {
                    *known = node;
                }
            }
            Err(position) => self.nodes.insert(position, (key, node)),
        }
    }

    /// Returns the members of either set.
    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut union = self.clone();
        union.add(other);
        union
    }

    /// Adds the members of another set.
    pub(crate) fn add(&mut self, other: &Self) {
        for (key, other_node) in &other.nodes {
            let node = self.node_or_default(key);
            node.is_member |= other_node.is_member;
            node.children.add(&other_node.children);
        }
    }

    /// Removes the members of another set.
    pub(crate) fn subtract(&mut self, other: &Self) {
        for (key, other_node) in &other.nodes {
            let Ok(position) = self.position(key) else { continue };
            let Some((_, node)) = self.nodes.get_mut(position) else { continue };
            node.is_member &= !other_node.is_member;
            node.children.subtract(&other_node.children);
            if node.is_empty() {
                self.nodes.remove(position);
            }
        }
    }

    /// Returns the members of both sets.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let mut intersection = Self::default();
        for (key, node) in &self.nodes {
            let Some(other_node) = other.node(key) else { continue };
            let node = Node {
                is_member: node.is_member && other_node.is_member,
                children: node.children.intersection(&other_node.children),
            };
            intersection.put(key.clone(), node);
        }
        intersection
    }

    /// Returns the members that the other set lacks.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        let mut difference = self.clone();
        difference.subtract(other);
        difference
    }

    /// Returns the members that are neither members of the other set nor below one.
    ///
    /// Upstream: `RecursiveDifference`.
    pub(crate) fn recursive_difference(&self, other: &Self) -> Self {
        let mut difference = Self::default();
        for (key, node) in &self.nodes {
            let node = match other.node(key) {
                None => node.clone(),
                Some(other_node) if other_node.is_member => continue,
                Some(other_node) => Node {
                    is_member: node.is_member,
                    children: node.children.recursive_difference(&other_node.children),
                },
            };
            difference.put(key.clone(), node);
        }
        difference
    }

    /// Adds the prefixes of members that `named` selects. `named` receives a state and the last element of the prefix,
    /// and returns whether to add the prefix and the state for the elements below it.
    ///
    /// Upstream: `EnsureNamedFieldsAreMembers`.
    pub(crate) fn with_named_prefixes<S: Copy>(
        &self,
        state: S,
        named: &impl Fn(S, &str) -> (bool, S),
    ) -> Self {
        let nodes = self.nodes.iter().map(|(key, node)| {
            let (is_named, next) = named(state, key);
            let is_member = node.is_member || (is_named && !node.children.is_empty());
            (
                key.clone(),
                Node { is_member, children: node.children.with_named_prefixes(next, named) },
            )
        });
        Self { nodes: nodes.collect() }
    }

    /// Calls `each` with every path of the set.
    ///
    /// Upstream: `Iterate`.
    pub(crate) fn for_each(&self, each: &mut impl FnMut(&[&str])) {
        self.walk(&mut Vec::new(), each);
    }

    fn walk<'s>(&'s self, path: &mut Vec<&'s str>, each: &mut impl FnMut(&[&str])) {
        // At each level, all members come first, then their descendants.
        for (key, _) in self.nodes.iter().filter(|(_, node)| node.is_member) {
            path.push(key);
            each(path);
            path.pop();
        }
        for (key, node) in &self.nodes {
            path.push(key);
            node.children.walk(path, each);
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
    fn fields_v1_survives_decoding_and_encoding() {
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
            FieldSet::from_paths(&paths)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn set_operations_obey_set_algebra(a in any_set(), b in any_set(), c in any_set()) {
            prop_assert_eq!(a.union(&b), b.union(&a));
            prop_assert_eq!(a.union(&b).union(&c), a.union(&b.union(&c)));
            prop_assert_eq!(a.intersection(&b), b.intersection(&a));
            prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
            prop_assert!(a.difference(&b).intersection(&b).is_empty());
            prop_assert_eq!(a.union(&b).difference(&b), a.difference(&b));
            prop_assert_eq!(a.recursive_difference(&b).difference(&a), FieldSet::default());
            prop_assert!(a.recursive_difference(&a).is_empty() && a.difference(&a).is_empty());
            // A member is in the difference exactly if the other set lacks it.
            let (difference, mut paths) = (a.difference(&b), 0);
            difference.for_each(&mut |path| paths += usize::from(a.has(path) && !b.has(path)));
            let mut expected = 0;
            a.for_each(&mut |path| expected += usize::from(!b.has(path)));
            prop_assert_eq!(paths, expected);
            prop_assert_eq!(FieldSet::parse(&a.to_value()), Ok(a));
        }
    }
}
