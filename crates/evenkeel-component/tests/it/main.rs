//! What goes beyond one module.

mod client;
mod serving;
mod world;
