//! Responses: bodies, compression and common headers.

mod body;
pub(crate) mod compress;
mod headers;
mod plain_text;
mod written;

pub use body::{Body, BodyError};
pub(crate) use headers::{answer, refusal, warn};
pub(crate) use plain_text::{plain_text, plain_text_nosniff};
pub use written::WriteTimeout;
