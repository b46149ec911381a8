//! Who asks, and whether they may.

mod accounts;
mod authn;
pub(crate) mod escalation;
mod nodes;
mod rbac;

pub(crate) use accounts::{Accounts, Grant, ISSUER};
pub(crate) use authn::Authenticator;
pub(crate) use nodes::{MIRRORS, node_of, refers_to_any};
pub(crate) use rbac::{Attributes, Role, RoleRef, Rule, Rules};

/// Who sends a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    /// Name, such as `system:serviceaccount:default:web`.
    pub name: Box<str>,
    /// Unique id, empty where there is none.
    pub uid: Box<str>,
    /// Groups.
    pub groups: Box<[Box<str>]>,
    /// More facts.
    pub extra: Box<[Extra]>,
}

/// A fact about a user, and its values.
pub(crate) type Extra = (Box<str>, Box<[Box<str>]>);

impl User {
    /// A user who proved who he is: in `system:authenticated` beside the given groups.
    pub fn authenticated<'a>(name: &str, groups: impl IntoIterator<Item = &'a str>) -> Self {
        let mut groups: Vec<Box<str>> = groups.into_iter().map(Into::into).collect();
        if !groups.iter().any(|g| &**g == "system:authenticated") {
            groups.push("system:authenticated".into());
        }
        Self { name: name.into(), groups: groups.into(), ..Self::default() }
    }

    /// Nobody in particular.
    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".into(),
            groups: ["system:unauthenticated".into()].into(),
            ..Self::default()
        }
    }

    /// Whether a group is among the user's.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| &**g == group)
    }
}
