//! CEL expressions: compiled once, evaluated many times, with a bound on the cost.
//!
//! The `cel` crate parses expressions. This crate evaluates them over borrowed JSON, because upstream's API
//! promises more than the result: each step has a cost, the budget ends an evaluation, and fields have the types of
//! their schema.
//!
//! ```
//! use evenkeel_cel::{Program, Scope, Val};
//! let object = serde_json::json!({"replicas": 3});
//! let program = Program::parse("self.replicas > 2").unwrap();
//! let scope = Scope::default().with("self", Val::of(&object, None));
//! assert!(matches!(program.run(&scope, &mut 1000), Ok(Val::Bool(true))));
//! ```

pub mod authorization;
mod bounds;
mod call;
pub mod check;
mod composed;
mod cost;
mod equality;
mod eval;
pub mod formats;
mod functions;
mod macros;
mod names;
mod report;
mod text;
mod url;
mod value;

use cel::parser::Expression;

pub use eval::{Failure, Scope};
pub use functions::{Semver, Time};
#[cfg(test)]
use names::escape;
pub use names::{named, unescape};
pub use text::Text;
pub use url::Url;
pub use value::{Schema, Val};

/// Cost limit of one evaluation. Upstream: `apis/cel.PerCallLimit`.
pub const PER_CALL: u64 = 1_000_000;
/// Cost budget of all expressions about one object. Upstream: `RuntimeCELCostBudget`.
pub const BUDGET: u64 = 10_000_000;

/// A parsed expression.
#[derive(Debug)]
pub struct Program {
    expression: Expression,
    source: Box<str>,
    depth: usize,
}

impl Program {
    /// Parses an expression.
    ///
    /// # Errors
    /// Syntax error of the expression.
    pub fn parse(source: &str) -> Result<Self, String> {
        bounds::check(source).map_err(|error| format!("compilation failed: {error}"))?;
        // The parser looks ahead by recursion. In debug builds, a few brackets fill a worker's stack.
        let parsed = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(PARSER_STACK);
            let parsing = thread.spawn_scoped(scope, || read(source))?;
            parsing.join().map_err(|_| std::io::Error::other("the parser failed"))
        });
        parsed
            .unwrap_or_else(|error| Err(error.to_string()))
            .map(|expression| {
                let depth = names::depth(&expression);
                Self { expression, source: source.into(), depth }
            })
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

    /// Returns the nesting of the expression's parts.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Whether the expression uses a variable.
    pub fn uses(&self, variable: &str) -> bool {
        names::uses(&self.expression, variable)
    }

    /// Whether the expression reads a field of a variable by the field's name.
    pub fn selects(&self, variable: &str, field: &str) -> bool {
        names::selects(&self.expression, variable, field)
    }

    /// Evaluates the expression. Deducts the cost from `budget`, and ends the evaluation when the budget is used
    /// up.
    ///
    /// # Errors
    /// The evaluation failed or exceeded the budget.
    pub fn run<'a>(&'a self, scope: &Scope<'a>, budget: &mut u64) -> Result<Val<'a>, Failure> {
        composed::run(self, scope, budget)
    }

    /// Evaluates the expression, of which one call may cost [`PER_CALL`]. `budget` pays for it and for the variables
    /// of [`Scope::composed`] that it uses first; `None` if the budget is used up.
    pub fn run_within<'a>(
        &'a self,
        scope: &Scope<'a>,
        budget: &mut u64,
    ) -> Option<Result<Val<'a>, Failure>> {
        composed::run_within(self, scope, budget)
    }
}

/// Stack size of the parser's thread in bytes. Only the used part takes memory.
const PARSER_STACK: usize = 64 * 1024 * 1024;

fn read(source: &str) -> Result<Expression, String> {
    let parser = macros::parser()
        .max_recursion_depth(bounds::MAX_NESTED)
        .enable_optional_syntax(true)
        .enable_ident_escape_syntax(true);
    parser.parse(source).map_err(|errors| errors.to_string())
}

#[cfg(test)]
mod tests;
