//! Expressions in CEL: compiled once, asked many times, with a bound on what they may cost.
//!
//! The `cel` crate reads them. They are evaluated here, over borrowed JSON, because what upstream's API promises beyond
//! a value lies in the evaluation: each step has a cost and too many of them end it, and fields have the types of their
//! schema.
//!
//! ```
//! use evenkeel_cel::{Program, Scope, Val};
//! let object = serde_json::json!({"replicas": 3});
//! let program = Program::parse("self.replicas > 2").unwrap();
//! let scope = Scope::default().with("self", Val::of(&object, None));
//! assert!(matches!(program.run(&scope, &mut 1000), Ok(Val::Bool(true))));
//! ```

mod bounds;
mod call;
pub mod check;
mod eval;
pub mod formats;
mod functions;
mod names;
mod report;
mod value;

use cel::parser::{Expression, Parser};

pub use eval::{Failure, Scope};
#[cfg(test)]
use names::escape;
pub use names::{named, unescape};
pub use value::{Schema, Url, Val};

/// Cost limit of one expression (upstream: `apis/cel.PerCallLimit`).
pub const PER_CALL: u64 = 1_000_000;
/// Cost budget of all expressions about one object (upstream: `RuntimeCELCostBudget`).
pub const BUDGET: u64 = 10_000_000;

/// An expression, read.
#[derive(Debug)]
pub struct Program {
    expression: Expression,
    source: Box<str>,
}

impl Program {
    /// Reads an expression.
    ///
    /// # Errors
    /// Syntax error of the expression.
    pub fn parse(source: &str) -> Result<Self, String> {
        bounds::check(source).map_err(|error| format!("compilation failed: {error}"))?;
        // The parser looks ahead by recursion: in debug builds, some brackets take all of a worker's stack.
        let parsed = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(PARSER_STACK);
            let parsing = thread.spawn_scoped(scope, || read(source))?;
            parsing.join().map_err(|_| std::io::Error::other("the parser failed"))
        });
        parsed
            .unwrap_or_else(|error| Err(error.to_string()))
            .map(|expression| Self { expression, source: source.into() })
            .map_err(|error| format!("compilation failed: {}", report::with_places(source, &error)))
    }

    /// Returns the parsed expression.
    pub fn expression(&self) -> &Expression {
        &self.expression
    }

    /// Returns the text of the expression.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Whether a variable is used.
    pub fn uses(&self, variable: &str) -> bool {
        names::uses(&self.expression, variable)
    }

    /// Whether a field of a variable is read by its name.
    pub fn selects(&self, variable: &str, field: &str) -> bool {
        names::selects(&self.expression, variable, field)
    }

    /// Evaluates it. What it cost is taken from `budget`, which ends the evaluation when it is used up.
    ///
    /// # Errors
    /// Error of an evaluation.
    pub fn run<'a>(&'a self, scope: &Scope<'a>, budget: &mut u64) -> Result<Val<'a>, Failure> {
        eval::run(&self.expression, scope, budget)
    }
}

/// The stack that the parser gets, of which only what is used takes memory.
const PARSER_STACK: usize = 64 * 1024 * 1024;

fn read(source: &str) -> Result<Expression, String> {
    let parser = Parser::new()
        .max_recursion_depth(bounds::MAX_NESTED)
        .enable_optional_syntax(true)
        .enable_ident_escape_syntax(true);
    parser.parse(source).map_err(|errors| errors.to_string())
}

#[cfg(test)]
mod tests;
