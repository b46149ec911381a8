//! Random values of new objects. The generator of a seeded server depends on the object to create. The values therefore
//! do not depend on the order in which requests for different objects arrive.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use evenkeel_apimachinery::group_version::GroupResource;
use evenkeel_apimachinery::value::{list, text};
use jiff::Timestamp;
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

/// Identity of a new object before it has a UID, and perhaps before it has a name. It consists of the resource,
/// namespace, name and `generateName`, and of the kind and name of its controller. The pods of one ReplicaSet have the
/// same origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Origin(u64);

impl Origin {
    /// Returns the origin of a new object in a namespace.
    pub(crate) fn of(resource: &GroupResource, namespace: &str, object: &Value) -> Self {
        // Unlike the default hasher of a map, this hasher has fixed keys.
        let mut hasher = DefaultHasher::new();
        (resource, namespace).hash(&mut hasher);
        (text(object, "metadata.name"), text(object, "metadata.generateName")).hash(&mut hasher);
        let mut owners = list(object, "metadata.ownerReferences").iter();
        let controller = owners.find(|owner| owner["controller"] == true);
        controller.map(|owner| (text(owner, "kind"), text(owner, "name"))).hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// Lifetime of the counts of drawn values, except for those of generated names. Named objects, such as Events, have
/// almost as many origins as objects, so their counts are dropped after this time. Only an object that is created again
/// under its name draws twice.
const PERIOD: Duration = Duration::from_secs(3600);

/// Generators of a seeded server: one for each value of each origin.
#[derive(Debug)]
pub(crate) struct Draws {
    /// Seed, and the store's revision at the start.
    seed: (u64, u64),
    /// Time of the start.
    start: Timestamp,
    drawn: Mutex<Drawn>,
}

/// Numbers of values that were drawn.
#[derive(Debug, Default)]
struct Drawn {
    /// Of generated names. Their origins are as many as the controllers' objects.
    names: HashMap<Origin, u32>,
    /// Number of the current [`PERIOD`] since the start.
    period: u64,
    /// Of other values in the current period.
    others: HashMap<(Use, Origin), u32>,
}

impl Drawn {
    /// Counts a draw. Returns its period and its number, which no other draw of this use and origin has.
    fn count(&mut self, value_use: Use, origin: Origin, period: u64) -> (u64, u32) {
        let (period, count) = match value_use {
            Use::Name => (0, self.names.entry(origin).or_default()),
            Use::Uid | Use::TokenVolume => {
                // A clock that is set back does not begin an old period again.
                if period > self.period {
                    (self.period, self.others) = (period, HashMap::new());
                }
                (self.period, self.others.entry((value_use, origin)).or_default())
            }
        };
        *count = count.wrapping_add(1);
        (period, *count)
    }
}

impl Draws {
    /// Returns the generators of a server that starts at this time with a store at this revision.
    pub(crate) fn new(seed: u64, revision: u64, start: Timestamp) -> Self {
        Self { seed: (seed, revision), start, drawn: Mutex::default() }
    }

    /// Returns the generator of the next value for an object of this origin. The generator depends on the seed, the
    /// use, the origin, and the number of values that were drawn before for the same use and origin. Except for names,
    /// it also depends on the number of hours since the start.
    pub(crate) fn next(&self, value_use: Use, origin: Origin, now: Timestamp) -> StdRng {
        let elapsed = Duration::try_from(now.duration_since(self.start)).unwrap_or_default();
        let period = elapsed.as_secs() / PERIOD.as_secs();
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        let number = drawn.count(value_use, origin, period);
        drop(drawn);
        let mut hasher = DefaultHasher::new();
        (self.seed, value_use, origin, number).hash(&mut hasher);
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

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).expect("a time")
    }

    fn draws(seed: u64, revision: u64) -> Draws {
        Draws::new(seed, revision, at(0))
    }

    #[test]
    fn the_order_of_other_owners_does_not_matter() {
        let (web, api) = (origin("shop", "web-", "web"), origin("shop", "api-", "api"));
        for value_use in [Use::Name, Use::Uid] {
            let draw = |draws: &Draws, origin| draws.next(value_use, origin, at(0)).random::<u64>();
            let (one, two) = (draws(7, 0), draws(7, 0));
            let first = [draw(&one, web), draw(&one, web), draw(&one, api)];
            let second = [draw(&two, api), draw(&two, web), draw(&two, web)];
            assert_eq!(first, [second[1], second[2], second[0]], "{value_use:?}");
            assert_ne!(first[0], first[1], "each draw of an origin is another one");
            assert_ne!(draw(&draws(8, 0), web), first[0], "the seed decides");
            assert_ne!(draw(&draws(7, 5), web), first[0], "a start with data draws other values");
        }
    }

    #[test]
    fn named_objects_are_counted_for_an_hour() {
        let draws = draws(7, 0);
        let web = origin("shop", "web-", "web");
        let mut drawn = std::collections::HashSet::new();
        // The clock is also set back.
        for second in [0, 1, 3599, 3600, 3599, 3600, 9000, 0] {
            for value_use in [Use::Uid, Use::Name, Use::TokenVolume] {
                let value = draws.next(value_use, web, at(second)).random::<u64>();
                assert!(drawn.insert(value), "{value_use:?} at {second} is drawn twice");
            }
        }
        for index in 0..1000 {
            draws.next(Use::Uid, origin("shop", &format!("{index}"), "event"), at(9000));
        }
        let counts = |draws: &Draws| {
            let drawn = draws.drawn.lock().expect("no panic");
            (drawn.names.len(), drawn.others.len())
        };
        assert_eq!(counts(&draws), (1, 1002));
        draws.next(Use::Uid, web, at(3 * 3600));
        assert_eq!(counts(&draws), (1, 1), "the events of the last hours are forgotten");
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
        let draws = draws(7, 0);
        let values = [Use::Uid, Use::Name, Use::TokenVolume]
            .map(|value_use| draws.next(value_use, base, at(0)).random::<u64>());
        assert!(values[0] != values[1] && values[1] != values[2], "{values:?}");
    }
}
