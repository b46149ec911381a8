use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::protobuf::{Transcoder, arbitrary::Random, schema};
use crate::{Encoding, View};

/// Checks that a random object decodes to the same view from both encodings. Returns its protobuf bytes.
fn check_parity<V: View + PartialEq + std::fmt::Debug>(seed: u64) -> Vec<u8> {
    let kind = V::kind();
    let (api_version, kind) = (kind.api_version(), &*kind.kind);
    let object = Random(seed).message(schema::message_of(&api_version, kind).unwrap(), 6);
    let text = object.to_string();
    let bytes = Transcoder::encode(&api_version, kind, &object).unwrap();
    let from_json = V::decode(text.as_bytes(), Encoding::Json)
        .unwrap_or_else(|error| panic!("{error}: {text}"));
    let from_protobuf =
        V::decode(&bytes, Encoding::Protobuf).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(from_json, from_protobuf, "{text}");
    bytes
}

/// Corrupts the bytes in many ways, and checks that decoding them does not panic.
fn check_broken<V: View>(bytes: &[u8], seed: u64) {
    let mut random = Random(seed);
    for _ in 0..20 {
        let mut broken = bytes.to_vec();
        for _ in 0..=random.below(3) {
            if broken.is_empty() {
                break;
            }
            let index = random.below(broken.len() as u64) as usize;
            match random.below(4) {
                0 => broken.truncate(index),
                1 => broken[index] = random.below(256) as u8,
                2 => broken[index] ^= 1 << random.below(8),
                _ => drop(broken.remove(index)),
            }
        }
        let _ = V::decode(&broken, Encoding::Protobuf);
        let _ = V::decode(&broken, Encoding::Json);
    }
}

macro_rules! check_encodings {
    ($($view:ident),*) => {
        proptest! {
            #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
            #[test]
            fn encodings_agree_and_corrupt_bytes_never_panic(seed: u64) {
                $(check_broken::<$view>(&check_parity::<$view>(seed), seed);)*
            }
        }
    };
}

with_all_views!(check_encodings);

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_decode_without_panic(bytes: Vec<u8>) {
        for encoding in [Encoding::Json, Encoding::Protobuf] {
            let _ = Pod::decode(&bytes, encoding);
            let _ = Deployment::decode(&bytes, encoding);
            let _ = crate::list::List::<Pod>::decode(&bytes, encoding);
            let _ = crate::status::Status::decode(&bytes, encoding);
            let _ = crate::watch::Event::read(&bytes, encoding);
        }
        let _ = Transcoder::decode("v1", "Pod", &bytes);
        let _ = Transcoder::decode("apiextensions.k8s.io/v1", "CustomResourceDefinition", &bytes);
        let _ = Transcoder::decode_envelope(&[b"k8s\0", &*bytes].concat());
    }
}

fn decode<V: View>(value: &serde_json::Value) -> Result<V, crate::DecodeError> {
    V::decode(value.to_string().as_bytes(), Encoding::Json)
}

#[test]
fn nulls_and_unknown_fields_are_ignored() {
    let pod: Pod = decode(&json!({
        "apiVersion": "v1", "kind": "Pod", "future": [{"a": null}],
        "metadata": {"name": "p", "labels": null, "ownerReferences": null, "managedFields": [{"fieldsV1": {"f:a": {}}}],
            "creationTimestamp": null, "deletionTimestamp": "2026-01-02T03:04:05Z"},
        "spec": {"nodeName": null, "containers": [{"name": "c", "image": "i", "env": [{"name": "x"}]}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "d"}}]},
        "status": null,
    }))
    .unwrap();
    assert_eq!((&*pod.meta.name, pod.meta.creation, pod.meta.deleting()), ("p", None, true));
    assert_eq!((&*pod.spec.node_name, &*pod.spec.containers[0].image), ("", "i"));
    assert_eq!(
        &*pod.spec.volumes[0].source.persistent_volume_claim.as_ref().unwrap().claim_name,
        "d"
    );
    assert_eq!(pod.status, PodStatus::default());
}

