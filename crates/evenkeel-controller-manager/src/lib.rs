//! The drop-in kube-controller-manager: options, descriptors, start order, serving.

pub mod flags;
pub mod options;
