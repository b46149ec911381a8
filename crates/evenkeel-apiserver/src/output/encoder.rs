//! Encodes lists item by item, so that memory holds one decoded object at a time, whatever the size of the list.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_api::protobuf::{Envelope, Transcoder, wire};
use evenkeel_kinds::printers::RowPrinter;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::list_meta::{ListMeta, open_list};
use super::negotiation::{Encoding, Shape};
use super::stored::parse;
use super::{Format, LIST_ITEMS, not_acceptable, partial, remove_type_meta, table};
use crate::resource::ResourceType;
use evenkeel_apimachinery::encode::{pretty, yaml};
use evenkeel_apimachinery::status::StatusError;

/// Size in bytes of the protobuf messages that are kept when the size of all is computed. Further ones are encoded again.
const MAX_KEPT_BYTES: usize = 4 * 1024 * 1024;

/// Indentation of the items of a list in indented JSON.
const ITEM_INDENT: &[u8] = b"    ";

/// Encoder of the items of one list. The whole list is the head, the items with a separator between them, and the tail.
pub(crate) struct ListEncoder {
    format: Format,
    resource: Arc<ResourceType>,
    now: Timestamp,
    /// Printer of the rows of a Table; `None` in other lists.
    print: Option<RowPrinter>,
    /// Protobuf messages of the first items.
    kept: VecDeque<Vec<u8>>,
    frame: Frame,
}

/// Bytes of a list around its items.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    pub(crate) head: Vec<u8>,
    pub(crate) separator: &'static [u8],
    pub(crate) tail: Vec<u8>,
}

impl ListEncoder {
    /// Prepares a list of these objects, which are compact JSON in the stored version of `resource`. The objects are read
    /// ahead, one at a time, where a row depends on all of them or the head has their encoded size. Ages in a Table are
    /// relative to `now`.
    ///
    /// # Errors
    /// 406 for a kind without protobuf, or a field of a wrong type.
    pub(crate) fn new(
        format: &Format,
        resource: &Arc<ResourceType>,
        objects: &mut dyn ExactSizeIterator<Item = Bytes>,
        meta: &ListMeta,
        now: Timestamp,
    ) -> Result<Self, StatusError> {
        let (format, resource, frame) = (format.clone(), resource.clone(), Frame::default());
        let kept = VecDeque::new();
        let mut encoder = Self { format, resource, now, print: None, kept, frame };
        let is_empty = objects.len() == 0;
        if matches!(encoder.format.shape, Shape::Table(_)) {
            encoder.print = Some(table::row_printer(&encoder.resource, objects));
        }
        encoder.frame = match encoder.format.encoding {
            Encoding::Protobuf => encoder.protobuf_frame(objects, meta)?,
            Encoding::Json if !(is_empty && encoder.is_nil_if_empty()) => {
                let mut head = Vec::new();
                open_list(&encoder.list_without_items(meta), encoder.items_field(), &mut head);
                Frame { head, separator: b",", tail: b"]}\n".to_vec() }
            }
            _ if is_empty => {
                let mut list = encoder.list_without_items(meta);
                let none = if encoder.is_nil_if_empty() { Value::Null } else { json!([]) };
                list[encoder.items_field()] = none;
                Frame { head: encoder.format.encode(&list)?.to_vec(), ..Frame::default() }
            }
            Encoding::Json | Encoding::Pretty => encoder.pretty_frame(meta)?,
            Encoding::Yaml => encoder.yaml_frame(meta)?,
        };
        Ok(encoder)
    }

    /// Returns whether a list without items has null in their place: as in Go, a list of the metadata of no objects is nil.
    fn is_nil_if_empty(&self) -> bool {
        let is_table = matches!(self.format.shape, Shape::Table(_));
        self.format.is_metadata() || is_table && table::has_default_printer(&self.resource)
    }

    /// Takes the bytes around the items.
    pub(crate) fn take_frame(&mut self) -> Frame {
        std::mem::take(&mut self.frame)
    }

