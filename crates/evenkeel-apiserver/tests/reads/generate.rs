//! Reads by seed: a path of some area, with random parameters and headers.

use http::Method;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

use crate::pools::{
    ACCEPTS, COLLECTIONS, DISCOVERY, DISCOVERY_ACCEPTS, FIELD_SELECTORS, HEALTH, LABEL_SELECTORS,
    METHODS, OBJECTS, OLD_WATCHES, OPENAPI, OPENAPI_ACCEPTS, PATHS, VERSIONS,
};

/// Placeholder of a token that continues the same list after one page; see [`Read::page`].
pub(crate) const CONTINUE: &str = "@CONTINUE@";
/// Placeholder of the entity tag of the same path.
pub(crate) const ETAG: &str = "@ETAG@";

/// Area of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Area {
    List,
    Get,
    Watch,
    Path,
    Method,
    Discovery,
    OpenApi,
    Health,
}

/// Generated read, with the seed that repeats it.
#[derive(Debug, Clone)]
pub(crate) struct Read {
    pub(crate) seed: u64,
    pub(crate) area: Area,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) headers: Vec<(&'static str, String)>,
}

impl Read {
    /// Returns the request's path and query.
    pub(crate) fn uri(&self) -> String {
        let query: Vec<String> =
            self.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if query.is_empty() {
            self.path.clone()
        } else {
            format!("{}?{}", self.path, query.join("&"))
        }
    }

    /// Returns the path and query of the list whose continue token this request sends.
    pub(crate) fn page(&self) -> String {
        let kept = |name: &str| matches!(name, "labelSelector" | "fieldSelector");
        let kept = self.query.iter().filter(|(name, _)| kept(name));
        let kept: String = kept.map(|(name, value)| format!("&{name}={value}")).collect();
        format!("{}?limit=1{kept}", self.path)
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }
}

/// Returns the request that the generator makes from a seed.
pub(crate) fn read(seed: u64) -> Read {
    let mut rng = StdRng::seed_from_u64(seed);
    let area = match rng.random_range(0..100) {
        0..38 => Area::List,
        38..52 => Area::Get,
        52..66 => Area::Watch,
        66..78 => Area::Path,
        78..84 => Area::Method,
        84..92 => Area::Discovery,
        92..95 => Area::OpenApi,
        _ => Area::Health,
    };
    let mut read = Read {
        seed,
        area,
        method: Method::GET,
        path: String::new(),
        query: Vec::new(),
        headers: Vec::new(),
    };
    match area {
        Area::List => list(&mut read, &mut rng),
        Area::Get => get(&mut read, &mut rng),
        Area::Watch => watch(&mut read, &mut rng),
        Area::Path => read.path = one(&PATHS, &mut rng),
        Area::Method => {
            let pools: [&[&str]; 5] = [&COLLECTIONS, &OBJECTS, &PATHS, &DISCOVERY, &HEALTH];
            read.path = one(pools.choose(&mut rng).expect("a pool"), &mut rng);
            read.method = one(&METHODS, &mut rng).parse().expect("a method");
            // The objects must remain: send writes as dry runs.
            if matches!(read.method, Method::DELETE | Method::POST | Method::PUT | Method::PATCH) {
                read.query.push(("dryRun", "All".to_owned()));
            }
        }
        Area::Discovery => discovery(&mut read, &mut rng),
        Area::OpenApi => {
            read.path = one(&OPENAPI, &mut rng);
            if rng.random_bool(0.8) {
                read.headers.push(("accept", one(&OPENAPI_ACCEPTS, &mut rng)));
            }
            if rng.random_bool(0.2) {
                read.query.push(("hash", "garbage".to_owned()));
            }
            tagged(&mut read, &mut rng);
        }
        Area::Health => {
            read.path = one(&HEALTH, &mut rng);
            if rng.random_bool(0.4) {
                read.query.push(("verbose", one(&["", "1", "false"], &mut rng)));
            }
            if rng.random_bool(0.4) {
                let excluded = ["etcd", "ping", "nothing", "poststarthook/rbac/bootstrap-roles"];
                read.query.push(("exclude", one(&excluded, &mut rng)));
            }
        }
    }
    if read.header("accept").is_empty()
        && !matches!(area, Area::OpenApi | Area::Discovery)
        && rng.random_bool(0.45)
    {
        read.headers.push(("accept", one(&ACCEPTS, &mut rng)));
    }
    if rng.random_bool(0.2) {
        let encodings = ["gzip", "gzip, deflate", "identity", "gzip;q=0", "*", "deflate"];
        read.headers.push(("accept-encoding", one(&encodings, &mut rng)));
    }
    if area != Area::Health && rng.random_bool(0.12) {
        let values = ["true", "false", "1", "0", "", "x"];
        read.query.push(("pretty", one(&values, &mut rng)));
    } else if rng.random_bool(0.05) {
        read.headers.push(("user-agent", "curl/8".to_owned()));
    }
    if rng.random_bool(0.15) {
        let values = ["None", "Metadata", "Object", "", "none", "garbage"];
        read.query.push(("includeObject", one(&values, &mut rng)));
    }
    read
}

