//! Command-line options of the token controller.

use crate::options::Flags;

/// Options of the controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// PEM file of the signing key; `--service-account-private-key-file`. Without it the controller does not run.
    pub key_file: Option<String>,
    /// Number of Secrets processed concurrently; `--concurrent-serviceaccount-token-syncs`.
    pub concurrent_syncs: usize,
}

impl Options {
    /// Reads the options from the command-line flags.
    pub fn read(flags: &dyn Flags) -> Self {
        Self {
            key_file: flags.path("service-account-private-key-file"),
            concurrent_syncs: flags.workers("concurrent-serviceaccount-token-syncs"),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self { key_file: None, concurrent_syncs: 5 }
    }
}
