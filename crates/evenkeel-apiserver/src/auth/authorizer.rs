//! Authorizers of a server, in the order of `--authorization-mode`.

use super::rbac::ResolvedRules;
use super::rbac_authorizer::RbacAuthorizer;
use super::rule::Attributes;
use super::{User, nodes};
use crate::store::Store;
use std::str::FromStr;

/// Authorizer that `--authorization-mode` selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthorizationMode {
    /// Allows kubelets to access the objects that pods on their nodes refer to.
    Node,
    /// Allows requests that the stored roles and bindings grant.
    Rbac,
    /// Allows every request.
    AlwaysAllow,
    /// Allows no request.
    AlwaysDeny,
}

impl AuthorizationMode {
    /// Returns the name under which the reasons of a refusal list the authorizer.
    ///
    /// Upstream: `GetNameForAuthorizerMode`.
    fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Rbac => "rbac",
            Self::AlwaysAllow => "alwaysallow",
            Self::AlwaysDeny => "alwaysdeny",
        }
    }
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

/// Union of the selected authorizers: the first one that allows a request decides. Members of `system:masters` may do
/// everything, whatever the modes are.
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
        for (index, mode) in modes.iter().enumerate() {
            if modes[..index].contains(mode) {
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
                    let decision = self.rbac.authorize_node(store, user, attributes);
                    decision.is_some_and(|decision| decision.is_ok())
                }
                AuthorizationMode::Rbac => self.rbac.authorize(store, user, attributes),
                AuthorizationMode::AlwaysAllow => true,
                AuthorizationMode::AlwaysDeny => false,
            })
    }

    /// Decides like [`authorize`](Self::authorize). `Ok` has the reason why the request is allowed, which only RBAC
    /// gives; `Err` has the reasons of all authorizers for a refusal. Both may be empty.
    ///
    /// Upstream: `unionAuthzHandler.Authorize`.
    pub(crate) fn authorize_with_reason(
        &self,
        store: &Store,
        user: &User,
        attributes: &Attributes<'_>,
    ) -> Result<String, String> {
        if user.is_in("system:masters") {
            return Ok(String::new());
        }
        let mut reasons = Vec::new();
        for mode in &self.modes {
            let decision = match mode {
                AuthorizationMode::Node => {
                    match self.rbac.authorize_node(store, user, attributes) {
                        Some(decision) => decision.map(|()| String::new()).map_err(Into::into),
                        None => Err(String::new()),
                    }
                }
                AuthorizationMode::Rbac => self.rbac.authorize_with_reason(store, user, attributes),
                AuthorizationMode::AlwaysAllow => Ok(String::new()),
                AuthorizationMode::AlwaysDeny => Err("Everything is forbidden.".to_owned()),
            };
            match decision {
                Ok(reason) => return Ok(reason),
                Err(reason) if reason.is_empty() => {}
                Err(reason) => reasons.push(format!("{}: {reason}", mode.name())),
            }
        }
        Err(reasons.join("\n"))
    }

    /// Returns whether every user may do everything, because the mode `AlwaysAllow` is selected.
    pub(crate) fn allows_all(&self) -> bool {
        self.modes.contains(&AuthorizationMode::AlwaysAllow)
    }

    /// Returns whether the Node authorizer decides about the user's requests. Such a user's permissions cannot be
    /// listed as rules, because they depend on stored objects.
    pub(crate) fn is_node(&self, user: &User) -> bool {
        self.modes.contains(&AuthorizationMode::Node) && nodes::node_of(user).is_some()
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

    fn authorizer(names: &[&str]) -> Result<Authorizer, String> {
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
        // The store has no roles, so that RBAC allows nothing.
        let (admin, other) =
            (User::authenticated("a", ["system:masters"]), User::authenticated("b", []));
        let table: [(&[&str], Result<&str, &str>); 6] = [
            (&[], Err("")),
            (&["RBAC"], Err("")),
            (&["Node", "RBAC"], Err("")),
            (&["AlwaysDeny"], Err("alwaysdeny: Everything is forbidden.")),
            (&["AlwaysAllow"], Ok("")),
            (&["AlwaysDeny", "RBAC", "AlwaysAllow"], Ok("")),
        ];
        for (modes, decision) in table {
            let allowed = decision.is_ok();
            let authorizer = authorizer(modes).expect("known modes");
            assert!(authorizer.authorize(&store, &admin, &attributes), "{modes:?}");
            assert_eq!(authorizer.authorize(&store, &other, &attributes), allowed, "{modes:?}");
            let reason = authorizer.authorize_with_reason(&store, &other, &attributes);
            assert_eq!(reason.as_deref().map_err(String::as_str), decision, "{modes:?}");
            assert_eq!(authorizer.allows_all(), allowed, "{modes:?}");
        }
    }

    #[test]
    fn unknown_and_repeated_modes_are_refused() {
        for (modes, why) in [
            (&["rbac"] as &[_], "authorization-mode \"rbac\" is not a valid mode"),
            (&["Webhook"], "authorization mode \"Webhook\" is not in this server"),
            (&["RBAC", "Node", "RBAC"], "has mode specified more than once"),
        ] {
            let error = authorizer(modes).err().unwrap_or_default();
            assert!(error.contains(why), "{modes:?}: {error}");
        }
    }
}
