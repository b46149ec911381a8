//! Command-line options of the legacy token cleaner.

use crate::options::Flags;
use std::time::Duration;

/// Options of the controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Time without use before a token is marked, and again before it is deleted. Flag
    /// `--legacy-service-account-token-clean-up-period`. Default: 1 year.
    pub clean_up_period: Duration,
}

impl Options {
    /// Reads the options from the command-line flags.
    pub fn read(flags: &dyn Flags) -> Self {
        const PERIOD: &str = "legacy-service-account-token-clean-up-period";
        let clean_up_period = flags.duration(PERIOD);
        if clean_up_period.is_zero() {
            flags.record_invalid(PERIOD, format!("{PERIOD} must be greater than zero"));
        }
        Self { clean_up_period }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self { clean_up_period: Duration::from_secs(8760 * 3600) }
    }
}