fn one(pool: &[&str], rng: &mut StdRng) -> String {
    (*pool.choose(rng).expect("one")).to_owned()
}

/// Encodes a value of a query.
fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

fn selectors(read: &mut Read, rng: &mut StdRng) {
    if rng.random_bool(0.25) {
        read.query.push(("labelSelector", encoded(&one(&LABEL_SELECTORS, rng))));
    }
    if rng.random_bool(0.25) {
        read.query.push(("fieldSelector", encoded(&one(&FIELD_SELECTORS, rng))));
    }
}

fn version(read: &mut Read, rng: &mut StdRng, share: f64) {
    if rng.random_bool(share) {
        read.query.push(("resourceVersion", one(&VERSIONS, rng)));
    }
}

fn list(read: &mut Read, rng: &mut StdRng) {
    read.path = one(&COLLECTIONS, rng);
    selectors(read, rng);
    let is_next = rng.random_bool(0.2);
    version(read, rng, if is_next { 0.2 } else { 0.5 });
    if rng.random_bool(if is_next { 0.1 } else { 0.35 }) {
        let matches = ["Exact", "NotOlderThan", "Exact", "NotOlderThan", "", "garbage"];
        read.query.push(("resourceVersionMatch", one(&matches, rng)));
    }
    if rng.random_bool(0.4) {
        let limits = ["0", "1", "2", "3", "500", "garbage", "-1", "1.5", "9223372036854775808", ""];
        read.query.push(("limit", one(&limits, rng)));
    }
    if is_next {
        let tokens = [CONTINUE, CONTINUE, CONTINUE, CONTINUE, "garbage", "e30", ""];
        read.query.push(("continue", one(&tokens, rng)));
    }
    if rng.random_bool(0.05) {
        read.query.push(("timeoutSeconds", one(&["1", "0", "x", "-1", ""], rng)));
    }
    if rng.random_bool(0.04) {
        read.query.push(("sendInitialEvents", one(&["true", "false", ""], rng)));
    }
    if rng.random_bool(0.04) {
        read.query.push(("allowWatchBookmarks", one(&["true", "false", ""], rng)));
    }
}

fn get(read: &mut Read, rng: &mut StdRng) {
    read.path = one(&OBJECTS, rng);
    version(read, rng, 0.3);
    if rng.random_bool(0.05) {
        selectors(read, rng);
    }
    if rng.random_bool(0.03) {
        read.query.push(("watch", "true".to_owned()));
        read.query.push(("timeoutSeconds", "1".to_owned()));
    }
}

fn watch(read: &mut Read, rng: &mut StdRng) {
    if rng.random_bool(0.1) {
        read.path = one(&OLD_WATCHES, rng);
    } else {
        read.path = one(&COLLECTIONS, rng);
        let values = ["true", "1", "true", "", "t", "yes"];
        read.query.push(("watch", one(&values, rng)));
    }
    read.query.push(("timeoutSeconds", "1".to_owned()));
    selectors(read, rng);
    version(read, rng, 0.6);
    if rng.random_bool(0.4) {
        read.query.push(("allowWatchBookmarks", one(&["true", "1", "false"], rng)));
    }
    if rng.random_bool(0.35) {
        read.query.push(("sendInitialEvents", one(&["true", "true", "false", "", "x"], rng)));
    }
    if rng.random_bool(0.35) {
        let matches = ["NotOlderThan", "NotOlderThan", "NotOlderThan", "Exact", "", "garbage"];
        read.query.push(("resourceVersionMatch", one(&matches, rng)));
    }
    if rng.random_bool(0.05) {
        read.query.push(("limit", "1".to_owned()));
    }
    if rng.random_bool(0.05) {
        read.query.push(("continue", "garbage".to_owned()));
    }
}

fn discovery(read: &mut Read, rng: &mut StdRng) {
    read.path = one(&DISCOVERY, rng);
    let pool: &[&str] = if rng.random_bool(0.8) { &DISCOVERY_ACCEPTS } else { &ACCEPTS };
    if rng.random_bool(0.85) {
        read.headers.push(("accept", one(pool, rng)));
    }
    tagged(read, rng);
}

/// Adds the entity tag that a client may have.
fn tagged(read: &mut Read, rng: &mut StdRng) {
    if rng.random_bool(0.3) {
        let tags = [ETAG, ETAG, "\"garbage\"", "*", "garbage"];
        read.headers.push(("if-none-match", one(&tags, rng)));
    }
}
