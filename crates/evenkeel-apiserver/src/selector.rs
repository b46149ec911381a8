//! Label, field and shard selectors of queries. They match the attributes that the store keeps for each object, except
//! `selectableFields` of custom resources, which are read from the object.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing)]

use evenkeel_api::Text;
use evenkeel_api::selector::{FieldSelector, Selector, SelectorError};
use evenkeel_api::sharding::ShardSelector;
use evenkeel_cel::shard_selector;

use serde_json::Value;

use crate::request::Query;
use crate::resource::{ResourceType, key};
use crate::store::{Entry, Scope, SelectionAttributes};
use evenkeel_apiextensions::jsonpath::JsonPath;
use evenkeel_apimachinery::status::{StatusError, quote};

/// Selectors of a request.
#[derive(Debug, Clone)]
pub(crate) struct Selectors {
    labels: Selector,
    fields: Box<[FieldRequirement]>,
    /// `shardSelector`; `None` for all shards.
    shards: Option<ShardSelector>,
}

/// Requirement of a field selector: `FIELD=VALUE` or `FIELD!=VALUE`.
#[derive(Debug, Clone)]
struct FieldRequirement {
    field: Field,
    /// Whether the operator is `=`. Otherwise it is `!=`.
    equal: bool,
    value: Text,
}

/// Field of an object, as a field label names it.
#[derive(Debug, Clone)]
enum Field {
    Name,
    Namespace,
    /// Index into the kind's selectable fields.
    Indexed(usize),
    /// Path in the decoded object. The store keeps no attributes for the selectable fields of a custom resource,
    /// because a change of its CustomResourceDefinition may change them.
    InObject(JsonPath),
}

/// Parsed selectors whose fields are not yet checked against a resource.
pub(crate) struct ParsedSelectors {
    labels: Selector,
    fields: FieldSelector,
}

impl ParsedSelectors {
    /// Parses the selectors of a query.
    pub(crate) fn parse(query: &Query) -> Result<Self, StatusError> {
        Self::from_strings(query.get("labelSelector"), query.get("fieldSelector"))
    }

    fn from_strings(labels: &str, fields: &str) -> Result<Self, StatusError> {
        let bad_request = |error: SelectorError| StatusError::bad_request(error.to_string());
        let labels = Selector::parse(labels).map_err(bad_request)?;
        Ok(Self { labels, fields: FieldSelector::parse(fields).map_err(bad_request)? })
    }

    /// Resolves the field labels to fields of a resource.
    ///
    /// # Errors
    /// Returns a 400 if a field is not a supported field label of the resource.
    pub(crate) fn resolve(self, resource: &ResourceType) -> Result<Selectors, StatusError> {
        let fields = self.fields.terms().iter().map(|term| {
            let field = resolve_field(resource, &term.field)?;
            Ok(FieldRequirement { field, equal: term.equal, value: term.value.clone() })
        });
        let fields = fields.collect::<Result<_, StatusError>>()?;
        Ok(Selectors { fields, labels: self.labels, shards: None })
    }
}

impl Selectors {
    /// Parses `labelSelector` and `fieldSelector`.
    pub(crate) fn parse(
        resource: &ResourceType,
        labels: &str,
        fields: &str,
    ) -> Result<Self, StatusError> {
        ParsedSelectors::from_strings(labels, fields)?.resolve(resource)
    }

    /// Adds the requirement `metadata.name=NAME`, as for a watch of one object. Returns a 400 if there are field
    /// requirements but not this one.
    ///
    /// Upstream: `ListResource`.
    pub(crate) fn named(mut self, name: &str) -> Result<Self, StatusError> {
        let requires_name = |requirement: &FieldRequirement| {
            matches!(requirement.field, Field::Name)
                && requirement.equal
                && *requirement.value == *name
        };
        if self.fields.is_empty() {
            let requirement =
                FieldRequirement { field: Field::Name, equal: true, value: name.into() };
            self.fields = Box::new([requirement]);
        } else if !self.fields.iter().any(requires_name) {
            let why = "fieldSelector metadata.name doesn't match requested name";
            return Err(StatusError::bad_request(why));
        }
        Ok(self)
    }

