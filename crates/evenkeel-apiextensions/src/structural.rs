//! Structural schemas: the schema of a version, parsed for pruning, defaulting, validation and CEL.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

use super::cel::Rule;
use evenkeel_apimachinery::value::{flag, list, text};
use evenkeel_cel::patterns;

/// Identity of a list's elements (`x-kubernetes-list-type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ListType {
    #[default]
    Atomic,
    Set,
    Map,
}

/// Regular expression that a string must match.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// Text of the definition, for messages.
    pub(crate) text: Box<str>,
    regex: Regex,
}

impl Pattern {
    /// Compiles a pattern; `None` if its syntax is wrong.
    fn new(text: &str) -> Option<Self> {
        let regex = patterns::compile(text).ok()?;
        Some(Self { text: text.into(), regex })
    }

    /// Returns whether the pattern matches a part of `text`.
    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

/// A structural schema or a part of one, with the keywords of the OpenAPI schema. For absent keywords, fields have
/// their default values.
///
/// Upstream: `Structural`.
#[derive(Debug, Default)]
pub struct Structural {
    pub(crate) kind: Box<str>,
    pub(crate) format: Box<str>,
    pub(crate) nullable: bool,
    pub(crate) int_or_string: bool,
    pub(crate) embedded_resource: bool,
    pub(crate) preserve_unknown_fields: bool,
    pub(crate) default: Option<Value>,
    pub(crate) enum_values: Vec<Value>,
    pub(crate) minimum: Option<f64>,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) min_properties: Option<u64>,
    pub(crate) max_properties: Option<u64>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) required: Vec<Box<str>>,
    pub(crate) properties: BTreeMap<Box<str>, Structural>,
    /// Schema of fields that `properties` does not list.
    pub(crate) additional_properties: Option<Box<Structural>>,
    /// Whether `additionalProperties` is `true`, which allows any field with any value.
    pub(crate) allows_additional_properties: bool,
    pub(crate) items: Option<Box<Structural>>,
    pub(crate) all_of: Vec<Structural>,
    pub(crate) any_of: Vec<Structural>,
    pub(crate) one_of: Vec<Structural>,
    pub(crate) not: Option<Box<Structural>>,
    pub(crate) list_type: ListType,
    pub(crate) list_map_keys: Vec<Box<str>>,
    pub(crate) atomic_map: bool,
    pub(crate) validations: Vec<Rule>,
    /// Whether this schema or one below it has validation rules.
    ///
    /// Upstream: `hasXValidations`.
    pub has_validations: bool,
}

impl evenkeel_cel::Schema for Structural {
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
        Self::child(self, name).map(|structural| structural as _)
    }
    fn items(&self) -> Option<&dyn evenkeel_cel::Schema> {
        self.items.as_deref().map(|structural| structural as _)
    }
    fn is_unordered(&self) -> bool {
        // Sets and maps are compared without regard to order.
        self.list_type != ListType::Atomic
    }
    fn list_keys(&self) -> Option<&[Box<str>]> {
        match self.list_type {
            ListType::Atomic => None,
            ListType::Set => Some(&[]),
            ListType::Map => Some(&self.list_map_keys),
        }
    }
}

impl Structural {
    /// Parses a schema. Skips malformed parts: definitions are validated before they are stored.
    ///
    /// Upstream: `NewStructural`.
    pub fn new(doc: &Value) -> Self {
        let number = |name: &str| doc.get(name).and_then(Value::as_f64);
        let count = |name: &str| doc.get(name).and_then(Value::as_u64);
        let schemas = |name: &str| list(doc, name).iter().map(Self::new).collect();
        let schema =
            |name: &str| doc.get(name).filter(|s| s.is_object()).map(|s| Box::new(Self::new(s)));
        let names =
            |name: &str| list(doc, name).iter().filter_map(Value::as_str).map(Into::into).collect();
        let mut structural = Self {
            kind: text(doc, "type").into(),
            format: text(doc, "format").into(),
            nullable: flag(doc, "nullable"),
            int_or_string: flag(doc, "x-kubernetes-int-or-string"),
            embedded_resource: flag(doc, "x-kubernetes-embedded-resource"),
            preserve_unknown_fields: flag(doc, "x-kubernetes-preserve-unknown-fields"),
            default: doc.get("default").filter(|d| !d.is_null()).cloned(),
            enum_values: list(doc, "enum").to_vec(),
            minimum: number("minimum"),
            maximum: number("maximum"),
            exclusive_minimum: flag(doc, "exclusiveMinimum"),
            exclusive_maximum: flag(doc, "exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            pattern: Some(text(doc, "pattern")).filter(|p| !p.is_empty()).and_then(Pattern::new),
            required: names("required"),
            properties: doc
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .map(|(name, schema)| (name.as_str().into(), Self::new(schema)))
                .collect(),
            additional_properties: schema("additionalProperties"),
            allows_additional_properties: flag(doc, "additionalProperties"),
            items: schema("items"),
            all_of: schemas("allOf"),
            any_of: schemas("anyOf"),
            one_of: schemas("oneOf"),
            not: schema("not"),
            list_type: match text(doc, "x-kubernetes-list-type") {
                "set" => ListType::Set,
                "map" => ListType::Map,
                _ => ListType::Atomic,
            },
            list_map_keys: names("x-kubernetes-list-map-keys"),
            atomic_map: text(doc, "x-kubernetes-map-type") == "atomic",
            validations: list(doc, "x-kubernetes-validations")
                .iter()
                .map(|rule| Rule::new(rule, doc))
                .collect(),
            has_validations: false,
        };
        let mut children = structural
            .properties
            .values()
            .chain(structural.items.as_deref())
            .chain(structural.additional_properties.as_deref());
        structural.has_validations =
            !structural.validations.is_empty() || children.any(|child| child.has_validations);
        structural
    }

    /// Returns the schema of a field: from `properties`, else from `additionalProperties`.
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(self.additional_properties.as_deref())
    }

    /// Returns the values of the `x-kubernetes-list-map-keys` in a list element. Absent keys have their defaults.
    pub(crate) fn key_of<'a>(&'a self, element: &'a Value) -> Vec<Option<&'a Value>> {
        let default = |key: &str| self.items.as_ref()?.properties.get(key)?.default.as_ref();
        self.list_map_keys.iter().map(|key| element.get(&**key).or_else(|| default(key))).collect()
    }
}
