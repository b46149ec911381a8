//! Node table, upstream's cache of NodeInfo: one column for each property that filters and scores read.
//!
//! A node keeps its slot while it exists. Pods count on the node to which they are bound or assumed. Assuming and forgetting a
//! pod are the same operations as adding and removing one.
//!
//! Upstream: `pkg/scheduler/backend/cache`, `NodeInfo`.

mod images;
mod labels;
mod order;
mod pod_index;
mod table;
mod taints;
#[cfg(test)]
mod tests;

pub use images::Image;
pub use labels::LabelColumn;
pub(crate) use pod_index::{PerNode, RuleKind, Scope, ScopeId, terms};
pub use table::{NodeRef, NodeTable, Slot};
