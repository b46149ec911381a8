//! Printers: the cells of the columns that `kubectl get` shows for each kind. Each API group has its file. A function is named after the kind
//! whose cells it returns.
//!
//! Upstream: `k8s.io/kubernetes/pkg/printers/internalversion/printers.go`.

mod admissionregistration;
mod apiextensions;
mod apiregistration;
pub mod cells;
mod certificates;
mod coordination;
mod core;
mod discovery;
pub mod duration;
mod flowcontrol;
mod metrics;
mod networking;
mod node;
mod pod;
mod policy;
mod rbac;
mod resource;
mod scheduling;
mod storage;
mod storagemigration;
mod workloads;

use cells::{Cells, PrintedObject};
use serde_json::Value;

/// Function that returns the cells of an object's table row, one per column of its kind.
pub(super) type Printer = fn(&PrintedObject<'_>) -> Cells;

/// Printer of the rows of one list.
pub type RowPrinter = Box<dyn Fn(&PrintedObject<'_>) -> Cells + Send>;

/// Function that reads all objects of a list and returns the printer of its rows.
pub(super) type ListPrinter = fn(&mut dyn Iterator<Item = Value>) -> RowPrinter;

/// Returns the list printer of a built-in kind whose rows depend on the other objects of the list. The rows of most
/// kinds do not, and a single object has the row of its [`printer`].
pub fn list_printer(group: &str, kind: &str) -> Option<ListPrinter> {
    match group {
        "storage.k8s.io" => storage::list_printer(kind),
        _ => None,
    }
}

/// Function that returns the key by which the rows of a list are sorted.
pub type RowOrder = fn(&Value) -> (i64, String);

/// Returns the order of the rows of a built-in kind, if it is not that of the list, by name.
pub fn row_order(group: &str, kind: &str) -> Option<RowOrder> {
    match (group, kind) {
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => Some(flowcontrol::row_order),
        _ => None,
    }
}

/// Returns the printer of a built-in kind, or `None` for custom resources.
pub fn printer(group: &str, kind: &str) -> Option<Printer> {
    match group {
        "" => core::printer(kind),
        "apps" | "batch" | "autoscaling" => workloads::printer(kind),
        "metrics.k8s.io" => metrics::printer(kind),
        "events.k8s.io" => core::printer("Event"),
        "admissionregistration.k8s.io" => admissionregistration::printer(kind),
        "apiextensions.k8s.io" => apiextensions::printer(kind),
        "apiregistration.k8s.io" => apiregistration::printer(kind),
        "certificates.k8s.io" => certificates::printer(kind),
        "coordination.k8s.io" => coordination::printer(kind),
        "discovery.k8s.io" => discovery::printer(kind),
        "flowcontrol.apiserver.k8s.io" => flowcontrol::printer(kind),
        "networking.k8s.io" => networking::printer(kind),
        "node.k8s.io" => node::printer(kind),
        "policy" => policy::printer(kind),
        "rbac.authorization.k8s.io" => rbac::printer(kind),
        "resource.k8s.io" => resource::printer(kind),
        "scheduling.k8s.io" => scheduling::printer(kind),
        "storage.k8s.io" => storage::printer(kind),
        "storagemigration.k8s.io" => storagemigration::printer(kind),
        _ => None,
    }
}
