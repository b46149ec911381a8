//! Node table, upstream's cache of NodeInfo: one column for each property that filters and scores read.
//!
//! A node keeps its slot while it exists. A pod uses resources of the node to which it is bound or on which it is
//! assumed. The table does not distinguish the two.
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
