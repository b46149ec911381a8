//! What the crate promises, by tables of upstream's known cases and by properties.

mod names;
mod quantities;
mod selectors;
mod templates;
mod values;
