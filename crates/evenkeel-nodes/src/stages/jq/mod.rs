//! jq expressions over an object, evaluated in a bounded number of steps.
//!
//! `jaq-core` provides the parser. Its interpreter is not used: it has no limit that a caller could set, and evaluates
//! endless functions (`range(infinite)`) natively.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | paths, operators, `if`, `reduce`, `?//` and variables | `compile::compile`, `run::Machine` |
//! | functions | `builtins::find` |
//!
//! Assignments, definitions and `label` are refused, because an expression only selects values.

mod builtins;
mod compile;
mod run;
#[cfg(test)]
mod tests;

use serde_json::Value;

/// Maximum length of an expression in bytes.
const MAX_SOURCE: usize = 4096;

/// Maximum number of opening brackets in an expression, even in strings, because the lexer recurses at each one.
const MAX_BRACKETS: usize = 200;

/// A compiled expression.
#[derive(Debug, Clone)]
pub(crate) struct Query(compile::Filter);

impl Query {
    /// Compiles an expression.
    ///
    /// # Errors
    /// Fails on a syntax error, for an unknown function, and beyond the limits of size. The error is a sentence.
    pub(crate) fn parse(source: &str) -> Result<Self, String> {
        if source.len() > MAX_SOURCE {
            return Err(format!("the expression is longer than {MAX_SOURCE} bytes"));
        }
        if source.matches(['(', '[', '{']).count() > MAX_BRACKETS {
            return Err(format!("the expression has more than {MAX_BRACKETS} brackets"));
        }
        compile::compile(source).map(Self)
    }

    /// Returns the outputs that are not `null`; `None` if the evaluation fails or takes too many steps. `now` is the
    /// time in seconds since 1970.
    pub(crate) fn run(&self, object: &Value, now: f64) -> Option<Vec<Value>> {
        let mut outputs = Vec::new();
        run::Machine::new(now)
            .run(&self.0, object, None, &mut |machine, output| {
                machine.charge_value(output)?;
                if !output.is_null() {
                    outputs.push(output.clone());
                }
                Ok(())
            })
            .ok()?;
        Some(outputs)
    }
}
