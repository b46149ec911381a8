//! Decisions about requests.

/// Effect of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The request is allowed.
    Allow,
    /// The request is denied without asking later authorizers.
    Deny,
    /// A later authorizer decides. Without a later one, the request is denied.
    NoOpinion,
}

/// Decision about a request, by one authorizer or by all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) effect: Effect,
    /// May be empty.
    pub(crate) reason: String,
    /// Error of an authorizer that did not decide, such as a webhook.
    pub(crate) error: Option<String>,
}

impl Decision {
    pub(crate) fn allowed(reason: impl Into<String>) -> Self {
        Self { effect: Effect::Allow, reason: reason.into(), error: None }
    }

    pub(crate) fn no_opinion(reason: impl Into<String>) -> Self {
        Self { effect: Effect::NoOpinion, reason: reason.into(), error: None }
    }

    /// Returns a denial because of an error.
    pub(super) fn denied_by_error(error: &str) -> Self {
        Self { effect: Effect::Deny, reason: String::new(), error: Some(error.to_owned()) }
    }

    /// Returns the provisional decision while a webhook's answer is missing. It denies, so that no handler acts on it.
    pub(crate) fn open() -> Self {
        Self::denied_by_error("an authorization webhook has yet to answer")
    }

    pub(crate) fn is_allowed(&self) -> bool {
        self.effect == Effect::Allow
    }
}
