//! Controllers of the autoscaling API.

pub mod horizontalpodautoscaler;
