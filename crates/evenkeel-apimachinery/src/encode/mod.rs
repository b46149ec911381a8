//! Values as bytes: indented JSON, YAML, protobuf's frames, and what the `Accept` header asks for.

pub mod accept;
pub mod pretty;
pub mod protobuf_frame;
pub mod yaml;
