//! Messages of all built-in kinds: number, JSON name and type of each field, and Go's encoding of absent fields.

use std::collections::HashMap;
use std::sync::OnceLock;

use serde::Deserialize;

/// Messages of upstream's `.proto` files, the fields that JSON inlines, and the fields whose JSON name differs.
const PROTO: &str = include_str!("../../data/protobuf.json");
/// Flags of Go struct fields (`*` pointer, `o` omitempty, `z` omitzero), and messages that JSON represents as
/// lists.
const GO: &str = include_str!("../../data/go-fields.json");

/// Messages of all built-in kinds.
pub(crate) struct Schema {
    messages: Vec<Descriptor>,
    by_name: HashMap<Box<str>, usize>,
}

/// A message with its fields.
pub(crate) struct Descriptor {
    /// Qualified name of the message.
    #[cfg_attr(not(test), expect(dead_code, reason = "named by tests"))]
    pub(crate) name: Box<str>,
    /// JSON representation of the message.
    pub(crate) form: Form,
    /// Fields sorted by number.
    pub(crate) fields: Box<[FieldDescriptor]>,
}

impl Descriptor {
    /// Returns the field with this number.
    pub(crate) fn field(&self, number: u32) -> Option<&FieldDescriptor> {
        let index = self.fields.binary_search_by_key(&number, |field| field.number).ok()?;
        self.fields.get(index)
    }
}

/// One field of a message: number, JSON name, type.
pub(crate) struct FieldDescriptor {
    /// Number in protobuf.
    pub(crate) number: u32,
    /// Name in JSON; empty for a message whose fields are inlined.
    pub(crate) json: Box<str>,
    /// Type of a single value.
    pub(crate) kind: Kind,
    /// Cardinality of the field.
    pub(crate) label: Label,
    /// Whether the Go field is a pointer, which distinguishes absent from zero.
    pub(crate) pointer: bool,
    /// Whether JSON omits a zero value or an empty list (`omitempty`).
    pub(crate) omit_empty: bool,
    /// Whether JSON omits a zero struct (`omitzero`).
    pub(crate) omit_zero: bool,
}

/// Cardinality of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Label {
    Singular,
    Repeated,
    Map,
}

/// Type of a field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    String,
    Bytes,
    Bool,
    Int32,
    Int64,
    Double,
    /// A message, by its index in the schema.
    Message(usize),
}

/// JSON representation of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// An object with the message's fields.
    Object,
    /// A string: RFC 3339 in seconds.
    Time,
    /// A string: RFC 3339 in microseconds.
    MicroTime,
    /// A string, the message's only field.
    Quantity,
    /// An integer or a string.
    IntOrString,
    /// Any JSON, which is the message's only field.
    Raw,
    /// A list, the message's only field.
    List,
    /// A schema, or a list of them.
    SchemaOrArray,
    /// A schema, or a boolean.
    SchemaOrBool,
    /// A schema, or a list of strings.
    SchemaOrStrings,
}

/// Number, label, type and JSON name of a field.
type ProtoField = (u32, String, String, String);

/// Contents of [`PROTO`].
#[derive(Deserialize)]
struct ProtoDefinitions {
    /// Package, message and number of each field that JSON inlines.
    inline: Vec<(String, String, u32)>,
    /// Fields by package and message.
    messages: HashMap<String, HashMap<String, Vec<ProtoField>>>,
    /// Package, message, number and JSON name of each field whose JSON name differs from its name in protobuf.
    renamed: Vec<(String, String, u32, String)>,
}

/// Contents of [`GO`].
#[derive(Deserialize)]
struct GoStructTags {
    /// Qualified names of the messages that JSON represents as lists.
    lists: Vec<String>,
    /// Flags by package, message and field number.
    fields: HashMap<String, HashMap<String, HashMap<String, String>>>,
}

