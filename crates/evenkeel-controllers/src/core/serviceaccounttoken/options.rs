//! Command-line options of the token controller.

use crate::options::Flags;
use std::fmt;

/// Options of the controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The signing key. Flag `--service-account-private-key-file`. Without it the controller does not run.
    pub key: Option<SigningKey>,
    /// Number of Secrets processed concurrently. Flag `--concurrent-serviceaccount-token-syncs`. Default: 5.
    pub concurrent_syncs: usize,
}

/// A private key that signs tokens.
#[derive(Clone, PartialEq, Eq)]
pub enum SigningKey {
    /// Path of a PEM file.
    File(String),
    /// PEM of the key. Never logged.
    Text(String),
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.write_str(path),
            Self::Text(_) => f.write_str("given as text"),
        }
    }
}

impl Options {
    /// Reads the options from the command-line flags.
    pub fn read(flags: &dyn Flags) -> Self {
        Self {
            key: flags.non_empty_text("service-account-private-key-file").map(SigningKey::File),
            concurrent_syncs: flags.positive("concurrent-serviceaccount-token-syncs"),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self { key: None, concurrent_syncs: 5 }
    }
}
