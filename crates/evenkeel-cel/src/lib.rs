//! CEL expressions: compiled once, evaluated many times, with limited cost.
//!
//! The `cel` crate parses expressions. This crate evaluates them over borrowed JSON, because the Kubernetes API
//! defines more than the result: each step has a cost, an evaluation fails once it exceeds its budget, and fields have
//! the types of their schema.
//!
//! ```
//! use evenkeel_cel::{Program, Scope, Val};
//! let object = serde_json::json!({"replicas": 3});
//! let program = Program::parse("self.replicas > 2").unwrap();
//! let scope = Scope::default().with("self", Val::of(&object, None));
//! assert!(matches!(program.run(&scope, &mut 1000), Ok(Val::Bool(true))));
//! ```

pub mod admission;
pub mod authorization;
mod bounds;
mod brackets;
mod call;
pub mod check;
mod composed;
mod cost;
mod equality;
mod eval;
mod expand;
pub mod formats;
mod functions;
mod logic;
mod macros;
mod names;
mod parse;
pub mod patterns;
mod report;
pub mod shard_selector;
mod text;
mod url;
mod value;

use cel::parser::Expression;

pub use eval::{Failure, Scope};
pub use functions::{Semver, Time};
pub use names::{escape, type_named, unescape};
pub use text::Text;
pub use url::Url;
pub use value::{Schema, Val};

/// Cost limit of one evaluation of an expression. Upstream: `apis/cel.PerCallLimit`.
pub const PER_CALL_LIMIT: u64 = 1_000_000;
/// Cost budget for all expressions that validate one object. Upstream: `RuntimeCELCostBudget`.
pub const RUNTIME_COST_BUDGET: u64 = 10_000_000;

/// Libraries that only some expressions can use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extensions {
    /// The macro `cel.bind`.
    pub bindings: bool,
    /// The method `includes`.
    pub includes: bool,
    /// The types `JSONPatch` and `Object`, and the function `jsonpatch.escapeKey`.
    pub patches: bool,
}

/// A parsed expression.
#[derive(Debug)]
pub struct Program {
    expression: Expression,
    source: Box<str>,
    offsets: parse::Offsets,
    extensions: Extensions,
    /// Depth of the syntax tree.
    depth: usize,
}

impl Program {
    /// Parses an expression that uses no extension.
    ///
    /// # Errors
    /// Returns the syntax errors of the expression.
    pub fn parse(source: &str) -> Result<Self, String> {
        Self::parse_with(source, Extensions::default())
    }

    /// Parses an expression that may use these extensions.
    ///
    /// # Errors
    /// Returns the syntax errors of the expression.
    pub fn parse_with(source: &str, extensions: Extensions) -> Result<Self, String> {
        let (expression, offsets) = parse::parse(source, extensions)?;
        let depth = names::depth(&expression);
        Ok(Self { expression, source: source.into(), offsets, extensions, depth })
    }

    /// Returns the parsed expression.
    pub fn expression(&self) -> &Expression {
        &self.expression
    }

    /// Returns the source of the expression.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    pub(crate) fn extensions(&self) -> Extensions {
        self.extensions
    }

    /// Returns the location of a node of the expression.
    pub(crate) fn location(&self, id: u64) -> report::Location {
        let offset = self.offsets.get(id);
        offset.map_or(report::Location::NONE, |offset| {
            report::Location::of_offset(&self.source, offset)
        })
    }

    /// Returns the depth of the expression's syntax tree.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Returns whether the expression uses a variable.
    pub fn uses(&self, variable: &str) -> bool {
        names::uses(&self.expression, variable)
    }

    /// Returns whether the expression reads a field of a variable by the field's name.
    pub fn selects(&self, variable: &str, field: &str) -> bool {
        names::selects(&self.expression, variable, field)
    }

    /// Evaluates the expression. Deducts the cost from `budget`; the evaluation fails once the budget is exceeded.
    ///
    /// # Errors
    /// Fails if the evaluation failed or exceeded the budget.
    pub fn run<'a>(&'a self, scope: &Scope<'a>, budget: &mut u64) -> Result<Val<'a>, Failure> {
        composed::run(self, scope, budget)
    }

    /// Evaluates the expression at a cost of at most [`PER_CALL_LIMIT`]. Deducts from `budget` this cost, and the
    /// cost of the variables of [`Scope::with_composited_variables`] that are evaluated because this expression is
    /// the first to use them. `None` if the budget is exceeded.
    pub fn run_within<'a>(
        &'a self,
        scope: &Scope<'a>,
        budget: &mut u64,
    ) -> Option<Result<Val<'a>, Failure>> {
        composed::run_within(self, scope, budget)
    }
}

#[cfg(test)]
mod tests;
