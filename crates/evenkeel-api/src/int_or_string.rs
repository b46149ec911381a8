//! IntOrString and percentages.
