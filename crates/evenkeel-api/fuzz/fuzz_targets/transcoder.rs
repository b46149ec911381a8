//! What decodes can be encoded, and then stays as it is.
#![no_main]

use evenkeel_api::protobuf::Transcoder;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = Transcoder::decode_envelope(data);
    for (api_version, kind) in [("v1", "Pod"), ("apps/v1", "ControllerRevision"), ("apiextensions.k8s.io/v1", "CustomResourceDefinition")] {
        let Ok(object) = Transcoder::decode(api_version, kind, data) else { continue };
        let Ok(bytes) = Transcoder::encode(api_version, kind, &object) else { continue };
        let again = Transcoder::decode(api_version, kind, &bytes).expect("what was encoded decodes");
        assert_eq!(Transcoder::encode(api_version, kind, &again).expect("and encodes"), bytes);
    }
});
