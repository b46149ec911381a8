//! A version's schema, made ready for what is done with it at each write: defaults, validation, lists.

use std::collections::BTreeMap;

use evenkeel_cel::check::Declaration;
use regex::Regex;
use serde_json::Value;

use super::rules::Rule;
use evenkeel_apimachinery::value::{flag, list, text};

/// How the elements of a list are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ListKind {
    #[default]
    Atomic,
    Set,
    Map,
}

/// One schema of a structural schema (upstream: `Structural`). What is absent is empty.
#[derive(Debug, Default)]
pub struct Node {
    pub(crate) kind: Box<str>,
    pub(crate) format: Box<str>,
    pub(crate) nullable: bool,
    pub(crate) int_or_string: bool,
    pub(crate) embedded: bool,
    pub(crate) preserve: bool,
    pub(crate) default: Option<Value>,
    pub(crate) values: Vec<Value>,
    pub(crate) minimum: Option<f64>,
    pub(crate) maximum: Option<f64>,
    pub(crate) above_minimum: bool,
    pub(crate) below_maximum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) min_properties: Option<u64>,
    pub(crate) max_properties: Option<u64>,
    pub(crate) pattern: Option<Regex>,
    pub(crate) required: Vec<Box<str>>,
    pub(crate) properties: BTreeMap<Box<str>, Node>,
    pub(crate) additional: Option<Box<Node>>,
    /// Whether `additionalProperties` is `true`.
    pub(crate) any_additional: bool,
    pub(crate) items: Option<Box<Node>>,
    pub(crate) all_of: Vec<Node>,
    pub(crate) any_of: Vec<Node>,
    pub(crate) one_of: Vec<Node>,
    pub(crate) not: Option<Box<Node>>,
    pub(crate) list: ListKind,
    pub(crate) keys: Vec<Box<str>>,
    pub(crate) atomic_map: bool,
    pub(crate) rules: Vec<Rule>,
    /// Whether there are rules here or below.
    pub ruled: bool,
}

impl evenkeel_cel::Schema for Node {
    fn kind(&self) -> &str {
        &self.kind
    }
    fn format(&self) -> &str {
        &self.format
    }
    fn names_fields(&self) -> bool {
        !self.properties.is_empty()
    }
    fn child(&self, name: &str) -> Option<&dyn evenkeel_cel::Schema> {
        Self::child(self, name).map(|node| node as _)
    }
    fn items(&self) -> Option<&dyn evenkeel_cel::Schema> {
        self.items.as_deref().map(|node| node as _)
    }
    fn is_unordered(&self) -> bool {
        // Sets and maps have no order.
        self.list != ListKind::Atomic
    }
}

impl Declaration for Node {
    fn is_int_or_string(&self) -> bool {
        self.int_or_string
    }
    fn is_embedded(&self) -> bool {
        self.embedded
    }
    fn element(&self) -> Option<&dyn Declaration> {
        self.items.as_deref().map(|node| node as _)
    }
    fn additional(&self) -> Option<&dyn Declaration> {
        self.additional.as_deref().map(|node| node as _)
    }
    fn property(&self, name: &str) -> Option<&dyn Declaration> {
        self.properties.get(name).map(|node| node as _)
    }
    fn n_properties(&self) -> usize {
        self.properties.len()
    }
    fn max_items(&self) -> Option<u64> {
        self.max_items
    }
    fn max_properties(&self) -> Option<u64> {
        self.max_properties
    }
    fn max_length(&self) -> Option<u64> {
        self.max_length
    }
    fn longest_value(&self) -> Option<u64> {
        self.values.iter().map(|value| value.as_str().map_or(1, |text| text.len() as u64)).max()
    }
    fn required(&self) -> Vec<(&str, &dyn Declaration)> {
        self.required
            .iter()
            .filter_map(|name| self.properties.get_key_value(name))
            .filter(|(_, node)| node.default.is_none())
            .map(|(name, node)| (&**name, node as _))
            .collect()
    }
}

impl Node {
    /// Reads a schema. What is malformed is left out: definitions are checked before they are stored.
    pub fn new(doc: &Value) -> Self {
        let number = |name: &str| doc.get(name).and_then(Value::as_f64);
        let count = |name: &str| doc.get(name).and_then(Value::as_u64);
        let schemas = |name: &str| list(doc, name).iter().map(Self::new).collect();
        let schema =
            |name: &str| doc.get(name).filter(|s| s.is_object()).map(|s| Box::new(Self::new(s)));
        let names =
            |name: &str| list(doc, name).iter().filter_map(Value::as_str).map(Into::into).collect();
        let mut node = Self {
            kind: text(doc, "type").into(),
            format: text(doc, "format").into(),
            nullable: flag(doc, "nullable"),
            int_or_string: flag(doc, "x-kubernetes-int-or-string"),
            embedded: flag(doc, "x-kubernetes-embedded-resource"),
            preserve: flag(doc, "x-kubernetes-preserve-unknown-fields"),
            default: doc.get("default").filter(|d| !d.is_null()).cloned(),
            values: list(doc, "enum").to_vec(),
            minimum: number("minimum"),
            maximum: number("maximum"),
            above_minimum: flag(doc, "exclusiveMinimum"),
            below_maximum: flag(doc, "exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            pattern: Some(text(doc, "pattern"))
                .filter(|p| !p.is_empty())
                .and_then(|p| Regex::new(p).ok()),
            required: names("required"),
            properties: doc
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .map(|(name, schema)| (name.as_str().into(), Self::new(schema)))
                .collect(),
            additional: schema("additionalProperties"),
            any_additional: flag(doc, "additionalProperties"),
            items: schema("items"),
            all_of: schemas("allOf"),
            any_of: schemas("anyOf"),
            one_of: schemas("oneOf"),
            not: schema("not"),
            list: match text(doc, "x-kubernetes-list-type") {
                "set" => ListKind::Set,
                "map" => ListKind::Map,
                _ => ListKind::Atomic,
            },
            keys: names("x-kubernetes-list-map-keys"),
            atomic_map: text(doc, "x-kubernetes-map-type") == "atomic",
            rules: list(doc, "x-kubernetes-validations").iter().map(Rule::new).collect(),
            ruled: false,
        };
        let below = node.properties.values().chain(node.items.as_deref());
        node.ruled = !node.rules.is_empty()
            || below.chain(node.additional.as_deref()).any(|child| child.ruled);
        node
    }

    /// The schema of a field: a named one, or that of all others.
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(self.additional.as_deref())
    }

    /// The values of a list's keys in one of its elements, with the keys' defaults.
    pub(crate) fn key_of<'a>(&'a self, element: &'a Value) -> Vec<Option<&'a Value>> {
        let default = |key: &str| self.items.as_ref()?.properties.get(key)?.default.as_ref();
        self.keys.iter().map(|key| element.get(&**key).or_else(|| default(key))).collect()
    }
}
