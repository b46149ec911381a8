//! Authentication (tokens, client certificates) and authorization (RBAC, Node authorizer) of requests.

mod accounts;
mod authn;
pub(crate) mod escalation;
mod nodes;
mod permit;
mod rbac;
mod rule;

pub(crate) use accounts::{Accounts, Grant, ISSUER};
pub(crate) use authn::Authenticator;
pub(crate) use nodes::{MIRRORS, node_of, refers_to_any};
pub(crate) use permit::permit;
pub(crate) use rbac::{RbacAuthorizer, Role, RoleRef};
pub(crate) use rule::{Attributes, PolicyRule};

pub(crate) use evenkeel_apimachinery::user::Extra;
pub use evenkeel_apimachinery::user::User;
