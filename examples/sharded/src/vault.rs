//! Vaults, which store secrets outside the cluster.

use std::{collections::BTreeMap, io, path::PathBuf};

/// Entries of a secret: names with their values.
pub type Entries = BTreeMap<String, String>;

/// Error of reading a vault.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The vault cannot be read now.
    #[error("the vault cannot read {key}: {source}")]
    Read {
        /// Key of the secret.
        key: String,
        /// Cause of the error.
        source: io::Error,
    },
    /// The vault's content is not a map of names to values.
    #[error("the secret {key} of the vault is no JSON object of strings: {source}")]
    Content {
        /// Key of the secret.
        key: String,
        /// Cause of the error.
        source: serde_json::Error,
    },
}

/// Vault that stores secrets by key.
pub trait Vault: Send + Sync + 'static {
    /// Returns the entries under a key, or `None` if the vault has no such secret.
    fn read(&self, key: &str) -> impl Future<Output = Result<Option<Entries>, VaultError>> + Send;
}

/// Vault in a folder: the file `KEY.json` has the entries. A real operator would call the API of a vault.
#[derive(Debug, Clone)]
pub struct Folder(PathBuf);

impl Folder {
    /// Returns the vault in a folder.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }
}

impl Vault for Folder {
    // The resource's schema keeps `..` out of keys.
    async fn read(&self, key: &str) -> Result<Option<Entries>, VaultError> {
        let text = match tokio::fs::read(self.0.join(format!("{key}.json"))).await {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(VaultError::Read { key: key.to_owned(), source }),
        };
        let entries = serde_json::from_slice(&text);
        entries.map(Some).map_err(|source| VaultError::Content { key: key.to_owned(), source })
    }
}
