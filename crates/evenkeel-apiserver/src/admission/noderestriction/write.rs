//! Writes by nodes, and the reasons why the admission plug-in NodeRestriction refuses them.

use evenkeel_apimachinery::status::{StatusError, quote};
use serde_json::Value;

use crate::admission::attributes::Operation;
use crate::api::Context;
use crate::loopback;
use crate::resource::GroupResource;

/// Reason why NodeRestriction refuses a write.
pub(super) enum Refusal {
    /// Reason that the client receives in a 403.
    Forbidden(String),
    /// Error that the client receives unchanged.
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
    /// Name of the node whose kubelet sends the request.
    pub(super) node: &'a str,
    pub(super) operation: Operation,
    /// Object after the write; null for a deletion.
    pub(super) object: &'a Value,
    /// Object before the write; null for a creation.
    pub(super) old: &'a Value,
}

impl Write<'_> {
    /// Returns the node's name in quotes.
    pub(super) fn quoted_node(&self) -> String {
        quote(self.node)
    }

    /// Returns a message about this operation, such as `unexpected operation "UPDATE"`.
    pub(super) fn unexpected_operation(&self) -> String {
        format!("unexpected operation {}", quote(self.operation.as_str()))
    }

    /// Returns a stored object of the core group.
    ///
    /// # Errors
    /// The error for a missing object names `singular` in place of the resource, as the errors of upstream's listers
    /// do.
    pub(super) fn stored_object(
        &self,
        plural: &str,
        singular: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Value, Refusal> {
        let found = loopback::get(self.cx.api, "v1", plural, namespace, name);
        found.map_err(Refusal::Other)?.ok_or_else(|| {
            let resource = GroupResource { group: "".into(), resource: singular.into() };
            Refusal::Other(StatusError::not_found(&resource, name))
        })
    }

    /// Returns a stored pod of the request's namespace.
    pub(super) fn pod(&self, name: &str) -> Result<Value, Refusal> {
        self.stored_object("pods", "pod", self.cx.namespace, name)
    }
}
