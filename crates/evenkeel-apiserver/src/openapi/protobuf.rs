//! OpenAPI v2 documents in protobuf: the message `openapi.v2.Document` of github.com/google/gnostic-models.
//!
//! Decoders merge consecutive messages, so that the server can append the document of custom resources to the recorded
//! one.

use evenkeel_api::protobuf::wire;
use serde_json::{Map, Value};

/// Protobuf message type for JSON objects of one kind.
struct MessageType {
    /// JSON name, field numbers and wire format of each field.
    fields: &'static [(&'static str, Path, Form)],
    /// Number of the field for `x-` extensions.
    extensions: u32,
}

/// Path of field numbers through nested messages. The last field has the value's form.
type Path = &'static [u32];

/// Wire format of a value.
enum Form {
    /// One or more strings.
    Text,
    Flag,
    Integer,
    Number,
    /// Message with a value in YAML; JSON is YAML, too.
    Any,
    /// One or more messages with values in YAML.
    Anys,
    /// One or more messages.
    Message(&'static MessageType),
    /// One or more values, each wrapped in the nested messages of the path.
    Within(Path, &'static MessageType),
    /// Map. Each entry is a message with the name in field 1 and the value at the path.
    Named(Path, &'static MessageType),
    /// Schema, or a bool that allows or forbids any value.
    SchemaOrFlag,
}

use Form::{Any, Anys, Flag, Integer, Message, Named, Number, SchemaOrFlag, Text, Within};

static DOCUMENT: MessageType = MessageType {
    fields: &[
        ("paths", &[8, 2], Named(&[2], &PATH)),
        ("definitions", &[9, 1], Named(&[2], &SCHEMA)),
    ],
    extensions: 16,
};

static PATH: MessageType = MessageType {
    fields: &[
        ("get", &[2], Message(&OPERATION)),
        ("put", &[3], Message(&OPERATION)),
        ("post", &[4], Message(&OPERATION)),
        ("delete", &[5], Message(&OPERATION)),
        ("patch", &[8], Message(&OPERATION)),
    ],
    extensions: 10,
};

static OPERATION: MessageType = MessageType {
    fields: &[
        // The format has several kinds of parameters. Those of custom resources are all query parameters.
        ("parameters", &[8], Within(&[1, 2, 3], &QUERY_PARAMETER)),
        ("responses", &[9, 1], Named(&[2, 1], &RESPONSE)),
    ],
    extensions: 13,
};

static QUERY_PARAMETER: MessageType = MessageType {
    fields: &[
        ("in", &[2], Text),
        ("name", &[4], Text),
        ("type", &[6], Text),
        ("uniqueItems", &[20], Flag),
    ],
    extensions: 23,
};

static RESPONSE: MessageType = MessageType {
    fields: &[("description", &[1], Text), ("schema", &[2, 1], Message(&SCHEMA))],
    extensions: 5,
};

static EXTERNAL_DOCS: MessageType =
    MessageType { fields: &[("description", &[1], Text), ("url", &[2], Text)], extensions: 3 };

static SCHEMA: MessageType = MessageType {
    fields: &[
        ("$ref", &[1], Text),
        ("format", &[2], Text),
        ("title", &[3], Text),
        ("description", &[4], Text),
        ("default", &[5], Any),
        ("multipleOf", &[6], Number),
        ("maximum", &[7], Number),
        ("exclusiveMaximum", &[8], Flag),
        ("minimum", &[9], Number),
        ("exclusiveMinimum", &[10], Flag),
        ("maxLength", &[11], Integer),
        ("minLength", &[12], Integer),
        ("pattern", &[13], Text),
        ("maxItems", &[14], Integer),
        ("minItems", &[15], Integer),
        ("uniqueItems", &[16], Flag),
        ("maxProperties", &[17], Integer),
        ("minProperties", &[18], Integer),
        ("required", &[19], Text),
        ("enum", &[20], Anys),
        ("additionalProperties", &[21], SchemaOrFlag),
        ("type", &[22, 1], Text),
        ("items", &[23, 1], Message(&SCHEMA)),
        ("properties", &[25, 1], Named(&[2], &SCHEMA)),
        ("externalDocs", &[29], Message(&EXTERNAL_DOCS)),
        ("example", &[30], Any),
    ],
    extensions: 31,
};

/// Returns the encoded document with these paths and definitions.
pub(super) fn document(paths: Map<String, Value>, definitions: Map<String, Value>) -> Vec<u8> {
    let mut fields = Map::new();
    fields.insert("paths".into(), paths.into());
    fields.insert("definitions".into(), definitions.into());
    let mut out = Vec::new();
    write_fields(&mut out, &DOCUMENT, &fields.into());
    out
}

/// Writes the fields of a message. Skips fields that the format lacks.
fn write_fields(out: &mut Vec<u8>, message_type: &MessageType, value: &Value) {
    for (name, path, form) in message_type.fields {
        if let Some(value) = value.get(name) {
            write_nested(out, path, &|out, number| write_field(out, number, form, value));
        }
    }
    for (name, value) in value.as_object().into_iter().flatten() {
        if name.starts_with("x-") {
            wire::message(out, message_type.extensions, |out| {
                wire::bytes(out, 1, name.as_bytes());
                write_any(out, 2, value);
            });
        }
    }
}

/// Writes the nested messages of `path`. Calls `write_last` with the last number to write the field in the innermost.
fn write_nested(out: &mut Vec<u8>, path: &[u32], write_last: &dyn Fn(&mut Vec<u8>, u32)) {
    match path {
        [] => {}
        [last] => write_last(out, *last),
        [first, rest @ ..] => {
            wire::message(out, *first, |out| write_nested(out, rest, write_last));
        }
    }
}

fn write_field(out: &mut Vec<u8>, number: u32, form: &Form, value: &Value) {
    let nested_message = |out: &mut Vec<u8>, path: Path, message_type, value| {
        write_nested(out, path, &|out, last| {
            wire::message(out, last, |out| write_fields(out, message_type, value));
        });
    };
    match form {
        Text => elements(value).iter().for_each(|value| write_text(out, number, value)),
        Flag if value == true => wire::number(out, number, 1),
        Flag => {}
        // Protobuf omits zero, and encodes a negative number as its two's complement.
        Integer => match value.as_i64() {
            None | Some(0) => {}
            Some(value) => wire::number(out, number, value.cast_unsigned()),
        },
        Number => match value.as_f64() {
            None | Some(0.0) => {}
            Some(value) => wire::double(out, number, value),
        },
        Any => write_any(out, number, value),
        Anys => elements(value).iter().for_each(|value| write_any(out, number, value)),
        Message(message_type) => {
            for value in elements(value) {
                wire::message(out, number, |out| write_fields(out, message_type, value));
            }
        }
        Within(path, message_type) => {
            for value in elements(value) {
                wire::message(out, number, |out| nested_message(out, path, message_type, value));
            }
        }
        Named(path, message_type) => {
            for (name, value) in value.as_object().into_iter().flatten() {
                wire::message(out, number, |out| {
                    wire::bytes(out, 1, name.as_bytes());
                    nested_message(out, path, message_type, value);
                });
            }
        }
        SchemaOrFlag => wire::message(out, number, |out| match value {
            Value::Bool(allowed) => wire::number(out, 2, u64::from(*allowed)),
            schema => wire::message(out, 1, |out| write_fields(out, &SCHEMA, schema)),
        }),
    }
}

/// Returns the elements of an array, or any other value as the only element.
fn elements(value: &Value) -> &[Value] {
    value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice)
}

fn write_text(out: &mut Vec<u8>, number: u32, value: &Value) {
    if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
        wire::bytes(out, number, text.as_bytes());
    }
}

/// Writes a message with the value as YAML in field 2.
fn write_any(out: &mut Vec<u8>, number: u32, value: &Value) {
    wire::message(out, number, |out| wire::bytes(out, 2, value.to_string().as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::super::recorded::{V2_JSON, V2_PROTOBUF, decompressed};
    use super::*;
    use serde_json::json;

    /// Upstream's recorded bytes contain all definitions. The test skips those with YAML values, which upstream formats
    /// differently.
    #[test]
    fn built_in_definitions_are_written_as_upstream_writes_them() {
        let recorded = decompressed(V2_PROTOBUF).expect("recorded");
        let text = decompressed(V2_JSON).expect("recorded");
        let document: Value = serde_json::from_slice(&text).expect("JSON");
        let mut compared = 0;
        for (name, schema) in document["definitions"].as_object().expect("definitions") {
            let text = schema.to_string();
            if ["\"x-", "\"default\"", "\"enum\""].iter().any(|part| text.contains(part)) {
                continue;
            }
            let mut entry = Vec::new();
            let one = Map::from_iter([(name.clone(), schema.clone())]);
            write_field(&mut entry, 1, &Named(&[2], &SCHEMA), &one.into());
            assert!(memchr::memmem::find(&recorded, &entry).is_some(), "{name}");
            compared += 1;
        }
        assert!(compared > 200, "{compared}");
    }

    #[test]
    fn an_operation_has_parameters_responses_and_extensions() {
        let path = json!({"get": {
            "parameters": [{"name": "n", "in": "query", "type": "string", "uniqueItems": true}],
            "responses": {"200": {"description": "OK", "schema": {"$ref": "#/d"}}},
            "x-kubernetes-action": "get"}});
        let mut out = Vec::new();
        write_fields(&mut out, &PATH, &path);
        let parameter = b"\x12\x05query\x22\x01n\x32\x06string\xa0\x01\x01";
        let response = b"\x0a\x02OK\x12\x07\x0a\x05\x0a\x03#/d";
        let extension = b"\x0a\x13x-kubernetes-action\x12\x07\x12\x05\"get\"";
        let expected = [
            &[0x12, 87, 0x42, 27, 0x0a, 25, 0x12, 23, 0x1a, 21][..],
            parameter,
            &[0x4a, 24, 0x0a, 22, 0x0a, 3, b'2', b'0', b'0', 0x12, 15, 0x0a, 13],
            response,
            &[0x6a, 30],
            extension,
        ];
        assert_eq!(out, expected.concat());
    }

    #[test]
    fn a_single_value_of_a_repeated_field_is_written_as_a_list() {
        let written = |schema: Value| {
            let mut out = Vec::new();
            write_fields(&mut out, &SCHEMA, &schema);
            out
        };
        let open = json!({"type": "object", "additionalProperties": true});
        assert_eq!(written(open), *b"\xaa\x01\x02\x10\x01\xb2\x01\x08\x0a\x06object");
        let list =
            json!({"items": {"type": ["integer"]}, "minItems": -1, "maximum": 0, "enum": [1]});
        let expected = [
            &b"\x78"[..],
            &[0xff; 9],
            b"\x01\xa2\x01\x03\x12\x011",
            b"\xba\x01\x0e\x0a\x0c\xb2\x01\x09\x0a\x07integer",
        ];
        assert_eq!(written(list), expected.concat());
    }
}
