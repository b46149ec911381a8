//! Fuzz targets for request bodies: JSON, YAML and protobuf, as the API server decodes them.

use evenkeel_api::json;
use evenkeel_api::protobuf::Transcoder;
use evenkeel_apimachinery::decode::{self, FieldValidation};
use evenkeel_apimachinery::encode;
use serde_json::{Map, Value};

use crate::input;

/// Checks that an object decoded from JSON is not too deep, and that it decodes again to itself.
pub(crate) fn json(data: &[u8]) {
    let (kind, body) = input::kind(data);
    let read = |validation| {
        decode::object(kind.schema.as_ref(), &kind.gvk, "application/json", body, validation)
    };
    if kind.schema.is_none() {
        assert_same_json(read(FieldValidation::Warn).ok().map(|decoded| decoded.object), body);
    }
    let Ok(decoded) = read(FieldValidation::Warn) else {
        assert!(read(FieldValidation::Strict).is_err(), "strict validation accepts no more");
        return;
    };
    kind.assert_decodes_again(&decoded.object);
    let strict = read(FieldValidation::Strict);
    assert_eq!(strict.is_ok(), decoded.warnings.is_empty(), "strict refuses what others warn of");
    // The API server can also pretty-print the object.
    let pretty: Value = json::from_slice(&encode::pretty::json(&decoded.object))
        .unwrap_or_else(|error| panic!("pretty JSON is JSON: {error}"));
    assert_eq!(pretty, decoded.object);
    let _ = decode::options(body, "application/json");
}

/// Asserts that serde_json reads the same object from the body as the decoder without a schema. It skips bodies
/// that serde_json rejects.
fn assert_same_json(decoded: Option<Value>, body: &[u8]) {
    let Ok(Value::Object(mut fields)) = json::from_slice::<Value>(body) else { return };
    // In Go, -0 is an integer.
    let has_negative_zero = body.windows(2).any(|window| window == b"-0");
    if has_negative_zero || json::is_nested_deeper(body, json::MAX_DEPTH) {
        return;
    }
    let decoded = decoded.expect("a document that serde_json parses is valid");
    // The server sets these fields from the path of the request.
    for name in ["apiVersion", "kind"] {
        fields.insert(name.to_owned(), decoded[name].clone());
    }
    fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let mut want = Value::Object(fields);
    large_integers_as_floats(&mut want);
    assert_eq!(decoded, want);
}

/// Converts integers as Go decodes them without a type: to an `int64` if they fit, else to a `float64`.
fn large_integers_as_floats(value: &mut Value) {
    match value {
        Value::Number(number) if !number.is_i64() => {
            *value = number.as_f64().map_or(Value::Null, Value::from);
        }
        Value::Array(items) => items.iter_mut().for_each(large_integers_as_floats),
        Value::Object(fields) => fields.values_mut().for_each(large_integers_as_floats),
        _ => {}
    }
}

/// Checks objects decoded from YAML as those from JSON, and that an object encoded as YAML decodes to itself.
pub(crate) fn yaml(data: &[u8]) {
    const YAML: &str = "application/yaml";
    let (kind, body) = input::kind(data);
    let read = |body: &[u8]| {
        decode::object(kind.schema.as_ref(), &kind.gvk, YAML, body, FieldValidation::Warn)
    };
    let Ok(decoded) = read(body) else { return };
    kind.assert_decodes_again(&decoded.object);
    let text = encode::yaml::document(&decoded.object);
    let again = read(text.as_bytes()).unwrap_or_else(|error| panic!("{}: {text}", error.message()));
    assert_eq!(again.object, decoded.object, "{text}");
    let _ = decode::file(body);
    let _ = decode::options(body, YAML);
}

/// Checks that an object decoded from protobuf is not too deep, and that encoding and decoding it again yields the
/// same bytes.
pub(crate) fn protobuf(data: &[u8]) {
    let _ = decode::options(data, "application/vnd.kubernetes.protobuf");
    let Ok(object) = Transcoder::decode_envelope(data) else { return };
    input::assert_depth(&object);
    if let Ok(bytes) = Transcoder::encode_envelope(&object) {
        let again = Transcoder::decode_envelope(&bytes).expect("an encoded object decodes");
        let encoded = Transcoder::encode_envelope(&again).expect("a decoded object can be encoded");
        assert_eq!(encoded, bytes, "an encoded object stays as it is");
    }
    let (kind, _) = input::kind(object["kind"].as_str().unwrap_or_default().as_bytes());
    let decoded = decode::object(
        kind.schema.as_ref(),
        &kind.gvk,
        "application/vnd.kubernetes.protobuf",
        data,
        FieldValidation::Strict,
    );
    if let Ok(decoded) = decoded {
        kind.assert_decodes_again(&decoded.object);
    }
}
