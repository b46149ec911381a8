//! Owners known not to exist, remembered so that a thousand dependents of one need one live read.

use super::graph::{Place, Uid};
use std::collections::{HashSet, VecDeque};

/// How many are remembered; upstream's number.
const CAPACITY: usize = 500;

/// A bounded set of (uid, place), the oldest forgotten first.
#[derive(Debug, Default)]
pub(crate) struct AbsentOwners {
    known: HashSet<(Uid, Place)>,
    order: VecDeque<(Uid, Place)>,
}

impl AbsentOwners {
    /// Remembers that no object of this uid is at this place.
    pub(crate) fn insert(&mut self, uid: &str, place: &Place) {
        let key = (Uid::from(uid), place.clone());
        if !self.known.insert(key.clone()) {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > CAPACITY
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Whether it is known that no object of this uid is at this place.
    pub(crate) fn contains(&self, uid: &str, place: &Place) -> bool {
        self.known.contains(&(Uid::from(uid), place.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten() {
        let place = Place {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: "n".into(),
            name: "p".into(),
        };
        let mut absent = AbsentOwners::default();
        for uid in 0..=CAPACITY {
            absent.insert(&uid.to_string(), &place);
        }
        assert!(!absent.contains("0", &place));
        assert!(absent.contains("1", &place) && absent.contains(&CAPACITY.to_string(), &place));
    }
}
