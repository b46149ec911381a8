//! Tests of the crate's public behavior: tables of upstream's known cases, and properties.

#![expect(clippy::unwrap_used, reason = "the whole binary is tests")]

mod hashes;
mod quantities;
mod selectors;
mod templates;
mod values;
mod views;
mod wire;
