//! Views of objects as clients decode them: any bytes are an object or an error, in both encodings.

use evenkeel_api::protobuf::Transcoder;
use evenkeel_api::{Encoding, View, list, status, views, watch};

fn both<V: View>(data: &[u8]) {
    let _ = V::decode(data, Encoding::Json);
    let _ = V::decode(data, Encoding::Protobuf);
}

/// Objects, lists, statuses and watch events; and messages of single kinds, which can be encoded and then stay as they are.
pub(crate) fn views(data: &[u8]) {
    both::<views::Pod>(data);
    both::<views::Node>(data);
    both::<views::Deployment>(data);
    both::<views::ReplicationController>(data);
    both::<views::Service>(data);
    both::<views::PodDisruptionBudget>(data);
    both::<views::Lease>(data);
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        let _ = list::List::<views::Metadata>::decode(data, encoding);
        let _ = status::Status::decode(data, encoding);
        let _ = watch::Event::read(data, encoding);
        let mut frames = watch::Frames::new(encoding);
        let (first, second) = data.split_at(data.len() / 2);
        for chunk in [first, second] {
            frames.push(chunk.to_vec().into());
            while let Ok(Some(frame)) = frames.cut() {
                let _ = watch::Event::read(&frame, encoding);
            }
        }
    }
    for (api_version, kind) in [
        ("v1", "Pod"),
        ("apps/v1", "ControllerRevision"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ] {
        let Ok(object) = Transcoder::decode(api_version, kind, data) else { continue };
        let Ok(bytes) = Transcoder::encode(api_version, kind, &object) else { continue };
        let again =
            Transcoder::decode(api_version, kind, &bytes).expect("what was encoded decodes");
        let encoded = Transcoder::encode(api_version, kind, &again).expect("and can be encoded");
        assert_eq!(encoded, bytes, "an encoded object stays as it is");
    }
}