    /// Appends the encoded item of an object, which is compact JSON in the stored version. The caller passes the objects in
    /// the order in which they were read ahead.
    ///
    /// # Errors
    /// Those of [`new`](Self::new); 500 if the stored object cannot be read.
    pub(crate) fn item(&mut self, stored: &[u8], out: &mut Vec<u8>) -> Result<(), StatusError> {
        match (self.format.encoding, self.format.shape) {
            (Encoding::Json, Shape::Metadata | Shape::MetadataList) => {
                partial::partial(self.format.meta_version, stored, out)
            }
            (Encoding::Json, Shape::Whole) if self.resource.stored => {
                out.extend_from_slice(stored);
                Ok(())
            }
            (Encoding::Json, _) => {
                serde_json::to_writer(out, &self.value(stored)?).map_err(StatusError::internal)
            }
            (Encoding::Pretty, _) => {
                // A line break within a string is escaped, so that each one in the text starts a line.
                for (index, line) in
                    pretty::json(&self.value(stored)?).split(|byte| *byte == b'\n').enumerate()
                {
                    if index > 0 {
                        out.push(b'\n');
                    }
                    out.extend_from_slice(ITEM_INDENT);
                    out.extend_from_slice(line);
                }
                Ok(())
            }
            (Encoding::Yaml, _) => {
                let item = Value::Array(vec![self.value(stored)?]);
                out.extend_from_slice(yaml::document(&item).as_bytes());
                Ok(())
            }
            (Encoding::Protobuf, _) => {
                let message = match self.kept.pop_front() {
                    Some(message) => message,
                    None => self.message(stored)?,
                };
                wire::bytes(out, LIST_ITEMS, &message);
                Ok(())
            }
        }
    }

    /// Returns the field of the list's items.
    fn items_field(&self) -> &'static str {
        if matches!(self.format.shape, Shape::Table(_)) { "rows" } else { "items" }
    }

    /// Returns the list without its items.
    fn list_without_items(&self, meta: &ListMeta) -> Value {
        let (kind, version) = self.format.list_type(&self.resource);
        if matches!(self.format.shape, Shape::Table(_)) {
            let meta = meta.to_json();
            let version = self.format.meta_version;
            return table::table_without_rows(&self.resource, version, "", &meta, true);
        }
        let meta = if self.format.is_metadata() {
            meta.to_json()
        } else {
            meta.to_json_for(&self.resource)
        };
        json!({"kind": kind, "apiVersion": version, "metadata": meta})
    }

    /// Returns the bytes around the items of indented JSON.
    fn pretty_frame(&self, meta: &ListMeta) -> Result<Frame, StatusError> {
        let field = self.items_field();
        let mut list = self.list_without_items(meta);
        list[field] = json!([null]);
        // Nothing but the list's own field is indented by two spaces.
        let before = format!("\n  \"{field}\": [\n");
        let (head, tail) = split(&pretty::json(&list), &before, "    null")?;
        Ok(Frame { head, separator: b",\n", tail })
    }

    /// Returns the bytes around the items in YAML.
    fn yaml_frame(&self, meta: &ListMeta) -> Result<Frame, StatusError> {
        let field = self.items_field();
        let mut list = self.list_without_items(meta);
        list[field] = json!([null]);
        // Nothing but the list's own fields is not indented. The line before may be there or not.
        let text = format!("\n{}", yaml::document(&list));
        let (mut head, tail) = split(text.as_bytes(), &format!("\n{field}:\n"), "- null\n")?;
        head.remove(0);
        Ok(Frame { head, separator: b"", tail })
    }

    /// Returns the bytes around the items of a protobuf list. The envelope has the size of all items.
    fn protobuf_frame(
        &mut self,
        objects: &mut dyn Iterator<Item = Bytes>,
        meta: &ListMeta,
    ) -> Result<Frame, StatusError> {
        let resource = self.resource.clone();
        let (kind, version) = self.format.list_type(&resource);
        let list = self.list_without_items(meta);
        let list = Transcoder::encode(version, kind, &json!({"metadata": list["metadata"]}))
            .map_err(not_acceptable)?;
        let (mut size, mut kept_bytes) = (0, 0);
        for object in objects {
            let message = self.message(&object)?;
            size += wire::size_of_bytes(LIST_ITEMS, message.len());
            kept_bytes += message.len();
            // No message is kept after one that is not.
            if kept_bytes <= MAX_KEPT_BYTES {
                self.kept.push_back(message);
            }
        }
        let (head, tail) = Envelope::around(version, kind, &list, size);
        Ok(Frame { head, separator: b"", tail })
    }

    /// Returns the protobuf message of an object, without an envelope.
    fn message(&self, stored: &[u8]) -> Result<Vec<u8>, StatusError> {
        let (_, version) = self.format.list_type(&self.resource);
        let kind = if self.format.is_metadata() { partial::KIND } else { self.resource.kind() };
        let item = self.format.shaped(&self.resource, stored, self.now)?;
        Transcoder::encode(version, kind, &item).map_err(not_acceptable)
    }

    /// Returns the item of an object.
    fn value(&self, stored: &[u8]) -> Result<Value, StatusError> {
        if let (Shape::Table(include), Some(print)) = (self.format.shape, &self.print) {
            let (version, object) = (self.format.meta_version, parse(stored)?);
            return Ok(table::row(&self.resource, version, include, print, object, self.now));
        }
        let mut item = self.format.shaped(&self.resource, stored, self.now)?;
        // Items of custom resources and of metadata lists keep `kind` and `apiVersion`.
        if self.resource.custom.is_none() && self.format.shape == Shape::Whole {
            remove_type_meta(&mut item);
        }
        Ok(item)
    }
}

