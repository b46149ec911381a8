//! Lean views: one definition each, decoded from JSON and from protobuf.
