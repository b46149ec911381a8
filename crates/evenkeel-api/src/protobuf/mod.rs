//! The Kubernetes protobuf encoding.
