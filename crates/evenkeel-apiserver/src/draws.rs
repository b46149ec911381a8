//! Random values of new objects. A seeded server draws them by what it is about to create, so that they do not depend on
//! the order in which requests about different objects arrive.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::{Mutex, PoisonError};

use evenkeel_apimachinery::group_version::GroupResource;
use evenkeel_apimachinery::value::{list, text};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::Value;

/// Use of a drawn value. Values for different uses are independent of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Use {
    /// The object's `metadata.uid`.
    Uid,
    /// The object's `metadata.name`, from `metadata.generateName`.
    Name,
    /// Name of a pod's volume for tokens.
    TokenVolume,
}

/// What a new object is known by before it has a UID, and perhaps before it has a name: its resource, namespace, name and
/// `generateName`, and kind and name of its controller. The pods of one ReplicaSet have the same origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Origin(u64);

impl Origin {
    /// Returns the origin of a new object in a namespace.
    pub(crate) fn of(resource: &GroupResource, namespace: &str, object: &Value) -> Self {
        // Unlike that of a map, this hasher has fixed keys.
        let mut hasher = DefaultHasher::new();
        (resource, namespace).hash(&mut hasher);
        (text(object, "metadata.name"), text(object, "metadata.generateName")).hash(&mut hasher);
        let mut owners = list(object, "metadata.ownerReferences").iter();
        let controller = owners.find(|owner| owner["controller"] == true);
        controller.map(|owner| (text(owner, "kind"), text(owner, "name"))).hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// Generators of a seeded server: one for each value of each origin.
#[derive(Debug)]
pub(crate) struct Draws {
    /// Seed, and the store's revision at the start.
    seed: (u64, u64),
    /// Number of values that were drawn, by use and origin.
    drawn: Mutex<HashMap<(Use, Origin), u32>>,
}

impl Draws {
    /// Returns the generators of a server with a store at this revision.
    pub(crate) fn new(seed: u64, revision: u64) -> Self {
        Self { seed: (seed, revision), drawn: Mutex::default() }
    }

    /// Returns the generator of the next value for an object of this origin. It depends on the seed, the use, the origin,
    /// and on how many values were drawn before for the same.
    pub(crate) fn next(&self, of: Use, origin: Origin) -> StdRng {
        let number = {
            let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
            let count = drawn.entry((of, origin)).or_default();
            *count = count.wrapping_add(1);
            *count
        };
        let mut hasher = DefaultHasher::new();
        (self.seed, of, origin, number).hash(&mut hasher);
        StdRng::seed_from_u64(hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng as _;
    use serde_json::json;

    fn origin(namespace: &str, prefix: &str, owner: &str) -> Origin {
        let pods = GroupResource { group: "".into(), resource: "pods".into() };
        let object = json!({"metadata": {
            "generateName": prefix,
            "ownerReferences": [
                {"kind": "Node", "name": "not-the-controller"},
                {"kind": "ReplicaSet", "name": owner, "controller": true},
            ],
        }});
        Origin::of(&pods, namespace, &object)
    }

    #[test]
    fn the_order_of_other_owners_does_not_matter() {
        let (web, api) = (origin("shop", "web-", "web"), origin("shop", "api-", "api"));
        let draw = |draws: &Draws, origin| draws.next(Use::Name, origin).random::<u64>();
        let (one, two) = (Draws::new(7, 0), Draws::new(7, 0));
        let first = [draw(&one, web), draw(&one, web), draw(&one, api)];
        let second = [draw(&two, api), draw(&two, web), draw(&two, web)];
        assert_eq!(first, [second[1], second[2], second[0]]);
        assert_ne!(first[0], first[1], "each draw of an origin is another one");
        assert_ne!(draw(&Draws::new(8, 0), web), first[0], "the seed decides");
        assert_ne!(draw(&Draws::new(7, 5), web), first[0], "a start on data draws anew");
    }

    #[test]
    fn objects_of_other_namespaces_prefixes_and_owners_draw_other_values() {
        let base = origin("shop", "web-", "web");
        for other in [
            origin("test", "web-", "web"),
            origin("shop", "web-x-", "web"),
            origin("shop", "web-", "b"),
        ] {
            assert_ne!(other, base);
        }
        let draws = Draws::new(7, 0);
        let values =
            [Use::Uid, Use::Name, Use::TokenVolume].map(|of| draws.next(of, base).random::<u64>());
        assert!(values[0] != values[1] && values[1] != values[2], "{values:?}");
    }
}
