//! Why an object is as it is: what it and its dependents say themselves, what their controllers observe, would do and wait
//! for, and how the scheduler evaluates a pod. It only reads. `evenkeel explain` prints an explanation, and the console shows
//! it.

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
