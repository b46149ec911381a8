//! The kinds of authorizers.

use std::str::FromStr;
use std::sync::Arc;

use super::webhook::Webhook;

/// One of the authorizers, with its name.
pub(crate) struct Named {
    /// Name under which refusals and metrics list the authorizer.
    pub(crate) name: Box<str>,
    pub(crate) authorizing: Authorizing,
}

/// Method by which an authorizer decides.
pub(crate) enum Authorizing {
    /// Allows kubelets to access the objects that pods on their nodes refer to.
    Node,
    /// Allows requests that the stored roles and bindings grant.
    Rbac,
    /// Allows every request.
    AlwaysAllow,
    /// Allows no request.
    AlwaysDeny,
    /// Sends SubjectAccessReviews to another server.
    Webhook(Arc<Webhook>),
}

impl Authorizing {
    /// Returns upstream's name of the type.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Rbac => "RBAC",
            Self::AlwaysAllow => "AlwaysAllow",
            Self::AlwaysDeny => "AlwaysDeny",
            Self::Webhook(_) => "Webhook",
        }
    }
}

impl FromStr for Authorizing {
    type Err = String;

    /// Parses the type of an authorizer that needs no settings.
    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "Node" => Ok(Self::Node),
            "RBAC" => Ok(Self::Rbac),
            "AlwaysAllow" => Ok(Self::AlwaysAllow),
            "AlwaysDeny" => Ok(Self::AlwaysDeny),
            "ABAC" => Err(format!("authorization mode {name:?} is not in this server")),
            _ => Err(format!("authorization-mode {name:?} is not a valid mode")),
        }
    }
}
