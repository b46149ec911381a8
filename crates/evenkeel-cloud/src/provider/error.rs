//! Errors of cloud providers.

use std::{error::Error, time::Duration};

/// Error of a call to a cloud provider.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// Another controller does this for the cluster (upstream's `ImplementedElsewhere`).
    #[error("implemented by alternate to cloud provider")]
    ImplementedElsewhere,
    /// The instance does not exist (upstream's `InstanceNotFound`).
    #[error("instance not found")]
    InstanceNotFound,
    /// The provider does not support the call (upstream's `NotImplemented`).
    #[error("unimplemented")]
    NotImplemented,
    /// Retry after this time, without backoff (upstream's `RetryError`), for example while a load balancer is
    /// being created.
    #[error("{message}")]
    RetryAfter {
        /// Reason to wait.
        message: String,
        /// Time until the retry.
        after: Duration,
    },
    /// Any other error. It is retried with backoff.
    #[error("{message}")]
    Failed {
        /// Message of the error, without its cause.
        message: String,
        /// The underlying error, if any.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
}

impl CloudError {
    /// Returns a failure without an underlying error.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), source: None }
    }

    /// Returns a failure with its underlying error.
    pub fn because(
        message: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::Failed { message: message.into(), source: Some(source.into()) }
    }

    /// Returns an error that requests a retry after this time.
    pub fn retry_after(message: impl Into<String>, after: Duration) -> Self {
        Self::RetryAfter { message: message.into(), after }
    }

    /// Returns the value of the label `result` in metrics of calls.
    pub(crate) fn result(&self) -> &'static str {
        match self {
            Self::NotImplemented => "not_implemented",
            Self::InstanceNotFound => "instance_not_found",
            Self::ImplementedElsewhere | Self::RetryAfter { .. } | Self::Failed { .. } => "error",
        }
    }

    /// Returns the message of the error and all its causes.
    pub(crate) fn text(&self) -> String {
        evenkeel_runtime::client::full_text(self)
    }
}
