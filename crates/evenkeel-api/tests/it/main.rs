//! What the crate promises, by tables of upstream's known cases and by properties.

#![expect(clippy::unwrap_used, reason = "the whole binary is tests")]

mod hashes;
mod quantities;
mod selectors;
mod templates;
mod values;
mod views;
mod wire;
