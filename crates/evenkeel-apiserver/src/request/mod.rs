//! Parsing of requests: info, parameters, body, and the context of the verbs.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing)]

pub(crate) mod body;
mod context;
mod info;
pub(crate) mod query;
mod warnings;

pub(crate) use body::RequestBody;
pub(crate) use context::{RemoteAddress, RequestContext, Upgrade};
pub(crate) use info::{LowerMethod, NoResourceInPath, RequestInfo};
pub(crate) use query::{Query, WriteOptions};
pub(crate) use warnings::Warnings;
