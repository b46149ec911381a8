//! The group `system:authenticated`, which all identified users are in.

use evenkeel_apimachinery::user::User;

/// Adds the group `system:authenticated`, except for anonymous users.
///
/// Upstream: `AuthenticatedGroupAdder`.
pub(super) fn with_authenticated_group(mut user: User) -> User {
    let is_anonymous = &*user.name == "system:anonymous" || user.is_in("system:unauthenticated");
    if !is_anonymous && !user.is_in("system:authenticated") {
        let mut groups = user.groups.into_vec();
        groups.push("system:authenticated".into());
        user.groups = groups.into();
    }
    user
}
