//! What the cleaner can be told.

use crate::options::Flags;
use std::time::Duration;

/// Options of the controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How long a token must not have been used before it is marked, and then before it is deleted;
    /// `--legacy-service-account-token-clean-up-period`.
    pub clean_up_period: Duration,
}

impl Options {
    /// Reads the options from the command-line flags.
    pub fn read(flags: &dyn Flags) -> Self {
        const PERIOD: &str = "legacy-service-account-token-clean-up-period";
        let clean_up_period = flags.duration(PERIOD);
        if clean_up_period.is_zero() {
            flags.refuse(PERIOD, format!("{PERIOD} must be greater than zero"));
        }
        Self { clean_up_period }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self { clean_up_period: Duration::from_secs(8760 * 3600) }
    }
}
