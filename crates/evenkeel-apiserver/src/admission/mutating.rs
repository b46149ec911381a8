//! Mutating admission: runs plug-ins, policies and webhooks in one or two passes. The second pass is upstream's
//! reinvocation.

use serde_json::Value;

use super::attributes::Operation;
use super::{policy, webhook};
use crate::api::Context;
use evenkeel_apimachinery::status::StatusError;

/// Mutating admission of one request: plug-ins, policies and webhooks that may change its object.
pub(crate) struct Mutating<'a> {
    cx: &'a Context<'a>,
    operation: Operation,
    policies: policy::Mutating,
    webhooks: webhook::Mutating,
}

impl<'a> Mutating<'a> {
    /// Reads the configured policies and webhooks.
    pub(crate) fn new(cx: &'a Context<'a>, operation: Operation) -> Self {
        let (policies, webhooks) = (policy::Mutating::new(cx), webhook::Mutating::new(cx));
        Self { cx, operation, policies, webhooks }
    }

    /// Returns whether any policies or webhooks are configured, even if they do not match the request.
    pub(crate) fn is_configured(&self) -> bool {
        !self.policies.is_empty() || !self.webhooks.is_empty()
    }

    /// Runs plug-ins, policies and webhooks in this order. If a policy or a webhook changed the object, a second pass
    /// runs the plug-ins again, and the policies and webhooks with `reinvocationPolicy: IfNeeded`. Returns whether a
    /// policy or a webhook changed the object. `old` is the stored object of an update.
    ///
    /// Upstream: `reinvoker.Admit`.
    pub(crate) async fn admit(
        mut self,
        object: &mut Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<bool, StatusError> {
        if !self.pass(object, old, warnings).await? {
            return Ok(false);
        }
        self.pass(object, old, warnings).await?;
        Ok(true)
    }

    /// Runs one pass. Returns whether a policy or a webhook changed the object.
    async fn pass(
        &mut self,
        object: &mut Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<bool, StatusError> {
        let (cx, operation) = (self.cx, self.operation);
        super::admit(cx, operation, object, old)?;
        let changed_by_policy = self.policies.pass(cx, operation, object, old).await?;
        let changed_by_webhook = self.webhooks.pass(cx, operation, object, old, warnings).await?;
        Ok(changed_by_policy || changed_by_webhook)
    }
}
