//! A request, taken apart: its info, its parameters, its body, and the context that the verbs get.

#![deny(clippy::indexing_slicing)]

pub(crate) mod body;
mod context;
mod info;
pub(crate) mod query;
mod warnings;

pub(crate) use context::{RequestContext, Upgrade};
pub(crate) use info::RequestInfo;
pub(crate) use query::{Query, WriteOptions};
pub(crate) use warnings::Warnings;
