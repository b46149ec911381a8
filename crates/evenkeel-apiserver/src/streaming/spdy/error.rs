//! Errors of frames.

/// Error in the frames of a client. The connection ends after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    /// The contents of a frame do not match its type.
    #[error("a frame is malformed")]
    Malformed,
    /// A frame is of another version or of an unknown type.
    #[error("a frame is of an unknown version or type")]
    Unknown,
    /// A control frame or its headers are too large.
    #[error("a frame is too large")]
    TooLarge,
    /// Headers cannot be decompressed.
    #[error("headers cannot be decompressed")]
    Compression,
}
