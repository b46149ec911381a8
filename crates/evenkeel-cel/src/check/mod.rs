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

pub use declared::DeclType;
pub(crate) use idents::TYPES;
pub use types::Type;

use crate::Program;
use crate::report::Errors;
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
    /// Type of each node of the expression, by its id.
    types: HashMap<u64, Type>,
    /// Overloads that each call can refer to, by the id of the call.
    calls: HashMap<u64, ResolvedCall>,
}

/// Overloads that match the argument types of a call. There are several if the type of an argument is only known at
/// evaluation.
#[derive(Debug)]
struct ResolvedCall {
    overloads: Vec<&'static Overload>,
    /// Whether the call is a method call, such as `list.size()`. In `sets.contains(a, b)`, the part before the dot is a
    /// namespace.
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

    /// Evaluates the constant conversions and patterns of the expression, as cel-go does when it creates a program.
    ///
    /// # Errors
    /// Returns the error of the first conversion or pattern that fails. The message begins like cel-go's.
    pub fn instantiate(&self) -> Result<(), String> {
        constants::instantiate(self.program.expression())
            .map_err(|error| format!("program instantiation failed: {error}"))
    }

    /// Returns the estimated maximum cost of one evaluation. `root` declares the values of all variables, with their
    /// maximum sizes.
    pub fn max_cost(&self, root: &DeclType) -> u64 {
        costs::max_cost(self, root, None)
    }

    /// Returns the estimated maximum cost if `root` declares the values of this variable only.
    pub fn max_cost_over(&self, variable: &str, root: &DeclType) -> u64 {
        costs::max_cost(self, root, Some(variable))
    }
}

/// Checks an expression that can use these variables.
///
/// # Errors
/// Returns all errors with their locations and cel-go's messages.
pub fn check<'p>(program: &'p Program, variables: &[Variable]) -> Result<Checked<'p>, String> {
    let mut errors = Errors::default();
    let checked = checker::check(program, variables, &mut errors);
    if errors.is_empty() {
        literals::validate(&checked, &mut errors);
    }
    errors.into_result(program.source()).map(|()| checked)
}
