//! Tests that span several modules.
#![expect(clippy::unwrap_used, reason = "a test that lacks what it needs has failed")]

mod client;
mod serving;
mod world;
