//! Error responses of the API server: `metav1.Status`.

use crate::decode::{decode_message, message};
use crate::text::Text;
use crate::{DecodeError, Encoding};

message! {
    /// A `metav1.Status` with the fields that clients read.
    pub struct Status("k8s.io.apimachinery.pkg.apis.meta.v1.Status") {
        /// Description of the error for people; programs read `reason`.
        message: Text = 3 "message",
        /// Machine-readable reason, such as `AlreadyExists`.
        reason: Text = 4 "reason",
        /// Details of the reason.
        details: StatusDetails = 5 "details",
        /// HTTP status code; 0 if absent.
        code: i32 = 6 "code",
    }
}

message! {
    /// Details of a reason.
    pub struct StatusDetails("k8s.io.apimachinery.pkg.apis.meta.v1.StatusDetails") {
        /// Causes of the error.
        causes: Box<[StatusCause]> = 4 "causes",
        /// Seconds after which to retry; 0 if not specified.
        retry_after_seconds: i32 = 5 "retryAfterSeconds",
        /// uid of the object that the status is about; empty if not specified.
        uid: Text = 6 "uid",
    }
}

message! {
    /// One of possibly several causes of an error.
    pub struct StatusCause("k8s.io.apimachinery.pkg.apis.meta.v1.StatusCause") {
        /// Machine-readable reason, such as `FieldValueInvalid` or `NamespaceTerminating`.
        reason: Text = 1 "reason",
        /// Description of the cause, for people.
        message: Text = 2 "message",
        /// Path of the invalid field.
        field: Text = 3 "field",
    }
}

impl Status {
    /// Decodes a Status without an envelope.
    ///
    /// # Errors
    /// Fails if the bytes are not a Status.
    pub fn decode(bytes: &[u8], encoding: Encoding) -> Result<Self, DecodeError> {
        decode_message("Status", bytes, encoding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::{Envelope, Transcoder};
    use serde_json::json;

    #[test]
    fn status_is_decoded_from_both_encodings() {
        let object = json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "no", "reason": "Forbidden", "code": 403,
            "details": { "causes": [{ "reason": "NamespaceTerminating", "message": "being terminated" }], "retryAfterSeconds": 3 },
        });
        let sealed = Transcoder::encode_envelope(&object).unwrap();
        let text = object.to_string();
        let from_protobuf =
            Status::decode(Envelope::open(&sealed).unwrap().raw, Encoding::Protobuf).unwrap();
        assert_eq!(from_protobuf, Status::decode(text.as_bytes(), Encoding::Json).unwrap());
        let Status { code, reason, message, details } = from_protobuf;
        assert_eq!((code, &*reason, &*message), (403, "Forbidden", "no"));
        assert_eq!(&*details.causes[0].reason, "NamespaceTerminating");
        assert_eq!(details.retry_after_seconds, 3);
    }
}
