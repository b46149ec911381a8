use serde_json::json;

use super::schema::{Form, Kind, Label, Schema};
use super::*;

/// Every field in upstream's definitions is resolved, and every struct tag has its field.
#[test]
fn recorded_fields_are_consistent() {
    let proto: Value = serde_json::from_str(include_str!("../../data/protobuf.json")).unwrap();
    let mut field_count = 0;
    for (package, messages) in proto["messages"].as_object().unwrap() {
        for (message, fields) in messages.as_object().unwrap() {
            let descriptor = Schema::get().named(&format!("{package}.{message}")).unwrap();
            assert_eq!(
                descriptor.fields.len(),
                fields.as_array().unwrap().len(),
                "{package}.{message}"
            );
            field_count += descriptor.fields.len();
            for field in &descriptor.fields {
                assert!(
                    !(field.pointer && field.label != Label::Singular),
                    "{package}.{message} {}",
                    field.json
                );
            }
            if descriptor.form == Form::List {
                assert!(matches!(&*descriptor.fields, [field] if field.kind == Kind::String));
            }
        }
    }
    assert!(field_count > 3000, "{field_count}");
    let go: Value = serde_json::from_str(include_str!("../../data/go-fields.json")).unwrap();
    for (package, messages) in go["fields"].as_object().unwrap() {
        for (message, flags) in messages.as_object().unwrap() {
            let descriptor = Schema::get().named(&format!("{package}.{message}")).unwrap();
            for number in flags.as_object().unwrap().keys() {
                assert!(
                    descriptor.fields.iter().any(|field| field.number.to_string() == *number),
                    "{package}.{message} {number}"
                );
            }
        }
    }
}

fn round_trip(object: &Value) -> Value {
    let bytes = Transcoder::encode_envelope(object).unwrap();
    let decoded = Transcoder::decode_envelope(&bytes).unwrap();
    // After one conversion, the object is in normal form, so a second conversion changes nothing.
    assert_eq!(Transcoder::encode_envelope(&decoded).unwrap(), bytes);
    decoded
}

#[test]
fn config_map_bytes_equal_upstreams() {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"},
        "metadata": {
            "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "creationTimestamp": "1970-01-01T00:00:09Z",
            "managedFields": [{
                "manager": "m", "operation": "Update", "apiVersion": "v1", "time": "1970-01-01T00:00:09Z",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {".": {}, "f:k": {}}}
            }]
        }
    });
    assert_eq!(round_trip(&object), object);
    let bytes = Transcoder::encode("v1", "ConfigMap", &object).unwrap();
    let managed = b"\x0a\x01m\x12\x06Update\x1a\x02v1\x22\x04\x08\x09\x10\x00\x32\x08FieldsV1\x3a\x1e\x0a\x1c{\"f:data\":{\".\":{},\"f:k\":{}}}\x42\x00";
    let mut meta = b"\x0a\x01a\x12\x00\x1a\x01n\x22\x00\x2a\x01u\x32\x017\x38\x00\x42\x04\x08\x09\x10\x00\x8a\x01".to_vec();
    meta.push(managed.len() as u8);
    meta.extend_from_slice(managed);
    let mut expected = vec![0x0a, meta.len() as u8];
    expected.extend_from_slice(&meta);
    expected.extend_from_slice(b"\x12\x06\x0a\x01k\x12\x01v");
    assert_eq!(bytes, expected);
}

#[test]
fn go_structs_held_by_value_are_always_present() {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {}, "ports": [{"containerPort": 80, "protocol": "TCP"}]}],
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "w", "configMap": {"name": "m"}}], "priority": 0},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-02T03:04:05Z"}]}
    });
    assert_eq!(round_trip(&object), object);
    let minimal = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {"containers": null}, "status": {}});
    assert_eq!(round_trip(&json!({"apiVersion": "v1", "kind": "Pod"})), minimal);
}

#[test]
fn special_types_round_trip() {
    for object in [
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {}, "status": {"loadBalancer": {}},
            "spec": {"ports": [{"port": 1, "targetPort": "web"}, {"port": 2, "targetPort": 8080}]}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"a": "AAH/", "b": ""}, "type": "Opaque"}),
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {},
            "spec": {"renewTime": "2026-01-02T03:04:05.000067Z", "leaseTransitions": 0}}),
        json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {}, "data": {"any": [1, "x", null]}, "revision": 3}),
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}, "spec": {},
            "status": {"user": {"username": "u", "extra": {"k": ["a", "b"]}}}}),
        json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": 404, "reason": "NotFound",
            "details": {"name": "n", "causes": [{"reason": "r", "field": "f"}]}}),
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {}, "spec": {"minAvailable": "50%"},
            "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 2,
                "disruptedPods": {"p": "2026-01-02T03:04:05Z"}}}),
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {},
            "spec": {"group": "g", "names": {"plural": "ps", "kind": "K"}, "scope": "Namespaced", "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "additionalProperties": {"type": "string"}, "maximum": 1.5,
                    "properties": {"a": {"items": {"type": "string"}, "additionalProperties": false, "default": {"x": 1}, "$ref": "r",
                        "x-kubernetes-int-or-string": true, "enum": [1, "a"]}}}}}]},
            "status": {"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": null}}),
    ] {
        assert_eq!(round_trip(&object), object);
    }
}

