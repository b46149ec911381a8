//! Interface through which the checker reads schemas.

use crate::value::Schema;

/// Schema with the bounds that the cost estimate needs. Upstream: `apiserver/pkg/cel/common.Schema`.
pub trait Declaration: Schema {
    /// Whether values are integers or strings, which an expression treats as `dyn`.
    fn is_int_or_string(&self) -> bool;
    /// Whether values are objects with their own `apiVersion`, `kind` and metadata.
    fn is_embedded(&self) -> bool;
    /// Returns the schema of a list's elements.
    fn element(&self) -> Option<&dyn Declaration>;
    /// Returns the schema of a map's values.
    fn additional(&self) -> Option<&dyn Declaration>;
    /// Returns the schema of a named field.
    fn property(&self, name: &str) -> Option<&dyn Declaration>;
    /// Returns the number of named fields.
    fn n_properties(&self) -> usize;
    /// Returns the maximum number of elements of a list; `None` without a bound.
    fn max_items(&self) -> Option<u64>;
    /// Returns the maximum number of entries of a map; `None` without a bound.
    fn max_properties(&self) -> Option<u64>;
    /// Returns the maximum number of characters of a string; `None` without a bound.
    fn max_length(&self) -> Option<u64>;
    /// Returns the length in bytes of the longest value of an enumeration; `None` if the schema has no enumeration.
    fn longest_value(&self) -> Option<u64>;
    /// Returns the named fields that a value must have and that no default fills in.
    fn required(&self) -> Vec<(&str, &dyn Declaration)>;
}
