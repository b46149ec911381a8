//! Webhooks of operators.
