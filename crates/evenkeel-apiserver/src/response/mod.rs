//! Responses: their bodies, their compression, and the headers that every one may carry.

mod body;
pub(crate) mod compress;
mod headers;
mod written;

pub use body::Body;
pub(crate) use headers::{answer, refusal, warn};
pub use written::WriteTimeout;
