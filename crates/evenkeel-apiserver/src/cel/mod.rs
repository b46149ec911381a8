//! Expressions in CEL: evaluated by `evenkeel_cel`; what one may come to and cost is told here before it is stored
//! ([`check`]), by the schemas of the objects it is about.

pub(crate) mod check;
mod types;

pub(crate) use evenkeel_cel::{BUDGET, Failure, PER_CALL, Program, Scope, Val, unescape};
pub(crate) use types::Type;
