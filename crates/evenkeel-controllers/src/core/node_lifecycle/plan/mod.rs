//! What is decided about nodes, each part by itself and without knowing what time it is.

pub(super) mod evict;
pub(super) mod health;
pub(super) mod marks;
pub(super) mod pods;
pub(super) mod refusal;
pub(super) mod silence;
pub(super) mod zones;
