//! Expressions in CEL: compiled once, asked many times, with a bound on what they may cost.
//!
//! The `cel` crate reads them. They are evaluated here, over borrowed JSON, because what upstream's API promises beyond
//! a value lies in the evaluation: each step has a cost and too many of them end it, fields have the types of their
//! schema, and a rule that may cost too much is refused before it is stored ([`check`]).

mod call;
pub(crate) mod check;
mod eval;
mod functions;
mod names;
mod types;
mod value;

use cel::parser::{Expression, Parser};

pub(crate) use eval::{Failure, Scope};
#[cfg(test)]
use names::escape;
pub(crate) use names::unescape;
pub(crate) use types::Type;
pub(crate) use value::Val;

/// What one expression may cost (upstream: `apis/cel.PerCallLimit`).
pub(crate) const PER_CALL: u64 = 1_000_000;
/// What all expressions about one object may cost together (upstream: `RuntimeCELCostBudget`).
pub(crate) const BUDGET: u64 = 10_000_000;

/// An expression, read.
#[derive(Debug)]
pub(crate) struct Program {
    expression: Expression,
}

impl Program {
    /// Reads an expression; the error is what is wrong with its syntax.
    pub(crate) fn parse(source: &str) -> Result<Self, String> {
        Parser::new()
            .enable_optional_syntax(true)
            .enable_ident_escape_syntax(true)
            .parse(source)
            .map(|expression| Self { expression })
            .map_err(|errors| format!("compilation failed: {errors}"))
    }

    /// Whether a variable is used.
    pub(crate) fn uses(&self, variable: &str) -> bool {
        names::uses(&self.expression, variable)
    }

    /// Evaluates it. What it cost is taken from `budget`, which ends the evaluation when it is used up.
    pub(crate) fn run<'a>(
        &'a self,
        scope: &Scope<'a>,
        budget: &mut u64,
    ) -> Result<Val<'a>, Failure> {
        eval::run(&self.expression, scope, budget)
    }
}

#[cfg(test)]
mod tests;
