//! Commands of `evenkeel` that tests and other programs also call: `explain` and `schedule`.

pub mod explain;
pub mod schedule;
pub mod schedulers;