impl Schema {
    /// Returns the schema of this release.
    pub(crate) fn get() -> &'static Self {
        static SCHEMA: OnceLock<Schema> = OnceLock::new();
        SCHEMA.get_or_init(Self::load)
    }

    /// Returns the message at an index of this schema.
    pub(crate) fn message(&self, index: usize) -> &Descriptor {
        &self.messages[index]
    }

    /// Returns the message with this qualified name.
    pub(crate) fn named(&self, name: &str) -> Option<&Descriptor> {
        self.by_name.get(name).map(|index| &self.messages[*index])
    }

    /// Iterates over the names of all messages.
    #[cfg(test)]
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.messages.iter().map(|message| &*message.name)
    }

    fn load() -> Self {
        let proto: ProtoDefinitions =
            serde_json::from_str(PROTO).expect("the recorded messages are well-formed");
        let go: GoStructTags =
            serde_json::from_str(GO).expect("the recorded struct tags are well-formed");
        let mut names: Vec<(&str, &str)> = proto
            .messages
            .iter()
            .flat_map(|(package, messages)| {
                messages.keys().map(|name| (package.as_str(), name.as_str()))
            })
            .collect();
        names.sort_unstable();
        let by_name: HashMap<Box<str>, usize> = names
            .iter()
            .enumerate()
            .map(|(index, (package, name))| (format!("{package}.{name}").into(), index))
            .collect();
        let renamed: HashMap<_, _> = proto
            .renamed
            .iter()
            .map(|(package, message, number, json)| {
                ((package.as_str(), message.as_str(), *number), json)
            })
            .collect();
        let inline: std::collections::HashSet<_> = proto
            .inline
            .iter()
            .map(|(package, message, number)| (package.as_str(), message.as_str(), *number))
            .collect();
        let messages = names
            .iter()
            .map(|&(package, message)| {
                let name: Box<str> = format!("{package}.{message}").into();
                let message_flags =
                    go.fields.get(package).and_then(|messages| messages.get(message));
                let mut fields: Vec<FieldDescriptor> = proto.messages[package][message]
                    .iter()
                    .filter_map(|(number, label, type_, json)| {
                        let (label, kind) = resolve(&by_name, package, label, type_)?;
                        let flags = message_flags
                            .and_then(|flags| flags.get(&number.to_string()))
                            .map_or("", String::as_str);
                        let field_key = (package, message, *number);
                        let json = match renamed.get(&field_key) {
                            _ if inline.contains(&field_key) => "",
                            Some(renamed) => renamed.as_str(),
                            None => json,
                        };
                        Some(FieldDescriptor {
                            number: *number,
                            json: json.into(),
                            kind,
                            label,
                            pointer: flags.contains('*'),
                            omit_empty: flags.contains('o'),
                            omit_zero: flags.contains('z'),
                        })
                    })
                    .collect();
                fields.sort_by_key(|field| field.number);
                let form = if go.lists.iter().any(|list| **list == *name) {
                    Form::List
                } else {
                    form(&name)
                };
                Descriptor { name, form, fields: fields.into() }
            })
            .collect();
        Self { messages, by_name }
    }
}

/// Returns the label and type of a field; `None` if the type is unknown. A test checks that every recorded type is
/// known.
fn resolve(
    by_name: &HashMap<Box<str>, usize>,
    package: &str,
    label: &str,
    type_: &str,
) -> Option<(Label, Kind)> {
    let (label, type_) = match type_.strip_prefix("map<string, ") {
        Some(value) => (Label::Map, value.strip_suffix('>')?),
        None if label == "repeated" => (Label::Repeated, type_),
        None => (Label::Singular, type_),
    };
    let kind = match type_ {
        "string" => Kind::String,
        "bytes" => Kind::Bytes,
        "bool" => Kind::Bool,
        "int32" => Kind::Int32,
        "int64" => Kind::Int64,
        "double" => Kind::Double,
        _ => {
            let type_ = type_.trim_start_matches('.');
            let index = by_name.get(type_).or_else(|| by_name.get(&*format!("{package}.{type_}")));
            Kind::Message(*index?)
        }
    };
    Some((label, kind))
}

/// Returns the JSON representation of the message with this name.
fn form(name: &str) -> Form {
    match name.strip_prefix("k8s.io.").unwrap_or(name) {
        "apimachinery.pkg.apis.meta.v1.Time" => Form::Time,
        "apimachinery.pkg.apis.meta.v1.MicroTime" => Form::MicroTime,
        "apimachinery.pkg.api.resource.Quantity"
        | "apimachinery.pkg.api.resource.QuantityValue" => Form::Quantity,
        "apimachinery.pkg.util.intstr.IntOrString" => Form::IntOrString,
        "apimachinery.pkg.runtime.RawExtension"
        | "apimachinery.pkg.apis.meta.v1.FieldsV1"
        | "apiextensions_apiserver.pkg.apis.apiextensions.v1.JSON" => Form::Raw,
        "apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray" => {
            Form::SchemaOrArray
        }
        "apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool" => {
            Form::SchemaOrBool
        }
        "apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray" => {
            Form::SchemaOrStrings
        }
        _ => Form::Object,
    }
}

/// Returns the message of a kind, such as `apps/v1` and `Deployment`.
pub(crate) fn message_of(api_version: &str, kind: &str) -> Option<&'static Descriptor> {
    let schema = Schema::get();
    let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
    let of_group = match group {
        "apiextensions.k8s.io" => schema.named(&format!(
            "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.{version}.{kind}"
        )),
        "apiregistration.k8s.io" => schema
            .named(&format!("k8s.io.kube_aggregator.pkg.apis.apiregistration.{version}.{kind}")),
        "internal.apiserver.k8s.io" => {
            schema.named(&format!("k8s.io.api.apiserverinternal.{version}.{kind}"))
        }
        "meta.k8s.io" => None,
        _ if group.contains('.') && !group.ends_with(".k8s.io") => return None,
        _ => {
            let group = group.split('.').next().unwrap_or(group);
            schema.named(&format!("k8s.io.api.{group}.{version}.{kind}"))
        }
    };
    // Every group also serves the kinds of `meta/v1`, such as Status, DeleteOptions and PartialObjectMetadata.
    of_group.or_else(|| schema.named(&format!("k8s.io.apimachinery.pkg.apis.meta.v1.{kind}")))
}
