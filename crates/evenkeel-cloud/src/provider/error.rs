//! Why a provider did not do what it was asked.

use std::{error::Error, time::Duration};

/// Why a provider did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// Somebody else does this for the cluster; the controller leaves it to them.
    #[error("implemented by alternate to cloud provider")]
    ImplementedElsewhere,
    /// There is no such machine.
    #[error("instance not found")]
    InstanceNotFound,
    /// This provider cannot do it.
    #[error("unimplemented")]
    NotImplemented,
    /// Not yet: it is to be tried again after this time, without back-off. For what takes its time, such as a load balancer
    /// that is being set up.
    #[error("{message}")]
    RetryAfter {
        /// What is waited for.
        message: String,
        /// How long.
        after: Duration,
    },
    /// Anything else; tried again with back-off.
    #[error("{message}")]
    Failed {
        /// What went wrong, for people.
        message: String,
        /// What was behind it.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
}

impl CloudError {
    /// A failure with nothing more behind it.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), source: None }
    }

    /// A failure because of another one.
    pub fn because(
        message: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::Failed { message: message.into(), source: Some(source.into()) }
    }

    /// To be tried again after this time.
    pub fn retry_after(message: impl Into<String>, after: Duration) -> Self {
        Self::RetryAfter { message: message.into(), after }
    }

    /// The value of the label `result` in metrics of calls.
    pub(crate) fn result(&self) -> &'static str {
        match self {
            Self::NotImplemented => "not_implemented",
            Self::InstanceNotFound => "instance_not_found",
            Self::ImplementedElsewhere | Self::RetryAfter { .. } | Self::Failed { .. } => "error",
        }
    }

    /// The error with all its causes.
    pub(crate) fn text(&self) -> String {
        evenkeel_runtime::client::full_text(self)
    }
}
