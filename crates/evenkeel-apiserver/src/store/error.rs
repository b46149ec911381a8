//! Why a store cannot be opened.

/// Why the store under a data folder could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("{0} is in use by another process; stop that process first")]
    Locked(String),
    /// The folder or the file cannot be read or made.
    #[error("{path}: {source}")]
    Io {
        /// Path of the folder or of the store's file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// What is stored is not what was written. Nothing of it is used, and the file is left as it is.
    #[error(
        "{path} is damaged: {why}; move it away and restore a snapshot (evenkeel snapshot restore FILE --data-dir FOLDER), or start without it as an empty cluster"
    )]
    Damaged {
        /// Path of the folder or of the store's file.
        path: String,
        /// What is wrong with it, with the object's key where one is damaged.
        why: String,
    },
    /// A value cannot be decrypted. Nothing is used, and the file is left as it is.
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
