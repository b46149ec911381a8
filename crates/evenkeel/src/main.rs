//! The `evenkeel` program.

fn main() {}
