//! Types of the kinds in an OpenAPI document, as expressions see them. Upstream: `ClientDiscoveryResolver`, `PopulateRefs`
//! and `SchemaDeclType`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `$ref` stands for the schema that it names, also within `allOf` | `referred_name` |
//! | a schema that refers to itself is cut off: an object without fields | `declared` |
//! | an integer or string is dynamic | `declared_as` |
//! | values without a type cannot be read | `declared_as` |
//! | an embedded resource has `apiVersion`, `kind` and some metadata | `has_type_and_metadata` |

use super::kinds::GroupVersionKind;
use evenkeel_cel::{
    check::{DeclType, Type},
    escape,
};
use serde_json::{Map, Value};

/// Prefix of references within a document.
const REFERENCE_PREFIX: &str = "#/components/schemas/";
/// Extension with the kinds that a schema describes.
const KINDS_EXTENSION: &str = "x-kubernetes-group-version-kind";
/// Maximum depth of a type. A kind with a deeper schema is not checked.
const MAX_DEPTH: usize = 100;
/// Maximum number of schemas within a kind, after its references are resolved. A Pod has some 3,000. A larger kind is not
/// checked.
const MAX_SCHEMAS: usize = 100_000;

/// OpenAPI document of one group and version.
pub(super) struct Document(Map<String, Value>);

impl Document {
    /// Reads a document. Returns `None` if it has no schemas.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut document: Value = evenkeel_api::json::from_slice(bytes).ok()?;
        match document.get_mut("components")?.get_mut("schemas")?.take() {
            Value::Object(schemas) => Some(Self(schemas)),
            _ => None,
        }
    }

    /// Returns the type of a kind, with `name` as its name: `dyn` if expressions cannot know it. Returns `None` if the
    /// document does not describe the kind, or lacks a schema of it.
    pub(super) fn type_of(&self, kind: &GroupVersionKind, name: &str) -> Option<Type> {
        let describes = |schema: &&Value| {
            let kinds = schema[KINDS_EXTENSION].as_array();
            kinds.into_iter().flatten().any(|one| {
                one["group"] == *kind.group
                    && one["version"] == *kind.version
                    && one["kind"] == *kind.kind
            })
        };
        let schema = self.0.values().find(describes)?;
        let mut reader = Reader { schemas: &self.0, open: Vec::new(), depth: 0, left: MAX_SCHEMAS };
        let declared = reader.declared(schema, true).ok()?;
        Some(declared.map_or(Type::Dyn, |declared| declared.kind.named(name)))
    }
}

/// A schema that cannot be read: a reference names no schema, or the kind is too large.
struct Unreadable;

/// Reader of one kind.
struct Reader<'d> {
    schemas: &'d Map<String, Value>,
    /// References that are being resolved, outermost first.
    open: Vec<&'d str>,
    depth: usize,
    /// Number of schemas that may still be read.
    left: usize,
}

impl<'d> Reader<'d> {
    /// Returns the declaration of a schema's values; `None` if expressions cannot read them.
    fn declared(
        &mut self,
        schema: &'d Value,
        is_resource: bool,
    ) -> Result<Option<DeclType>, Unreadable> {
        self.left = self.left.checked_sub(1).ok_or(Unreadable)?;
        if self.depth == MAX_DEPTH {
            return Err(Unreadable);
        }
        let name = referred_name(schema);
        if let Some(name) = name {
            if self.open.contains(&name) {
                return Ok(Some(DeclType::object::<&str>(None, [])));
            }
            self.open.push(name);
        }
        self.depth += 1;
        let resolved = self.resolved(schema)?;
        let is_resource = is_resource || resolved["x-kubernetes-embedded-resource"] == true;
        let declared = self.declared_as(resolved, is_resource);
        self.depth -= 1;
        if name.is_some() {
            self.open.pop();
        }
        declared
    }

