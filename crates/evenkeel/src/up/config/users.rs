//! Users of a cluster besides its administrator, and their roles.

use crate::up::generated::marked;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Label, with the value `true`, of the bindings that grant roles to these users.
pub(crate) const USER_LABEL: &str = "evenkeel.dev/user";

/// A user with a kubeconfig of its own, `kubeconfig-NAME` beside the cluster's.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct User {
    /// Name of the user, as RBAC's subjects have it: letters, digits, `-`, `_`, `.`, `@` and `:`.
    #[serde(deserialize_with = "name")]
    pub(crate) name: String,
    /// Groups of the user, besides `system:authenticated`.
    #[serde(default)]
    pub(crate) groups: Vec<String>,
    /// Bearer token of the user. Default: a random one at each start.
    #[serde(default)]
    pub(crate) token: Option<String>,
    /// ClusterRoles that the user has in the whole cluster.
    #[serde(default)]
    pub(crate) cluster_roles: Vec<String>,
    /// ClusterRoles that the user has in a namespace, by namespace. A namespace that does not exist is created.
    #[serde(default)]
    pub(crate) roles: BTreeMap<String, Vec<String>>,
}

fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    let is_allowed =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@' | ':');
    if !text.is_empty() && text.chars().all(is_allowed) {
        return Ok(text);
    }
    // The name is part of a file name.
    let why = "the name of a user has letters, digits, '-', '_', '.', '@' and ':'";
    Err(D::Error::custom(format!("{text:?}: {why}")))
}

impl User {
    /// Returns the bindings that grant the user its roles, and namespaces for them.
    pub(crate) fn bindings(&self) -> Vec<Value> {
        const GROUP: &str = "rbac.authorization.k8s.io";
        let binding = |kind: &str, namespace: &str, role: &str| {
            let mut object = json!({
                "apiVersion": format!("{GROUP}/v1"),
                "kind": kind,
                "metadata": {
                    "name": format!("evenkeel:{}:{role}", self.name),
                    // A later start uses this label to find bindings that its configuration lacks.
                    "labels": {USER_LABEL: "true"},
                },
                "subjects": [{"kind": "User", "apiGroup": GROUP, "name": self.name}],
                "roleRef": {"kind": "ClusterRole", "apiGroup": GROUP, "name": role},
            });
            if !namespace.is_empty() {
                object["metadata"]["namespace"] = namespace.into();
            }
            marked(object)
        };
        let of_cluster = |role: &String| binding("ClusterRoleBinding", "", role);
        let mut objects: Vec<Value> = self.cluster_roles.iter().map(of_cluster).collect();
        for (namespace, roles) in &self.roles {
            objects.push(
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
            );
            objects.extend(roles.iter().map(|role| binding("RoleBinding", namespace, role)));
        }
        objects
    }
}

/// Checks that no two users have the same name or the same token.
///
/// # Errors
/// Fails if two users have the same name or token.
pub(crate) fn check(users: &[User]) -> Result<(), String> {
    for (position, user) in users.iter().enumerate() {
        for (earlier, other) in users[..position].iter().enumerate() {
            if other.name == user.name {
                return Err(format!(
                    "users[{position}].name: users[{earlier}] is {:?}, too",
                    user.name
                ));
            }
            if user.token.is_some() && other.token == user.token {
                // The token is a secret, so it is not printed.
                return Err(format!("users[{position}].token: users[{earlier}] has the same one"));
            }
        }
        if user.token.as_ref().is_some_and(String::is_empty) {
            return Err(format!(
                "users[{position}].token: it is empty; without the field, the token is random"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(text: &str) -> Vec<User> {
        serde_saphyr::from_str(text).expect("users")
    }

    #[test]
    fn roles_are_bound_in_the_cluster_and_in_namespaces() {
        let users = users("[{name: ann, clusterRoles: [view], roles: {shop: [edit, admin]}}]");
        let bindings = users[0].bindings();
        let names: Vec<_> = bindings
            .iter()
            .map(|object| {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                (
                    text(&object["kind"]),
                    text(&object["metadata"]["namespace"]),
                    text(&object["metadata"]["name"]),
                )
            })
            .collect();
        let expected = [
            ("ClusterRoleBinding", "", "evenkeel:ann:view"),
            ("Namespace", "", "shop"),
            ("RoleBinding", "shop", "evenkeel:ann:edit"),
            ("RoleBinding", "shop", "evenkeel:ann:admin"),
        ];
        assert_eq!(names, expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned())));
        assert_eq!(bindings[0]["subjects"][0]["name"], "ann");
        for binding in [&bindings[0], &bindings[2], &bindings[3]] {
            let metadata = &binding["metadata"];
            assert_eq!(metadata["labels"], json!({"evenkeel.dev/user": "true"}));
            assert!(metadata["annotations"]["evenkeel.dev/generated"].is_string(), "{binding}");
        }
        assert_eq!(
            bindings[1]["metadata"]["labels"],
            Value::Null,
            "the namespace outlives the role"
        );
        assert_eq!(bindings[3]["roleRef"]["kind"], "ClusterRole");
    }

    #[test]
    fn names_and_tokens_are_checked() {
        for name in ["", "a/b", "../x", "a b"] {
            let text = format!("[{{name: {name:?}}}]");
            assert!(serde_saphyr::from_str::<Vec<User>>(&text).is_err(), "{name}");
        }
        for (text, want) in [
            ("[{name: a}, {name: 'system:b@c'}]", Ok(())),
            ("[{name: a}, {name: a}]", Err("users[1].name: users[0] is \"a\", too")),
            (
                "[{name: a, token: t}, {name: b, token: t}]",
                Err("users[1].token: users[0] has the same one"),
            ),
            (
                "[{name: a, token: ''}]",
                Err("users[0].token: it is empty; without the field, the token is random"),
            ),
        ] {
            assert_eq!(check(&users(text)), want.map_err(str::to_owned), "{text}");
        }
    }
}
