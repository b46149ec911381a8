//! Controllers of the API group `policy`.

pub mod poddisruptionbudget;
