//! Resource quantities, in exact arithmetic.
