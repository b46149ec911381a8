//! Modes of impersonation, which are tried in turn, and a cache of the mode that last allowed each user to impersonate.
//! With the cache, most requests need only one mode.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, PoisonError};

/// Mode of impersonation. A mode determines the verbs that allow impersonation, and the users that can be impersonated.
///
/// Upstream: `allImpersonationModes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A service account impersonates the node that its token names.
    AssociatedNode,
    /// A user impersonates a node.
    ArbitraryNode,
    /// A user impersonates a service account.
    ServiceAccount,
    /// A user impersonates a user that is neither a node nor a service account.
    UserInfo,
    /// A user impersonates any user by the verb `impersonate`, for all requests.
    Legacy,
}

impl Mode {
    /// All modes, in upstream's order.
    const ALL: [Self; 5] = [
        Self::AssociatedNode,
        Self::ArbitraryNode,
        Self::ServiceAccount,
        Self::UserInfo,
        Self::Legacy,
    ];

    /// Returns the modes in the order in which the server tries them: first the mode that last allowed the user. If no
    /// mode allows the request, the client gets the first refusal.
    pub(crate) fn in_order(last: Option<Self>) -> impl Iterator<Item = Self> {
        last.into_iter().chain(Self::ALL.into_iter().filter(move |mode| Some(*mode) != last))
    }
}

/// Maximum number of users in the cache.
///
/// Upstream: `newModeIndexCache`.
const MAX_USERS: usize = 10_000;

/// Mode that last allowed each user to impersonate, by the hash of the user's name. A hash collision changes only the
/// order of modes, not the permissions.
///
/// Upstream: `modeIndexCache`.
#[derive(Debug, Default)]
pub(crate) struct LastModes(Mutex<HashMap<u64, Mode>>);

impl LastModes {
    /// Returns the mode that last allowed this user.
    pub(crate) fn get(&self, user: &str) -> Option<Mode> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&hash(user)).copied()
    }

    /// Records that a mode allowed this user. A full cache is cleared first.
    pub(crate) fn set(&self, user: &str, mode: Mode) {
        let mut modes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = hash(user);
        if modes.len() >= MAX_USERS && !modes.contains_key(&key) {
            modes.clear();
        }
        modes.insert(key, mode);
    }
}

fn hash(user: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    user.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mode_of_a_user_is_tried_first() {
        let modes = LastModes::default();
        assert_eq!(modes.get("ann"), None);
        modes.set("ann", Mode::Legacy);
        modes.set("bob", Mode::UserInfo);
        assert_eq!(
            (modes.get("ann"), modes.get("bob")),
            (Some(Mode::Legacy), Some(Mode::UserInfo))
        );
        for (last, first) in [(None, Mode::AssociatedNode), (Some(Mode::UserInfo), Mode::UserInfo)]
        {
            let order: Vec<Mode> = Mode::in_order(last).collect();
            assert_eq!((order.len(), order[0]), (Mode::ALL.len(), first));
            assert!(Mode::ALL.iter().all(|mode| order.contains(mode)));
        }
    }

    #[test]
    fn a_full_cache_is_cleared_before_a_new_user_is_added() {
        let modes = LastModes::default();
        for i in 0..MAX_USERS {
            modes.set(&format!("user{i}"), Mode::Legacy);
        }
        modes.set("user0", Mode::UserInfo);
        assert_eq!(modes.get("user1"), Some(Mode::Legacy));
        modes.set("one more", Mode::Legacy);
        assert_eq!((modes.get("user1"), modes.get("one more")), (None, Some(Mode::Legacy)));
    }
}
