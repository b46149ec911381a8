//! What the cleaner can be told.

use std::time::Duration;

/// What the controller can be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How long a token must not have been used before it is marked, and then before it is deleted;
    /// `--legacy-service-account-token-clean-up-period`.
    pub clean_up_period: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { clean_up_period: Duration::from_secs(8760 * 3600) }
    }
}
