//! Iteration over all containers of a pod.

use evenkeel_apimachinery::validation::Path;
use evenkeel_apimachinery::value::list;
use serde_json::Value;

/// Lists of a pod's containers, in the order of upstream's visits.
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Calls `visit` with each container of a pod's spec and its path.
///
/// Upstream: `VisitContainersWithPath`.
pub(super) fn each_container<'a>(
    spec: &'a Value,
    path: &Path<'_>,
    mut visit: impl FnMut(&'a Value, &Path<'_>),
) {
    for field in LISTS {
        let list_path = path.field(field);
        for (index, container) in list(spec, field).iter().enumerate() {
            visit(container, &list_path.index(index));
        }
    }
}