    /// Adds the `shardSelector` of a list or watch, unless it is empty. The caller checks the feature gate
    /// `ShardedListAndWatch`, without which the parameter has no effect.
    ///
    /// # Errors
    /// Returns a 500 for an invalid selector, without a reason, because upstream does not convert the error to a
    /// Status.
    ///
    /// Upstream: `Store.ListPredicate`, `Store.Watch`.
    pub(crate) fn sharded(mut self, query: &Query) -> Result<Self, StatusError> {
        let text = query.get("shardSelector");
        if !text.is_empty() {
            let parsed = shard_selector::parse(text);
            self.shards = Some(parsed.map_err(|error| {
                StatusError::plain_internal(format!("invalid shard selector: {error}"))
            })?);
        }
        Ok(self)
    }

    /// Returns the shard selector; `None` for all shards.
    pub(crate) fn shards(&self) -> Option<&ShardSelector> {
        self.shards.as_ref()
    }

    /// Returns whether the selectors select all objects.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_empty() && self.shards.is_none()
    }

    /// Returns whether an object is in the selected shards.
    ///
    /// Upstream: `MatchesSharding`.
    pub(crate) fn matches_sharding(&self, entry: &Entry) -> bool {
        let shards = self.shards.as_ref();
        shards.is_none_or(|shards| shards.contains(entry.shard_hash(shards.field())))
    }

    /// Returns the smallest known scope that contains every selected object. If the selector requires a name, this is
    /// the object. If it requires a value of an indexed field, these are the objects of all namespaces with this value.
    /// Otherwise, these are the objects in `namespace` (empty: all namespaces).
    pub(crate) fn scope(&self, resource: &ResourceType, namespace: &str) -> Scope {
        let first_equal = |matches: fn(&Field) -> bool| {
            let mut requirements = self.fields.iter();
            requirements.find(|requirement| requirement.equal && matches(&requirement.field))
        };
        if let Some(name) = first_equal(|field| matches!(field, Field::Name))
            && (!resource.namespaced || !namespace.is_empty())
        {
            return Scope::Object(key(resource, namespace, &name.value).into());
        }
        if let Some(FieldRequirement { field: Field::Indexed(index), value, .. }) =
            first_equal(|field| matches!(field, Field::Indexed(_)))
        {
            return Scope::Field(*index, (**value).into());
        }
        match namespace {
            "" => Scope::All,
            namespace => Scope::Namespace(namespace.into()),
        }
    }

    /// Returns whether an object is selected.
    pub(crate) fn matches(&self, entry: &Entry) -> bool {
        self.matches_sharding(entry) && self.matches_attributes(entry)
    }

    /// Returns whether an object's labels and fields are selected, whatever its shard.
    pub(crate) fn matches_attributes(&self, entry: &Entry) -> bool {
        self.labels.matches_by(|key| entry.selection.label(key))
            && self.fields.iter().all(|requirement| {
                let (namespace, name) = entry.key.split_once('/').unwrap_or(("", &entry.key));
                let decoded_value;
                let value = match &requirement.field {
                    Field::Name => name,
                    Field::Namespace => namespace,
                    Field::Indexed(index) => entry.selection.field(*index),
                    Field::InObject(path) => {
                        decoded_value = text_in(entry, path);
                        &decoded_value
                    }
                };
                (*value == *requirement.value) == requirement.equal
            })
    }
}

