//! Resources of the server: a table of recorded built-in resources, and of custom resources that are added at run time.

pub(crate) mod custom;
pub(crate) mod document;
mod path;
mod source;
mod table;
mod types;
mod version_order;

pub(crate) use evenkeel_apimachinery::group_version::{GroupKind, GroupResource, GroupVersionKind};

pub(crate) use path::{
    Path, Target, is_connection, is_long_running_subresource, parse as parse_path,
};
pub use source::Source;
pub(crate) use table::{Rows, Table};
pub(crate) use types::{Column, ResourcePrefix, ResourceType, Subresource, Verb, Verbs, key};
pub(crate) use version_order::version_preference;
