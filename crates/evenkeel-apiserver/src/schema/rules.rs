//! What a custom resource's schema demands of a value beyond its type.

use serde_json::Value;

/// Value validations of one schema node. Bounds are inclusive unless said otherwise.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Rules {
    pub nullable: bool,
    pub values: Option<Box<[Value]>>,
}
