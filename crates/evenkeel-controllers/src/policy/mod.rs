//! Controllers of the policy API: disruption budgets.

pub mod disruption_budget;