#[test]
fn errors_name_the_field() {
    let error = decode::<Pod>(
        &json!({"spec": {"containers": [{}, {"ports": [{"containerPort": "http"}]}]}}),
    )
    .unwrap_err();
    assert_eq!(&*error.field, "spec.containers[1].ports[0].containerPort");
    let error = decode::<Node>(&json!({"status": {"capacity": {"cpu": "lots"}}})).unwrap_err();
    assert_eq!(&*error.field, "status.capacity.cpu");
    let error = decode::<Lease>(&json!({"spec": {"renewTime": "soon"}})).unwrap_err();
    assert_eq!(&*error.field, "spec.renewTime");
    // `metadata` (1) with two bytes: `name` (1) with a length of nine.
    let error = Pod::decode(b"\x0a\x02\x0a\x09", Encoding::Protobuf).unwrap_err();
    assert_eq!((&*error.kind, &*error.field), ("Pod", "metadata.name"));
    // `spec` (2) as an integer.
    let error = Pod::decode(b"\x10\x01", Encoding::Protobuf).unwrap_err();
    assert_eq!(&*error.field, "spec");
}

#[test]
fn split_messages_are_merged_and_groups_skipped() {
    // metadata {name: "a"}, a group 9 {1: 0}, metadata {namespace: "b", labels {k: "vw"}}
    let bytes = b"\x0a\x03\x0a\x01a\x4b\x08\x00\x4c\x0a\x0c\x1a\x01b\x5a\x07\x0a\x01k\x12\x02vw";
    let pod = Pod::decode(&bytes[..], Encoding::Protobuf).unwrap();
    assert_eq!(
        (&*pod.meta.name, &*pod.meta.namespace, pod.meta.labels.get("k")),
        ("a", "b", Some("vw"))
    );
    assert!(Pod::decode(b"\x4b\x08\x00", Encoding::Protobuf).is_err());
    assert!(Pod::decode(b"\x4c", Encoding::Protobuf).is_err());
}

#[test]
fn invalid_selector_does_not_invalidate_the_object() {
    let set: ReplicaSet = decode(&json!({"metadata": {"name": "r"}, "spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}})).unwrap();
    assert!(set.spec.selector.error().unwrap().contains("Near"));
    assert!(!set.spec.selector.matches(&crate::StrMap::default()));
}

#[test]
fn replication_controller_without_selector_selects_nothing() {
    let controller: ReplicationController =
        decode(&json!({"spec": {"selector": {"a": "b"}}})).unwrap();
    assert!(controller.spec.selector.matches(&[("a", "b")].into_iter().collect()));
    assert!(
        decode::<ReplicationController>(&json!({"spec": {}})).unwrap().spec.selector.is_nothing()
    );
}

#[test]
fn invalid_list_item_does_not_fail_the_list() {
    let list = json!({"kind": "PodList", "items": [{"metadata": {"name": "a"}}, {"metadata": 3}], "metadata": {"resourceVersion": "9", "continue": "c", "remainingItemCount": 4}});
    let text = list.to_string();
    let mut found = Vec::new();
    let meta = crate::list::items(text.as_bytes(), Encoding::Json, &mut |item| {
        found.push(Metadata::decode(item, Encoding::Json));
    })
    .unwrap();
    assert_eq!(
        (&*meta.resource_version, &*meta.continue_, meta.remaining_item_count),
        ("9", "c", Some(4))
    );
    assert_eq!(&*found[0].as_ref().unwrap().meta.name, "a");
    assert!(found[1].is_err());
}

#[test]
fn protobuf_list_items_are_decoded() {
    let list = json!({"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "a"}}], "metadata": {"resourceVersion": "9"}});
    let bytes = Transcoder::encode("v1", "PodList", &list).unwrap();
    let mut names = Vec::new();
    let meta = crate::list::items(&bytes, Encoding::Protobuf, &mut |item| {
        names.push(Pod::decode(item, Encoding::Protobuf).unwrap().meta.name);
    })
    .unwrap();
    assert_eq!((&*meta.resource_version, &*names[0]), ("9", "a"));
}

#[test]
fn watch_event_object_is_decoded() {
    let event = crate::watch::Event::read(
        br#"{"type":"DELETED","object":{"metadata":{"name":"b"}}}"#,
        Encoding::Json,
    )
    .unwrap();
    assert_eq!(&*Metadata::decode(event.object, Encoding::Json).unwrap().meta.name, "b");
}
