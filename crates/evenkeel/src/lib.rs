//! Commands of `evenkeel` that tests and other programs call, too: `explain` and `schedule`.

pub mod explain;
pub mod schedule;
pub mod schedulers;
