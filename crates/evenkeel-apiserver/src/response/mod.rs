//! Responses: bodies, compression and common headers.

mod body;
pub(crate) mod compress;
mod headers;
mod written;

pub use body::{Body, BodyError};
pub(crate) use headers::{answer, refusal, warn};
pub use written::WriteTimeout;