    /// Returns the schema that a reference names, or the schema itself if it is not a reference.
    fn resolved(&self, schema: &'d Value) -> Result<&'d Value, Unreadable> {
        match referred_name(schema) {
            Some(name) => self.schemas.get(name).ok_or(Unreadable),
            None => Ok(schema),
        }
    }

    fn declared_as(
        &mut self,
        schema: &'d Value,
        is_resource: bool,
    ) -> Result<Option<DeclType>, Unreadable> {
        // Built-in kinds have the format, custom resources the extension. Upstream: `isXIntOrString`.
        if schema["format"] == "int-or-string" || schema["x-kubernetes-int-or-string"] == true {
            return Ok(Some(DeclType::of(Type::Dyn)));
        }
        let kind = match type_name(schema) {
            "array" => {
                let Some(items) = schema.get("items").filter(|items| items.is_object()) else {
                    return Ok(None);
                };
                return Ok(self.declared(items, false)?.map(|item| DeclType::list(item, 0)));
            }
            "object" => match schema.get("additionalProperties").filter(|more| more.is_object()) {
                Some(values) => {
                    let value = self.declared(values, false)?;
                    return Ok(value.map(|value| DeclType::map(value, 0)));
                }
                None => return self.declared_object(schema, is_resource).map(Some),
            },
            "string" => match schema["format"].as_str() {
                Some("byte") => Type::Bytes,
                Some("duration") => Type::Duration,
                Some("date" | "date-time") => Type::Time,
                _ => Type::Str,
            },
            "boolean" => Type::Bool,
            "number" => Type::Double,
            "integer" => Type::Int,
            _ => return Ok(None),
        };
        Ok(Some(DeclType::of(kind)))
    }

    fn declared_object(
        &mut self,
        schema: &'d Value,
        is_resource: bool,
    ) -> Result<DeclType, Unreadable> {
        let adds_metadata = is_resource && !self.has_type_and_metadata(schema)?;
        let mut fields = Vec::new();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            if adds_metadata && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
                continue;
            }
            if let Some(field) = self.declared(property, false)?
                && let Some(name) = escape(name)
            {
                fields.push((name, field));
            }
        }
        if adds_metadata {
            let text = || DeclType::of(Type::Str);
            let metadata = DeclType::object(None, [("name", text()), ("generateName", text())]);
            for (name, field) in [("kind", text()), ("apiVersion", text()), ("metadata", metadata)]
            {
                fields.push((name.to_owned(), field));
            }
        }
        Ok(DeclType::object(None, fields))
    }

    /// Returns whether a schema declares the fields that every resource has. Upstream: `WithTypeAndObjectMeta`.
    fn has_type_and_metadata(&self, schema: &'d Value) -> Result<bool, Unreadable> {
        let property_type = |schema: &'d Value, name: &str| {
            let property = &schema["properties"][name];
            self.resolved(property).map(type_name)
        };
        let metadata = self.resolved(&schema["properties"]["metadata"])?;
        Ok(property_type(schema, "kind")? == "string"
            && property_type(schema, "apiVersion")? == "string"
            && type_name(metadata) == "object"
            && property_type(metadata, "name")? == "string"
            && property_type(metadata, "generateName")? == "string")
    }
}

/// Returns the name of the schema that a schema refers to. Upstream: `refOf`.
fn referred_name(schema: &Value) -> Option<&str> {
    if let Some(reference) = schema["$ref"].as_str() {
        return Some(reference.strip_prefix(REFERENCE_PREFIX).unwrap_or(reference));
    }
    schema["allOf"].as_array()?.iter().find_map(referred_name)
}

/// Returns the type of a schema, or the first of several; empty without a type.
fn type_name(schema: &Value) -> &str {
    match &schema["type"] {
        Value::String(name) => name,
        Value::Array(names) => names.first().and_then(Value::as_str).unwrap_or_default(),
        _ => "",
    }
}

#[cfg(test)]
mod tests;