#[test]
fn quantities_become_canonical() {
    let list = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1000m", "memory": 1024}}}]}});
    let requests = &round_trip(&list)["spec"]["containers"][0]["resources"]["requests"];
    assert_eq!(*requests, json!({"cpu": "1", "memory": "1024"}));
}

#[test]
fn errors_name_the_field() {
    let wrong = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "a"}, {"name": 7}]}});
    let error = Transcoder::encode_envelope(&wrong).unwrap_err();
    assert_eq!(&*error.field, "spec.containers[1].name");
    let error = Transcoder::decode("v1", "Pod", b"\x12\x04\x12\x02\x0a\x09").unwrap_err();
    assert_eq!(&*error.field, "spec.containers[0].name");
    assert!(
        Transcoder::encode_envelope(&json!({"apiVersion": "example.com/v1", "kind": "Widget"}))
            .is_err()
    );
}

/// Absent fields have values, so that short messages make large objects. Repeated occurrences of a field are merged.
#[test]
fn the_number_of_values_of_a_body_is_limited() {
    let spec = |contents: &[u8]| {
        let mut pod = Vec::new();
        wire::bytes(&mut pod, 2, contents);
        pod
    };
    let containers = |count: usize| spec(&b"\x12\x00".repeat(count));
    for (pod, is_refused) in [
        (containers(10_000), false),
        (containers(500_000), true),
        (b"\x12\x00".repeat(1_000), false),
        (b"\x12\x00".repeat(500_000), true),
    ] {
        let error = Transcoder::decode_body("v1", "Pod", &pod).err().map(|error| error.to_string());
        assert_eq!(error.is_some(), is_refused, "{} bytes: {error:?}", pod.len());
        if let Some(error) = error {
            assert!(error.contains(json::TOO_MANY_VALUES), "{error}");
        }
    }
    // The values of JSON within a message count, too.
    let raw = |values: usize| {
        let mut raw = Vec::new();
        wire::bytes(&mut raw, 1, format!("[{}1]", "1,".repeat(values)).as_bytes());
        let mut revision = Vec::new();
        wire::bytes(&mut revision, 2, &raw);
        revision
    };
    let decode = |values| Transcoder::decode_body("apps/v1", "ControllerRevision", &raw(values));
    assert!(decode(1_000).is_ok());
    assert!(decode(json::MAX_VALUES).is_err_and(|e| e.to_string().contains(json::TOO_MANY_VALUES)));
    assert!(json::max_values(br#"{"a":[1,"b,[",{}],"c":null}"#) >= 6);
}

/// Random objects of all messages survive a conversion to protobuf and back. Each message has its own seeds.
#[test]
fn any_object_round_trips() {
    for (number, name) in Schema::get().names().enumerate() {
        let descriptor = Schema::get().named(name).unwrap();
        if descriptor.form != Form::Object {
            continue;
        }
        for round in 0..3 {
            let object = arbitrary::Random(number as u64 * 3 + round).message(descriptor, 4);
            let bytes = encode::encode(descriptor, &object)
                .unwrap_or_else(|error| panic!("{name}: {error:?} in {object}"));
            let decoded = decode::decode(descriptor, &bytes, &mut Budget::new(usize::MAX))
                .unwrap_or_else(|error| panic!("{name}: {error:?} in {object}"));
            let again = encode::encode(descriptor, &decoded).unwrap();
            assert_eq!(bytes, again, "{name}: {object} became {decoded}");
        }
    }
}

/// Recorded responses of upstream's server have the same object in JSON and in protobuf, which is compared field by
/// field.
#[test]
fn recorded_responses_are_reproduced() {
    let answers: Value =
        serde_json::from_str(include_str!("../../data/recorded-protobuf.json")).unwrap();
    let mut compared_count = 0;
    for pair in answers.as_array().unwrap() {
        let object: Value = fill(&pair["json"]);
        let (api_version, kind) =
            (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        let bytes = Transcoder::encode(api_version, kind, &object).unwrap();
        let found = tree(&bytes, &pair["raw"]);
        assert_eq!(found, pair["raw"], "{kind}");
        compared_count += 1;
    }
    assert!(compared_count >= 3, "{compared_count}");
}

/// Replaces the placeholders of the recording with values.
fn fill(value: &Value) -> Value {
    match value {
        Value::String(text) if text == "<time>" => "2026-01-02T03:04:05Z".into(),
        Value::Array(items) => items.iter().map(fill).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), fill(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

/// Returns the bytes of a message in the recording's notation, decoded by the expected types.
fn tree(bytes: &[u8], expected: &Value) -> Value {
    let mut reader = crate::decode::Reader::new(bytes);
    let mut fields = Vec::new();
    while let Some((number, wire)) = reader.tag().unwrap() {
        let expected = &expected[fields.len()][1];
        let value = match wire {
            crate::decode::Wire::Varint => match reader.varint().unwrap() {
                _ if expected.is_string() => expected.clone(),
                number => number.into(),
            },
            crate::decode::Wire::Len if expected.is_array() => {
                tree(reader.bytes().unwrap(), expected)
            }
            crate::decode::Wire::Len => {
                let text = String::from_utf8(reader.bytes().unwrap().to_vec()).unwrap();
                let hidden = expected.as_str().is_some_and(|expected| expected.starts_with('<'));
                if hidden { expected.clone() } else { text.into() }
            }
            other => panic!("{other:?}"),
        };
        fields.push(serde_json::json!([number, value]));
    }
    fields.into()
}
