//! User of a request.
//!
//! Upstream: `k8s.io/apiserver/pkg/authentication/user`.

/// The user who sent a request.
///
/// Upstream: `DefaultInfo`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    /// Name, such as `system:serviceaccount:default:web`.
    pub name: Box<str>,
    /// Unique ID; empty if the authenticator provides none.
    pub uid: Box<str>,
    /// Groups of the user, such as `system:authenticated`.
    pub groups: Box<[Box<str>]>,
    /// Further attributes from the authenticator (`extra` of `UserInfo`).
    pub extra: Box<[Extra]>,
}

/// Key and values of an entry in `extra`.
pub type Extra = (Box<str>, Box<[Box<str>]>);

impl User {
    /// Returns an authenticated user: a member of `system:authenticated` and of the given groups.
    pub fn authenticated<'a>(name: &str, groups: impl IntoIterator<Item = &'a str>) -> Self {
        let mut groups: Vec<Box<str>> = groups.into_iter().map(Into::into).collect();
        if !groups.iter().any(|g| &**g == "system:authenticated") {
            groups.push("system:authenticated".into());
        }
        Self { name: name.into(), groups: groups.into(), ..Self::default() }
    }

    /// Returns `system:anonymous`, the user of a request without credentials.
    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".into(),
            groups: ["system:unauthenticated".into()].into(),
            ..Self::default()
        }
    }

    /// Returns whether the user is a member of a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| &**g == group)
    }
}
