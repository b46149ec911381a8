//! Types of Kubernetes objects: views of frequently used kinds, selectors, quantities, owner references, conditions,
//! names and hashes.
//!
//! Nothing here does I/O, reads a clock or is asynchronous.

pub mod address;
pub mod cidr;
pub mod condition;
mod decode;
pub mod duration;
pub mod forms;
pub mod hash;
pub mod int_or_string;
pub mod json;
pub mod kind;
pub mod list;
pub mod map;
pub mod meta;
mod owner;
pub mod protobuf;
pub mod quantity;
pub mod quote;
pub mod selector;
pub mod sharding;
pub mod shared;
pub mod status;
pub mod template;
pub mod text;
pub mod time;
pub mod view;
pub mod views;
pub mod watch;

pub use kind::Kind;
pub use map::Map;
pub use meta::{Meta, OwnerReference, StrMap};
pub use text::Text;
pub use view::{DecodeError, Encoding, View};
