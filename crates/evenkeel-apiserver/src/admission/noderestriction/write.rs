//! Writes by nodes, and reasons to refuse them.

use evenkeel_apimachinery::status::{StatusError, quote};
use serde_json::Value;

use crate::admission::attributes::Operation;
use crate::api::Context;
use crate::loopback;
use crate::resource::GroupResource;

/// Reason why the plug-in refuses a write.
pub(super) enum Refusal {
    /// Reason of a 403.
    Forbidden(String),
    /// Error that the client receives as it is.
    Other(StatusError),
}

impl<T: Into<String>> From<T> for Refusal {
    fn from(why: T) -> Self {
        Self::Forbidden(why.into())
    }
}

/// Write that a node requests.
pub(super) struct Write<'a> {
    pub(super) cx: &'a Context<'a>,
    pub(super) node: &'a str,
    pub(super) operation: Operation,
    /// Object after the write; null for a deletion.
    pub(super) object: &'a Value,
    /// Object before the write; null for a creation.
    pub(super) old: &'a Value,
}

impl Write<'_> {
    /// Returns the node's name in quotes.
    pub(super) fn quoted(&self) -> String {
        quote(self.node)
    }

    /// Returns the message `unexpected operation "UPDATE"` for this operation.
    pub(super) fn unexpected(&self) -> String {
        format!("unexpected operation {}", quote(self.operation.as_str()))
    }

    /// Returns a stored object of the core group. A missing object is an error in the words of upstream's listers.
    pub(super) fn stored(
        &self,
        plural: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Value, Refusal> {
        let found = loopback::one(self.cx.api, "v1", plural, namespace, name);
        found.map_err(Refusal::Other)?.ok_or_else(|| {
            let kind = GroupResource { group: "".into(), resource: kind.into() };
            Refusal::Other(StatusError::not_found(&kind, name))
        })
    }

    /// Returns a stored pod of the request's namespace.
    pub(super) fn pod(&self, name: &str) -> Result<Value, Refusal> {
        self.stored("pods", "pod", self.cx.namespace, name)
    }
}
