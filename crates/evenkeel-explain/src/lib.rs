//! Explains the state of an object: the causes in the fields and events of the object and its dependents; the
//! observations, next actions and waits of their controllers; and the scheduler's evaluation of a pod. It only reads.
//! `evenkeel explain` prints an explanation, and the console shows it.

mod cause;
mod causes;
mod choose;
mod objects;
mod scheduler;
mod tree;

pub use cause::Cause;
pub use causes::of_objects as causes;
pub use objects::{NoSuchObject, Objects, Owner, owners, read};
pub use scheduler::{LiveScheduler, Unsynced};
pub use tree::{Explained, Limits, Sections, Source, explain, facts, needs_attention, sections};
