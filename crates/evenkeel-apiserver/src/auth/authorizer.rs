//! Authorizers of a server, in the order of `--authorization-mode`.

use super::User;
use super::rbac::ResolvedRules;
use super::rbac_authorizer::RbacAuthorizer;
use super::rule::Attributes;
use crate::store::Store;
use std::str::FromStr;

/// Authorizer by the name that `--authorization-mode` gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthorizationMode {
    /// Allows kubelets the objects that pods on their nodes refer to.
    Node,
    /// Allows requests that stored bindings grant.
    Rbac,
    /// Allows every request.
    AlwaysAllow,
    /// Allows no request.
    AlwaysDeny,
}

impl FromStr for AuthorizationMode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "Node" => Ok(Self::Node),
            "RBAC" => Ok(Self::Rbac),
            "AlwaysAllow" => Ok(Self::AlwaysAllow),
            "AlwaysDeny" => Ok(Self::AlwaysDeny),
            "ABAC" | "Webhook" => Err(format!("authorization mode {name:?} is not in this server")),
            _ => Err(format!("authorization-mode {name:?} is not a valid mode")),
        }
    }
}

/// Authorizes requests by each mode in turn. Every mode allows members of `system:masters` everything.
///
/// Upstream: `AuthorizationModeChoices`, `BuiltInAuthorizationOptions`.
pub(crate) struct Authorizer {
    modes: Vec<AuthorizationMode>,
    rbac: RbacAuthorizer,
}

impl Default for Authorizer {
    fn default() -> Self {
        Self::new(vec![AuthorizationMode::Node, AuthorizationMode::Rbac])
    }
}

impl Authorizer {
    pub(crate) fn new(modes: Vec<AuthorizationMode>) -> Self {
        Self { modes, rbac: RbacAuthorizer::default() }
    }

    /// Creates the authorizer for the modes with these names, or the default (Node, RBAC) if there are none.
    pub(crate) fn of(names: &[String]) -> Result<Self, String> {
        let modes: Vec<_> = names.iter().map(|name| name.parse()).collect::<Result<_, _>>()?;
        for (at, mode) in modes.iter().enumerate() {
            if modes[..at].contains(mode) {
                return Err(format!(
                    "authorization-mode {names:?} has mode specified more than once"
                ));
            }
        }
        Ok(if modes.is_empty() { Self::default() } else { Self::new(modes) })
    }

    /// Returns whether one of the authorizers allows the request.
    pub(crate) fn authorize(
        &self,
        store: &Store,
        user: &User,
        attributes: &Attributes<'_>,
    ) -> bool {
        user.is_in("system:masters")
            || self.modes.iter().any(|mode| match mode {
                AuthorizationMode::Node => {
                    self.rbac.node_authorizer_allows(store, user, attributes)
                }
                AuthorizationMode::Rbac => self.rbac.authorize(store, user, attributes),
                AuthorizationMode::AlwaysAllow => true,
                AuthorizationMode::AlwaysDeny => false,
            })
    }

    /// Decides like [`authorize`](Self::authorize). Returns the reason of an allowed request, which only RBAC gives, or
    /// `None` for a refused one.
    pub(crate) fn authorize_with_reason(
        &self,
        store: &Store,
        user: &User,
        attributes: &Attributes<'_>,
    ) -> Option<String> {
        if user.is_in("system:masters") {
            return Some(String::new());
        }
        self.modes.iter().find_map(|mode| match mode {
            AuthorizationMode::Node => {
                self.rbac.node_authorizer_allows(store, user, attributes).then(String::new)
            }
            AuthorizationMode::Rbac => self.rbac.authorize_with_reason(store, user, attributes),
            AuthorizationMode::AlwaysAllow => Some(String::new()),
            AuthorizationMode::AlwaysDeny => None,
        })
    }

    /// Returns whether a user may do everything, whatever the roles grant.
    pub(crate) fn allows_all(&self, user: &User) -> bool {
        user.is_in("system:masters") || self.modes.contains(&AuthorizationMode::AlwaysAllow)
    }

    /// Returns all rules that bindings grant to a user in a namespace, including those of ClusterRoleBindings.
    pub(crate) fn rules_for(&self, store: &Store, user: &User, namespace: &str) -> ResolvedRules {
        self.rbac.rules_for(store, user, namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::FieldRequirements;

    fn of(names: &[&str]) -> Result<Authorizer, String> {
        Authorizer::of(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn one_mode_that_allows_is_enough() {
        let store = Store::in_memory(crate::registry::INDEXED_RESOURCES);
        let attributes = Attributes {
            verb: "get",
            group: "",
            resource: "pods",
            subresource: "",
            namespace: "default",
            name: "p",
            path: None,
            field_selector: FieldRequirements::Terms(&[]),
        };
        let (admin, other) =
            (User::authenticated("a", ["system:masters"]), User::authenticated("b", []));
        let table: [(&[&str], bool); 6] = [
            (&[], false),
            (&["RBAC"], false),
            (&["Node", "RBAC"], false),
            (&["AlwaysDeny"], false),
            (&["AlwaysAllow"], true),
            (&["AlwaysDeny", "RBAC", "AlwaysAllow"], true),
        ];
        for (modes, allowed) in table {
            let authorizer = of(modes).expect("known modes");
            assert!(authorizer.authorize(&store, &admin, &attributes), "{modes:?}");
            assert_eq!(authorizer.authorize(&store, &other, &attributes), allowed, "{modes:?}");
            let reason = authorizer.authorize_with_reason(&store, &other, &attributes);
            assert_eq!(reason.is_some(), allowed, "{modes:?}");
            assert_eq!(authorizer.allows_all(&other), allowed, "{modes:?}");
        }
    }

    #[test]
    fn unknown_and_repeated_modes_are_refused() {
        for (modes, why) in [
            (&["rbac"] as &[_], "authorization-mode \"rbac\" is not a valid mode"),
            (&["Webhook"], "authorization mode \"Webhook\" is not in this server"),
            (&["RBAC", "Node", "RBAC"], "has mode specified more than once"),
        ] {
            let error = of(modes).err().unwrap_or_default();
            assert!(error.contains(why), "{modes:?}: {error}");
        }
    }
}
