//! Errors of opening a store.

/// Reason why the store in a data folder could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the store open.
    #[error("{0} is in use by another process; stop that process first")]
    Locked(String),
    /// The folder or the file cannot be read or created.
    #[error("{path}: {source}")]
    Io {
        /// Path of the folder or of the store's file.
        path: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The stored data differs from the written data. The server uses none of it, and does not change the file.
    #[error(
        "{path} is damaged: {why}; move it away and restore a snapshot (evenkeel snapshot restore FILE --data-dir FOLDER), or start without it as an empty cluster"
    )]
    Damaged {
        /// Path of the folder or of the store's file.
        path: String,
        /// Kind of damage, with the key of a damaged object.
        why: String,
    },
    /// A value cannot be decrypted. The server uses no data, and does not change the file.
    #[error(
        "{path}: {why}; start with an encryption configuration that has its key (--encryption-provider-config)"
    )]
    Undecryptable {
        /// Path of the folder or of the store's file.
        path: String,
        /// Object, provider and key.
        why: String,
    },
}
