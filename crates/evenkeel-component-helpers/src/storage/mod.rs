//! Volumes and claims: which fit each other, which of them a pod uses, and what CSI drivers call them.
//!
//! Upstream: `k8s.io/component-helpers/storage`.

pub mod attach;
pub mod claims;
pub mod csi_translation;
pub mod ephemeral;
pub mod volume;
