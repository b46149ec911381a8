//! One row of a Table for each kind: what kubectl get shows.

pub mod cells;
mod core;
pub mod duration;
mod metrics;
mod objects;
mod pod;
mod workloads;

use cells::{Cells, Shown};

/// Makes the cells of an object in its stored version.
pub(super) type Printer = fn(&Shown<'_>) -> Cells;

/// The printer of a kind; `None` for custom resources.
pub fn of(group: &str, kind: &str) -> Option<Printer> {
    match group {
        "" => core::of(kind),
        "apps" | "batch" | "autoscaling" => workloads::of(kind),
        "metrics.k8s.io" => metrics::of(kind),
        "events.k8s.io" => core::of("Event"),
        _ => objects::of(group, kind),
    }
}
