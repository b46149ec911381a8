//! Static checks of expressions: types, literals and maximum cost, before evaluation.
//!
//! Upstream: cel-go's checker and validators, and `cel/library/cost.go`.

mod calls;
mod checker;
mod constants;
mod costs;
mod declared;
mod estimates;
mod format_strings;
mod functions;
mod idents;
mod literals;
mod range;
mod types;
mod unify;

use std::collections::HashMap;

pub use declared::Declared;
pub(crate) use idents::TYPES;
pub use types::Type;

use crate::Program;
use crate::report::Found;
use functions::Overload;

/// Variable that an expression can use.
#[derive(Debug, Clone)]
pub struct Variable {
    /// Name of the variable; it may be qualified: `a.b`.
    pub name: &'static str,
    /// Static type of its values.
    pub kind: Type,
}

impl Variable {
    /// Returns a variable with a type.
    pub fn new(name: &'static str, kind: Type) -> Self {
        Self { name, kind }
    }
}

/// Result of the static checks of an expression.
#[derive(Debug)]
pub struct Checked<'p> {
    program: &'p Program,
    /// Type of each part of the expression.
    types: HashMap<u64, Type>,
    /// Forms of the functions that each call may mean.
    calls: HashMap<u64, Resolved>,
}

/// What a call was found to mean.
#[derive(Debug)]
struct Resolved {
    overloads: Vec<&'static Overload>,
    /// Whether the call has a value before its dot, as opposed to the first part of the function's name.
    is_member: bool,
}

impl Checked<'_> {
    /// Returns the type of the expression's result.
    pub fn kind(&self) -> &Type {
        self.kind_of(self.program.expression().id)
    }

    fn kind_of(&self, id: u64) -> &Type {
        self.types.get(&id).unwrap_or(&Type::Dyn)
    }

    /// Evaluates what is constant, as upstream does when it makes a program.
    ///
    /// # Errors
    /// Error of a conversion or a pattern, whose words begin with those of upstream.
    pub fn instantiate(&self) -> Result<(), String> {
        constants::instantiate(self.program.expression())
            .map_err(|error| format!("program instantiation failed: {error}"))
    }

    /// Returns the estimated maximum cost of one evaluation. `root` declares the values of all variables, with the bounds of
    /// their sizes.
    pub fn max_cost(&self, root: &Declared) -> u64 {
        costs::max_cost(self, root, None)
    }

    /// Does the same if `root` declares the values of only this variable.
    pub fn max_cost_over(&self, variable: &str, root: &Declared) -> u64 {
        costs::max_cost(self, root, Some(variable))
    }
}

/// Checks an expression over these variables.
///
/// # Errors
/// All errors with their places, as cel-go words them.
pub fn check<'p>(program: &'p Program, variables: &[Variable]) -> Result<Checked<'p>, String> {
    let mut found = Found::default();
    let checked = checker::check(program, variables, &mut found);
    if found.is_empty() {
        literals::validate(&checked, &mut found);
    }
    found.into_result(program.source()).map(|()| checked)
}
