//! Printers: the table row of each kind, as `kubectl get` shows it.
//!
//! Upstream: `k8s.io/kubernetes/pkg/printers/internalversion/printers.go`.

pub mod cells;
mod core;
pub mod duration;
mod metrics;
mod objects;
mod pod;
mod workloads;

use cells::{Cells, PrintedObject};

/// Returns the cells of an object.
pub(super) type Printer = fn(&PrintedObject<'_>) -> Cells;

/// Returns the printer of a built-in kind; `None` for custom resources.
pub fn printer(group: &str, kind: &str) -> Option<Printer> {
    match group {
        "" => core::printer(kind),
        "apps" | "batch" | "autoscaling" => workloads::printer(kind),
        "metrics.k8s.io" => metrics::printer(kind),
        "events.k8s.io" => core::printer("Event"),
        _ => objects::printer(group, kind),
    }
}
