//! Encodings of responses: indented JSON, YAML and protobuf frames, and the `Accept` header that chooses one.

pub mod accept;
pub mod pretty;
pub mod protobuf_frame;
pub mod yaml;
