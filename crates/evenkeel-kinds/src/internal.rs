//! Encodes values as upstream's internal types.
//!
//! Upstream validates the internal version of a kind. Its errors therefore quote values of internal types, and compare
//! them. Fields of internal types have no JSON names, so the encoding has Go's field names. It omits few fields, because
//! internal types rarely have `omitempty`.
//!
//! Upstream: the types of `pkg/apis`, `field.Error.ErrorBody`, `k8s.io/apimachinery/pkg/util/diff`.

use std::collections::HashMap;
use std::sync::LazyLock;

use evenkeel_apimachinery::diff::unified;
use evenkeel_apimachinery::go_text::{go_json, go_json_string};
use evenkeel_apimachinery::status::BadValue;
use evenkeel_apimachinery::value::{get, is_omitted};
use serde_json::Value;

/// Fields of internal types, recorded from upstream. Each line has the name of a type, a tab, and the fields, each in
/// the form that [`Field::parse`] describes.
static RECORDED: &str = include_str!("../data/internal-fields.tsv");

/// Fields by the name of the internal type.
static TYPES: LazyLock<HashMap<&'static str, Vec<Field>>> = LazyLock::new(|| {
    let lines = RECORDED.lines().filter_map(|line| line.split_once('\t'));
    lines
        .map(|(name, fields)| (name, fields.split(' ').filter_map(Field::parse).collect()))
        .collect()
});

/// Field of an internal type.
struct Field {
    /// Name of the field in Go.
    name: &'static str,
    /// Path in the stored version.
    path: String,
    /// Type of the field, in the notation of [`Encoder::write`].
    type_: &'static str,
    omit_empty: bool,
}

impl Field {
    /// Parses `name[=path]:type[:o]`. By default, the path is the name with a lower-case first letter. The suffix `:o`
    /// means `omitempty`.
    fn parse(cell: &'static str) -> Option<Self> {
        let (name, type_) = cell.split_once(':')?;
        let (type_, omit_empty) = match type_.strip_suffix(":o") {
            Some(type_) => (type_, true),
            None => (type_, false),
        };
        let (name, path) = match name.split_once('=') {
            Some((name, path)) => (name, path.to_owned()),
            None => {
                let mut letters = name.chars();
                let first = letters.next()?.to_ascii_lowercase();
                (name, format!("{first}{}", letters.as_str()))
            }
        };
        Some(Self { name, path, type_, omit_empty })
    }
}

/// Returns a value as errors quote it. `type_name` is the internal type, such as `core.PodSpec` or `[]core.Volume`.
pub(crate) fn quoted(type_name: &'static str, value: Option<&Value>) -> BadValue {
    let mut encoder = Encoder::default();
    encoder.write(type_name, value);
    BadValue::Encoded(encoder.out)
}

/// Returns the difference between two values of an internal type, as errors of immutable fields show it.
///
/// Upstream: `diff.Diff`.
pub(crate) fn diff(type_name: &'static str, old: Option<&Value>, new: Option<&Value>) -> String {
    let encode_pretty = |value| {
        let mut encoder = Encoder { is_pretty: true, ..Encoder::default() };
        encoder.write(type_name, value);
        encoder.out
    };
    unified(&encode_pretty(old), &encode_pretty(new))
}

/// Encoder of values of upstream's internal types, as Go's `encoding/json` encodes them.
#[derive(Default)]
struct Encoder {
    out: String,
    /// Whether each value is on its own line, indented by one space per level.
    is_pretty: bool,
    depth: usize,
}

impl Encoder {
    /// Writes a value of a type. `None` stands for Go's zero value.
    ///
    /// The type is `s` (string), `b` (boolean), `i` (integer), the name of a struct, or one of these after a prefix:
    /// `*` for a pointer, `[]` for a list, `{}` for a map. `=text` is a type with its own JSON encoder in Go that
    /// encodes the zero value as `text`.
    fn write(&mut self, type_: &'static str, value: Option<&Value>) {
        let value = value.filter(|value| !value.is_null());
        if let Some(zero) = type_.strip_prefix('=') {
            return match value {
                Some(value) => self.write_json(value),
                None => self.out.push_str(zero),
            };
        }
        if let Some(target) = type_.strip_prefix('*') {
            return match value {
                Some(value) => self.write(target, Some(value)),
                None => self.out.push_str("null"),
            };
        }
        if let Some(item) = type_.strip_prefix("[]") {
            return match value {
                Some(Value::Array(items)) => {
                    self.write_enclosed(['[', ']'], items, |encoder, value| {
                        encoder.write(item, Some(value));
                    });
                }
                _ => self.out.push_str("null"),
            };
        }
        if let Some(item) = type_.strip_prefix("{}") {
            return match value {
                Some(Value::Object(entries)) => {
                    self.write_enclosed(['{', '}'], entries, |encoder, (name, value)| {
                        encoder.write_name(name);
                        encoder.write(item, Some(value));
                    });
                }
                _ => self.out.push_str("null"),
            };
        }
        match (type_, value) {
            ("s", None) => self.out.push_str("\"\""),
            ("b", None) => self.out.push_str("false"),
            ("i", None) => self.out.push('0'),
            ("s" | "b" | "i", Some(value)) => self.write_json(value),
            _ => self.write_struct(type_, value),
        }
    }

