//! Go's templates (`text/template`) over JSON, with limits. They have the functions that KWOK's stages use: Go's,
//! KWOK's, and common functions of the library sprig.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | trim markers, comments, literals | `lex::split` |
//! | actions, pipelines, variables, nested templates | `parse::parse`, `eval::render` |
//! | functions | `functions::find` |
//! | how values are printed | `print::text`, `print::printf` |
//!
//! Numbers of an object stay numbers. In KWOK, they are strings of digits, so that a comparison with a number fails. A
//! field of `null` is `null`.

mod eval;
mod functions;
mod lex;
mod parse;
mod print;
mod sprig;
#[cfg(test)]
mod tests;

use evenkeel_api::time::Timestamp;
use serde_json::Value;

/// Maximum length of a template in bytes.
const MAX_SOURCE: usize = 64 * 1024;

/// A parsed template.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    body: Vec<parse::Node>,
    templates: parse::Templates,
}

/// Values that the functions of a template return, in addition to those of the object.
#[derive(Clone, Copy)]
pub(crate) struct Environment<'a> {
    /// Time of the cluster.
    pub(crate) now: Timestamp,
    /// Start of the simulated kubelets.
    pub(crate) start: Timestamp,
    /// Name of the object's node.
    pub(crate) node_name: &'a str,
    /// Address of the object's node.
    pub(crate) node_ip: &'a str,
    /// Address of the pod; empty for a node.
    pub(crate) pod_ip: &'a str,
    /// Port of the node's kubelet.
    pub(crate) node_port: u16,
    /// Hash that random functions draw from.
    pub(crate) draws: u64,
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// Fails on a syntax error, for an unknown function, and beyond the limits of size. The error is a sentence.
    pub(crate) fn parse(source: &str) -> Result<Self, String> {
        if source.len() > MAX_SOURCE {
            return Err(format!("the template is longer than {MAX_SOURCE} bytes"));
        }
        let (body, templates) = parse::parse(source.trim())?;
        Ok(Self { body, templates })
    }

    /// Renders the template with an object as its dot.
    ///
    /// # Errors
    /// Returns a sentence if a function fails, or if the output or the number of steps exceeds its limit.
    pub(crate) fn render(
        &self,
        object: &Value,
        environment: &Environment<'_>,
    ) -> Result<String, String> {
        eval::render(&self.body, &self.templates, object, environment)
    }
}
