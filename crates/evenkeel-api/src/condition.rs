//! Conditions in a status.
