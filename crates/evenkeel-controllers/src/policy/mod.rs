//! Controllers of the policy API: disruption budgets.

pub mod poddisruptionbudget;
