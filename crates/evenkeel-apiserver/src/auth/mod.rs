//! Authentication (tokens, client certificates) and authorization (RBAC, Node authorizer) of requests.

mod accounts;
mod authn;
pub(crate) mod escalation;
mod nodes;
mod permit;
mod rbac;

pub(crate) use accounts::{Accounts, Grant, ISSUER};
pub(crate) use authn::Authenticator;
pub(crate) use nodes::{MIRRORS, node_of, refers_to_any};
pub(crate) use permit::permit;
pub(crate) use rbac::{Attributes, Role, RoleRef, Rule, Rules};

pub(crate) use evenkeel_apimachinery::user::Extra;
pub use evenkeel_apimachinery::user::User;
