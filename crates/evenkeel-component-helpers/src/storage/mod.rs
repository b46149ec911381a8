//! Volumes and claims: their binding, the claims of a pod, and the names of volumes in CSI drivers.
//!
//! Upstream: `k8s.io/component-helpers/storage`.

pub mod attach;
pub mod claims;
pub mod csi_translation;
pub mod ephemeral;
pub mod volume;