/// Splits a text after `before`, and leaves out `between`, which follows it.
fn split(text: &[u8], before: &str, between: &str) -> Result<(Vec<u8>, Vec<u8>), StatusError> {
    let parts = memchr::memmem::find(text, before.as_bytes()).and_then(|at| {
        let (head, rest) = text.split_at(at + before.len());
        Some((head.to_vec(), rest.strip_prefix(between.as_bytes())?.to_vec()))
    });
    parts.ok_or_else(|| StatusError::internal("an encoded list has no field for its items"))
}

#[cfg(test)]
mod tests {
    use super::super::negotiation::META;
    use super::super::table::Include;
    use super::*;
    use crate::resource::Table;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn item(kind: &str, index: usize) -> Value {
        json!({
            "kind": kind, "apiVersion": "v1",
            "metadata": {"name": format!("a{index}"), "namespace": "n", "creationTimestamp": "1970-01-01T00:00:00Z",
                "annotations": {"text": "one\n  two: \"three\"\n", "items": "[null]", "a": "x ".repeat(80)}},
            "spec": {"containers": [{"name": "c", "args": ["- null", "items:\n- null\n"]}], "nested": [[1, 2], []]},
            "status": {"phase": if index == 1 { "Succeeded" } else { "Running" }},
        })
    }

    /// Returns the list of these objects in one value, as clients decode it.
    fn whole(
        format: &Format,
        resource: &Arc<ResourceType>,
        objects: &[Value],
        meta: &ListMeta,
    ) -> Value {
        let (kind, version) = format.list_type(resource);
        if let Shape::Table(include) = format.shape {
            let row = |object: &Value| table::one_row(resource, META, include, object.clone(), NOW);
            let rows: Vec<Value> = objects.iter().map(row).collect();
            return table::table(resource, META, "", &rows, &meta.to_json(), true);
        }
        let item = |object: &Value| match format.shape {
            Shape::Whole => {
                let mut object = object.clone();
                remove_type_meta(&mut object);
                object
            }
            _ => partial::partial_value(META, object.to_string().as_bytes()).expect("metadata"),
        };
        let items: Vec<Value> = objects.iter().map(item).collect();
        let items =
            if format.is_metadata() && items.is_empty() { Value::Null } else { json!(items) };
        json!({"kind": kind, "apiVersion": version, "metadata": meta.to_json(), "items": items})
    }

