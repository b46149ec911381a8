//! Which pods fit which nodes.

pub mod corev1;
