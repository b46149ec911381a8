//! The node table: what the filters and scores run on, one column for each thing they read.
//!
//! A node keeps its slot for as long as it is known. Pods are counted where they are bound or assumed to be; assuming and
//! forgetting are placing and removing, so that there is one kind of arithmetic.

mod census;
mod images;
mod labels;
mod order;
mod table;
mod taints;
#[cfg(test)]
mod tests;

pub(crate) use census::{PerNode, RuleKind, Scope, ScopeId, terms};
pub use images::Image;
pub use labels::LabelColumn;
pub use table::{NodeRef, NodeTable, Slot};