    fn write_struct(&mut self, type_: &str, value: Option<&Value>) {
        let field_value = |field: &Field| value.and_then(|value| get(value, &field.path));
        let is_shown = |field: &&Field| match field_value(field) {
            // `omitempty` never omits a pointer that is set.
            Some(_) if field.type_.starts_with('*') => true,
            Some(value) => !field.omit_empty || !is_omitted(value),
            None => !field.omit_empty,
        };
        let fields = TYPES.get(type_).map(Vec::as_slice).unwrap_or_default();
        let shown: Vec<&Field> = fields.iter().filter(is_shown).collect();
        self.write_enclosed(['{', '}'], shown, |encoder, field| {
            encoder.write_name(field.name);
            encoder.write(field.type_, field_value(field));
        });
    }

    fn write_json(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                self.write_enclosed(['{', '}'], fields, |encoder, (name, value)| {
                    encoder.write_name(name);
                    encoder.write_json(value);
                });
            }
            Value::Array(items) => self.write_enclosed(['[', ']'], items, Self::write_json),
            scalar => self.out.push_str(&go_json(scalar)),
        }
    }

    fn write_name(&mut self, name: &str) {
        self.out.push_str(&go_json_string(name));
        self.out.push_str(if self.is_pretty { ": " } else { ":" });
    }

    /// Writes items between brackets, separated by commas.
    fn write_enclosed<T>(
        &mut self,
        [open, close]: [char; 2],
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        self.out.push(open);
        self.depth += 1;
        let mut is_first = true;
        for item in items {
            if !is_first {
                self.out.push(',');
            }
            is_first = false;
            self.end_line();
            write(self, item);
        }
        self.depth -= 1;
        if !is_first {
            self.end_line();
        }
        self.out.push(close);
    }

    /// Begins a new line if the encoding is pretty.
    fn end_line(&mut self) {
        if self.is_pretty {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', self.depth));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_types_of_all_fields_are_recorded() {
        for (name, fields) in TYPES.iter() {
            for field in fields {
                let mut target = field.type_;
                while let Some(rest) =
                    ["*", "[]", "{}"].iter().find_map(|prefix| target.strip_prefix(prefix))
                {
                    target = rest;
                }
                let is_known = ["s", "b", "i"].contains(&target) || target.starts_with('=');
                assert!(is_known || TYPES.contains_key(target), "{name}: {target}");
            }
        }
    }

    #[test]
    fn values_are_quoted_in_the_form_of_their_internal_types() {
        for (type_name, value, want) in [
            (
                "rbac.RoleRef",
                json!({"apiGroup": "g", "kind": "<", "name": "n"}),
                r#"{"APIGroup":"g","Kind":"\u003c","Name":"n"}"#,
            ),
            (
                "core.ServicePort",
                json!({"port": 80, "protocol": "TCP"}),
                r#"{"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}"#,
            ),
            (
                "resource.ResourceClaimTemplateSpec",
                json!({"metadata": {"labels": {"a": "b"}}, "spec": {"devices": {"requests": [{"name": "r"}]}}}),
                r#"{"labels":{"a":"b"},"Spec":{"Devices":{"Requests":[{"Name":"r","Exactly":null,"FirstAvailable":null}],"Constraints":null,"Config":null}}}"#,
            ),
            ("[]core.LocalObjectReference", json!([{"name": "a"}]), r#"[{"Name":"a"}]"#),
            ("[]core.LocalObjectReference", json!(null), "null"),
            (
                "*v1.LabelSelector",
                json!({"matchLabels": {"a": "b"}}),
                r#"{"matchLabels":{"a":"b"}}"#,
            ),
            (
                "core.EmptyDirVolumeSource",
                json!({"sizeLimit": "1Gi"}),
                r#"{"Medium":"","SizeLimit":"1Gi","Mode":null}"#,
            ),
        ] {
            assert_eq!(quoted(type_name, Some(&value)), BadValue::Encoded(want.to_owned()));
        }
    }

    #[test]
    fn differences_have_three_lines_of_context() {
        let old = json!({"nfs": {"server": "s", "path": "/a"}});
        let new = json!({"nfs": {"server": "s", "path": "/b"}, "rbd": {}});
        let diff = diff("core.PersistentVolumeSource", Some(&old), Some(&new));
        let lines: Vec<&str> = diff.lines().collect();
        assert_eq!(
            lines,
            [
                "@@ -5,10 +5,19 @@",
                "  \"Glusterfs\": null,",
                "  \"NFS\": {",
                "   \"Server\": \"s\",",
                "-  \"Path\": \"/a\",",
                "+  \"Path\": \"/b\",",
                "   \"ReadOnly\": false",
                "  },",
                "- \"RBD\": null,",
                "+ \"RBD\": {",
                "+  \"CephMonitors\": null,",
                "+  \"RBDImage\": \"\",",
                "+  \"FSType\": \"\",",
                "+  \"RBDPool\": \"\",",
                "+  \"RadosUser\": \"\",",
                "+  \"Keyring\": \"\",",
                "+  \"SecretRef\": null,",
                "+  \"ReadOnly\": false",
                "+ },",
                "  \"ISCSI\": null,",
                "  \"Cinder\": null,",
                "  \"CephFS\": null,",
            ]
        );
    }
}
