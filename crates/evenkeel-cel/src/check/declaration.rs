//! Interface to schemas: what the checker must know of one.

use crate::value::Schema;

/// A schema with the bounds that the estimate of costs needs (upstream: `apiserver/pkg/cel/common.Schema`).
pub trait Declaration: Schema {
    /// Whether values are either integers or strings, which an expression sees as `dyn`.
    fn is_int_or_string(&self) -> bool;
    /// Whether values are objects with `apiVersion`, `kind` and metadata of their own.
    fn is_embedded(&self) -> bool;
    /// The schema of a list's elements.
    fn element(&self) -> Option<&dyn Declaration>;
    /// The schema of a map's values.
    fn additional(&self) -> Option<&dyn Declaration>;
    /// The schema of a named field.
    fn property(&self, name: &str) -> Option<&dyn Declaration>;
    /// The number of named fields.
    fn n_properties(&self) -> usize;
    /// The most elements of a list, where the schema bounds them.
    fn max_items(&self) -> Option<u64>;
    /// The most entries of a map, where the schema bounds them.
    fn max_properties(&self) -> Option<u64>;
    /// The most characters of a string, where the schema bounds them.
    fn max_length(&self) -> Option<u64>;
    /// The bytes of the longest value of an enumeration; none where any value is allowed.
    fn longest_value(&self) -> Option<u64>;
    /// The named fields that a value must bring, as no default fills them in.
    fn required(&self) -> Vec<(&str, &dyn Declaration)>;
}
