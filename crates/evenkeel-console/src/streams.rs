//! Places for pages that receive changes. Each costs a page's content at every change, so their number is limited.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Maximum number of pages that receive changes at once.
const MAX_STREAMS: usize = 16;
/// Maximum number of those that users have. The others are left to the cluster's administrator.
const MAX_STREAMS_OF_USERS: usize = 12;
/// Maximum number of those that one user has, so that others find a place.
const MAX_STREAMS_OF_USER: usize = 4;

/// Places of the streams.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// Number of streams by user. `None` is the cluster's administrator.
    open: Mutex<BTreeMap<Option<String>, usize>>,
}

/// A place. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct StreamPlace {
    streams: Arc<Streams>,
    user: Option<String>,
}

impl Streams {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Option<String>, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether no page receives changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Takes a place for a user; the administrator is `None`. Returns `None` if there is no place.
    pub(crate) fn take(self: &Arc<Self>, user: Option<&str>) -> Option<StreamPlace> {
        let mut open = self.lock();
        let user = user.map(str::to_owned);
        let of_user = open.get(&user).copied().unwrap_or_default();
        let of_users: usize =
            open.iter().filter(|(user, _)| user.is_some()).map(|(_, count)| count).sum();
        let of_all: usize = open.values().sum();
        let is_refused = of_all >= MAX_STREAMS
            || user.is_some()
                && (of_users >= MAX_STREAMS_OF_USERS || of_user >= MAX_STREAMS_OF_USER);
        if is_refused {
            return None;
        }
        open.insert(user.clone(), of_user + 1);
        Some(StreamPlace { streams: Arc::clone(self), user })
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut open = self.streams.lock();
        if let Some(count) = open.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(streams: &Arc<Streams>, user: Option<&str>) -> Vec<StreamPlace> {
        std::iter::from_fn(|| streams.take(user)).collect()
    }

    #[test]
    fn no_user_takes_the_places_of_others() {
        let streams = Arc::new(Streams::default());
        let users = ["a", "b", "c", "d"].map(|user| take_all(&streams, Some(user)));
        assert_eq!(users.each_ref().map(Vec::len), [4, 4, 4, 0]);
        assert_eq!(take_all(&streams, None).len(), 4, "dropped at once");
        drop(users);
        assert!(streams.is_empty());
        assert_eq!(take_all(&streams, None).len(), 16);
        assert!(streams.is_empty());
    }
}
