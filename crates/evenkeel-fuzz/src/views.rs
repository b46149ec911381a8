//! Fuzz target for the data that clients read: objects, lists, statuses and watch events, in both encodings.

use evenkeel_api::protobuf::Transcoder;
use evenkeel_api::{Encoding, View, list, status, views, watch};

/// Decodes an object in JSON and in protobuf. Decoding may fail, but must not panic.
fn decode_in_both_encodings<V: View>(data: &[u8]) {
    let _ = V::decode(data, Encoding::Json);
    let _ = V::decode(data, Encoding::Protobuf);
}

/// Decodes the bytes as each type that clients read, and asserts that transcoding reaches a fixed point.
pub(crate) fn views(data: &[u8]) {
    decode_in_both_encodings::<views::Pod>(data);
    decode_in_both_encodings::<views::Node>(data);
    decode_in_both_encodings::<views::Deployment>(data);
    decode_in_both_encodings::<views::ReplicationController>(data);
    decode_in_both_encodings::<views::Service>(data);
    decode_in_both_encodings::<views::PodDisruptionBudget>(data);
    decode_in_both_encodings::<views::Lease>(data);
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        let _ = list::List::<views::Metadata>::decode(data, encoding);
        let _ = status::Status::decode(data, encoding);
        let _ = watch::Event::read(data, encoding);
        let mut frames = watch::Frames::new(encoding);
        let (first, second) = data.split_at(data.len() / 2);
        for chunk in [first, second] {
            frames.push(chunk.to_vec().into());
            while let Ok(Some(frame)) = frames.next_frame() {
                let _ = watch::Event::read(&frame, encoding);
            }
        }
    }
    transcoding_reaches_a_fixed_point(data);
}

/// Asserts that an object decoded from protobuf encodes to stable bytes: decoding and encoding them again yields
/// the same bytes.
fn transcoding_reaches_a_fixed_point(data: &[u8]) {
    for (api_version, kind) in [
        ("v1", "Pod"),
        ("apps/v1", "ControllerRevision"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ] {
        let Ok(object) = Transcoder::decode(api_version, kind, data) else { continue };
        let Ok(bytes) = Transcoder::encode(api_version, kind, &object) else { continue };
        let again = Transcoder::decode(api_version, kind, &bytes).expect("encoded bytes decode");
        let encoded =
            Transcoder::encode(api_version, kind, &again).expect("a decoded object can be encoded");
        assert_eq!(encoded, bytes, "encoding a decoded object again yields the same bytes");
    }
}
