//! Rules that match pods with nodes.

pub mod corev1;
