//! A write by a node, and why it is refused.

use evenkeel_apimachinery::status::{StatusError, quote};
use serde_json::Value;

use crate::admission::attributes::Operation;
use crate::api::Context;
use crate::loopback;
use crate::resource::GroupResource;

/// Why the plugin refuses.
pub(super) enum Refusal {
    /// 403 with this reason.
    Forbidden(String),
    /// An answer of its own.
    Other(StatusError),
}

impl<T: Into<String>> From<T> for Refusal {
    fn from(why: T) -> Self {
        Self::Forbidden(why.into())
    }
}

/// A write by a node.
pub(super) struct Write<'a> {
    pub(super) cx: &'a Context<'a>,
    pub(super) node: &'a str,
    pub(super) operation: Operation,
    /// The object as it is to be; null when it goes.
    pub(super) object: &'a Value,
    /// As it was; null when it is new.
    pub(super) old: &'a Value,
}

impl Write<'_> {
    /// The node's name in quotes.
    pub(super) fn quoted(&self) -> String {
        quote(self.node)
    }

    /// `unexpected operation "UPDATE"`.
    pub(super) fn unexpected(&self) -> String {
        format!("unexpected operation {}", quote(self.operation.as_str()))
    }

    /// A stored object of the core group; refused as upstream's listers word it where it is not there.
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

    /// A stored pod of the request's namespace.
    pub(super) fn pod(&self, name: &str) -> Result<Value, Refusal> {
        self.stored("pods", "pod", self.cx.namespace, name)
    }
}