/// Decodes the object, and returns a field as a string; empty if the field is absent.
fn text_in(entry: &Entry, path: &JsonPath) -> String {
    let object = entry.decode().unwrap_or_default();
    match path.find(&object).first() {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Resolves a field label to a field of the resource.
///
/// Upstream: `ConvertFieldLabel`.
fn resolve_field(resource: &ResourceType, path: &str) -> Result<Field, StatusError> {
    let custom_fields = resource.custom.as_ref().map_or(&[][..], |custom| &custom.selectable);
    if let Some((_, path)) = custom_fields.iter().find(|(name, _)| **name == *path) {
        return Ok(Field::InObject(path.clone()));
    }
    let selectable = resource.strategy.selectable_fields(resource.group());
    let is_pod = resource.custom.is_none() && resource.kind() == "Pod";
    // A name of the field in old clients.
    let path = if is_pod && path == "spec.host" { "spec.nodeName" } else { path };
    match path {
        "metadata.name" => Ok(Field::Name),
        // Of the cluster-scoped kinds, only built-in kinds without selectable fields of their own accept it, because
        // they have the default field label conversion function. That of PodCertificateRequests does not accept it.
        "metadata.namespace"
            if resource.namespaced && resource.kind() != "PodCertificateRequest"
                || resource.custom.is_none() && selectable.is_empty() =>
        {
            Ok(Field::Namespace)
        }
        _ => match selectable.iter().position(|name| *name == path) {
            Some(index) => Ok(Field::Indexed(index)),
            None => Err(StatusError::bad_request(unsupported_label(resource, path))),
        },
    }
}

/// Returns the message for an unsupported field label. Upstream's field label conversion functions have different
/// messages for different kinds.
fn unsupported_label(resource: &ResourceType, path: &str) -> String {
    let is_default = resource.custom.is_none()
        && resource.strategy.selectable_fields(resource.group()).is_empty();
    match resource.kind() {
        _ if is_default => format!(
            "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            quote(path)
        ),
        "Job" if resource.group() == "batch" => {
            format!("field label {} not supported for Job", quote(path))
        }
        kind @ "ResourceSlice" if resource.group() == "resource.k8s.io" => {
            let (group, version) = (resource.group(), resource.version());
            format!("field label not supported for {group}/{version}, Kind={kind}: {path}")
        }
        _ => format!("field label not supported: {path}"),
    }
}

/// Returns the attributes that selectors match. `object` is in the stored version of `resource`.
///
/// Upstream: `GetAttrs`.
pub(crate) fn selection_attributes(resource: &ResourceType, object: &Value) -> SelectionAttributes {
    SelectionAttributes::new(object, |put| resource.strategy.field_values(object, put))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::Table;
    use crate::store::{Change, Encoded, SelectionAttributes};

    /// Returns the entry of the object `ns/p` with three labels.
    fn entry() -> Entry {
        let object =
            json!({"metadata": {"name": "p", "labels": {"app": "web", "n": "5", "empty": ""}}});
        Encoded::new(&object, SelectionAttributes::new(&object, |_| ())).into_entry(
            "ns/p".into(),
            1,
            Change::Added,
        )
    }

    #[test]
    fn selectors_match_labels_and_fields() {
        let table = Table::builtin();
        let resource = table.get("v1", "configmaps").expect("configmaps are there");
        let entry = entry();
        for (labels, fields, want) in [
            ("", "", true),
            ("app=web", "", true),
            ("app==web,n in (4, 5)", "", true),
            ("app!=web", "", false),
            ("other!=x", "", true),
            ("app notin (x,y)", "", true),
            ("!app", "", false),
            ("!other,app", "", true),
            ("n>4", "", true),
            ("n<4", "", false),
            ("empty=", "", true),
            ("app in ()", "", false),
            ("empty in (,1)", "", true),
            ("", "metadata.name=p", true),
            ("", "metadata.name!=p", false),
            ("", "metadata.name=p,metadata.namespace==ns", true),
            ("", "!=,=", true),
        ] {
            let selectors = Selectors::parse(&resource, labels, fields).expect("valid");
            assert_eq!(selectors.matches(&entry), want, "{labels} {fields}");
        }
    }

    #[test]
    fn invalid_selectors_and_unknown_fields_are_rejected() {
        let table = Table::builtin();
        let resource = table.get("v1", "configmaps").expect("configmaps are there");
        for labels in
            ["=x", "a=b=c", "a in x", "a in (x", "a,", "a b", "a=b,,c", "a/b/c=d", "a>x", "-a=b"]
        {
            assert!(Selectors::parse(&resource, labels, "").is_err(), "{labels}");
        }
        for fields in ["metadata.name", "metadata.name>a", "=x", "data.k=v"] {
            assert!(Selectors::parse(&resource, "", fields).is_err(), "{fields}");
        }
    }

    #[test]
    fn message_for_an_unsupported_field_label_depends_on_the_kind() {
        let table = Table::builtin();
        for (api_version, resource, message) in [
            (
                "v1",
                "configmaps",
                "\"x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            ),
            ("v1", "pods", "field label not supported: x"),
            ("batch/v1", "jobs", "field label \"x\" not supported for Job"),
            (
                "resource.k8s.io/v1",
                "resourceslices",
                "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: x",
            ),
        ] {
            let resource = table.get(api_version, resource).expect("a built-in resource");
            let error = Selectors::parse(&resource, "", "x=y").expect_err("unsupported");
            assert_eq!((error.code().as_u16(), error.message()), (400, message));
        }
    }
}
