//! Pod templates, kept as text.

use crate::StrMap;

/// A `PodTemplateSpec` as a workload's controller needs it: labels to compare, the rest to pass on unread.
///
/// The text is canonical JSON (sorted keys, nulls and empty lists left out, quantities in canonical form), whichever
/// encoding it came in, so that two templates are semantically equal exactly when their texts are.
///
/// Nothing is lost: a workload's controller also writes templates back whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template {
    /// `metadata.labels`.
    pub labels: StrMap,
    /// `metadata.annotations`.
    pub annotations: StrMap,
    /// `metadata.finalizers`.
    pub finalizers: Box<[Box<str>]>,
    /// `spec`, canonical JSON.
    pub spec: std::sync::Arc<str>,
}