    #[test]
    fn a_list_of_items_encoded_one_by_one_equals_the_whole() {
        let table = Table::builtin();
        let shapes = [
            Shape::Whole,
            Shape::MetadataList,
            Shape::Table(Include::Metadata),
            Shape::Table(Include::Object),
        ];
        let meta = ListMeta {
            resource_version: 9,
            token: "items:".to_owned(),
            remaining: Some(3),
            ..ListMeta::default()
        };
        for (resource, kind) in [("pods", "Pod"), ("configmaps", "ConfigMap")] {
            let resource = table.get("v1", resource).expect("it is built in");
            for (shape, encoding, count) in shapes.into_iter().flat_map(|shape| {
                [Encoding::Json, Encoding::Pretty, Encoding::Yaml]
                    .into_iter()
                    .flat_map(move |encoding| (0..3).map(move |count| (shape, encoding, count)))
            }) {
                let format = Format { encoding, shape, meta_version: META };
                let objects: Vec<Value> = (0..count).map(|index| item(kind, index)).collect();
                // Items in the stored form have no kind, as in the store's lists.
                let stored = |object: &Value| match (shape, encoding) {
                    (Shape::Whole, Encoding::Json) => {
                        let mut object = object.clone();
                        remove_type_meta(&mut object);
                        Bytes::from(object.to_string())
                    }
                    _ => Bytes::from(object.to_string()),
                };
                let bytes: Vec<Bytes> = objects.iter().map(stored).collect();
                let list = format.list(&resource, &bytes, &meta, NOW).expect("a list");
                let whole = whole(&format, &resource, &objects, &meta);
                let what =
                    format!("{shape:?} {encoding:?} {count}: {}", String::from_utf8_lossy(&list));
                if encoding == Encoding::Json {
                    // Compact lists have their items last.
                    assert!(list.ends_with(b"}\n"), "{what}");
                    let list: Value = serde_json::from_slice(&list).expect("JSON");
                    assert_eq!(list, whole, "{what}");
                } else {
                    assert_eq!(list, format.encode(&whole).expect("encoded"), "{what}");
                }
            }
        }
    }

    #[test]
    fn protobuf_items_beyond_the_kept_ones_are_encoded_again() {
        let table = Table::builtin();
        let resource = table.get("v1", "pods").expect("it is built in");
        let shape = Shape::MetadataList;
        let format = Format { encoding: Encoding::Protobuf, shape, meta_version: META };
        let mut object = item("Pod", 0);
        object["metadata"]["annotations"]["long"] = "x".repeat(MAX_KEPT_BYTES / 3).into();
        let items = vec![Bytes::from(object.to_string()); 5];
        let meta = ListMeta::default();
        let list = format.list(&resource, &items, &meta, NOW).expect("a list");
        let mut objects = items.iter().cloned();
        let encoder = ListEncoder::new(&format, &resource, &mut objects, &meta, NOW);
        assert_eq!(encoder.expect("an encoder").kept.len(), 2);
        let list = Transcoder::decode_envelope(&list).expect("a list");
        let metadata = &object["metadata"];
        for item in list["items"].as_array().expect("items") {
            assert_eq!(item["metadata"]["annotations"], metadata["annotations"]);
        }
        assert_eq!(list["items"].as_array().map(Vec::len), Some(5));
    }

    #[test]
    fn a_list_of_classes_marks_the_newest_default() {
        let table = Table::builtin();
        let resource = table.get("storage.k8s.io/v1", "storageclasses").expect("it is built in");
        let class = |name: &str, created: &str, is_default: &str| {
            json!({"kind": "StorageClass", "apiVersion": "storage.k8s.io/v1", "provisioner": "p",
                "metadata": {"name": name, "creationTimestamp": created,
                    "annotations": {"storageclass.kubernetes.io/is-default-class": is_default}}})
        };
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        let format = Format {
            encoding: Encoding::Json,
            shape: Shape::Table(Include::None),
            meta_version: META,
        };
        for (classes, expected) in [
            (vec![class("a", early, "false")], ["a", "", ""]),
            (vec![class("a", early, "true"), class("b", late, "true")], ["a", "b (default)", ""]),
            (
                vec![class("c", late, "true"), class("b", late, "true"), class("a", late, "no")],
                ["c", "b (default)", "a"],
            ),
        ] {
            let items: Vec<Bytes> = classes.iter().map(|class| class.to_string().into()).collect();
            let list = format.list(&resource, &items, &ListMeta::default(), NOW).expect("a list");
            let list: Value = serde_json::from_slice(&list).expect("JSON");
            for (row, expected) in expected.iter().enumerate().filter(|(_, name)| !name.is_empty())
            {
                assert_eq!(list["rows"][row]["cells"][0], **expected, "{list}");
            }
        }
    }
}
