//! Responses: bodies, compression and common headers.

mod body;
pub(crate) mod compress;
mod headers;
mod whole_lists;
mod written;

pub use body::{Body, BodyError};
pub(crate) use headers::{answer, refusal, warn};
pub(crate) use whole_lists::WholeLists;
pub use written::WriteTimeout;
