//! Reads by seed: a path of some area, with parameters and headers of every sort.

use http::Method;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

/// Stands for a token that continues the same list after one page; see [`Read::page`].
pub(crate) const CONTINUE: &str = "@CONTINUE@";
/// Stands for the entity tag of the same path.
pub(crate) const ETAG: &str = "@ETAG@";

/// What a request is about.
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

/// One request.
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
    /// Path and query.
    pub(crate) fn uri(&self) -> String {
        let query: Vec<String> =
            self.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if query.is_empty() {
            self.path.clone()
        } else {
            format!("{}?{}", self.path, query.join("&"))
        }
    }

    /// The list whose token continues in this one.
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

const COLLECTIONS: [&str; 34] = [
    "/api/v1/namespaces/reads-a/configmaps",
    "/api/v1/namespaces/reads-a/configmaps",
    "/api/v1/namespaces/reads-a/configmaps",
    "/api/v1/namespaces/reads-b/configmaps",
    "/api/v1/namespaces/reads-c/configmaps",
    "/api/v1/namespaces/missing/configmaps",
    "/api/v1/namespaces/reads-a/secrets",
    "/api/v1/secrets",
    "/api/v1/pods",
    "/api/v1/pods",
    "/api/v1/namespaces/reads-a/pods",
    "/api/v1/namespaces/reads-a/services",
    "/api/v1/namespaces",
    "/api/v1/nodes",
    "/api/v1/persistentvolumes",
    "/api/v1/events",
    "/api/v1/namespaces/reads-a/events",
    "/apis/events.k8s.io/v1/namespaces/reads-a/events",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/namespaces/reads-a/deployments",
    "/apis/apps/v1/namespaces/reads-a/replicasets",
    "/apis/autoscaling/v1/namespaces/reads-a/horizontalpodautoscalers",
    "/apis/autoscaling/v2/horizontalpodautoscalers",
    "/apis/batch/v1/jobs",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/reads.example.com/v1/widgets",
    "/apis/reads.example.com/v1/namespaces/reads-a/widgets",
    "/apis/reads.example.com/v1/namespaces/reads-a/widgets",
    "/apis/reads.example.com/v2beta1/widgets",
    "/apis/reads.example.com/v2beta1/namespaces/reads-b/widgets",
    "/apis/reads.example.com/v1/racks",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/api/v1/componentstatuses",
];

const OBJECTS: [&str; 30] = [
    "/api/v1/namespaces/reads-a/configmaps/c1",
    "/api/v1/namespaces/reads-a/configmaps/c2",
    "/api/v1/namespaces/reads-a/configmaps/c3",
    "/api/v1/namespaces/reads-a/configmaps/none",
    "/api/v1/namespaces/missing/configmaps/none",
    "/api/v1/namespaces/reads-a/secrets/s1",
    "/api/v1/namespaces/reads-a/pods/p1",
    "/api/v1/namespaces/reads-a/pods/p1/status",
    "/api/v1/namespaces/reads-b/pods/p1",
    "/api/v1/namespaces/reads-a/services/web",
    "/api/v1/namespaces/reads-a/services/web/status",
    "/api/v1/namespaces/reads-b",
    "/api/v1/namespaces/reads-b/status",
    "/api/v1/nodes/n1",
    "/api/v1/persistentvolumes/pv1",
    "/api/v1/namespaces/reads-a/events/e1",
    "/api/v1/namespaces/reads-a/events/e2",
    "/apis/events.k8s.io/v1/namespaces/reads-a/events/e2",
    "/apis/apps/v1/namespaces/reads-a/deployments/d1",
    "/apis/apps/v1/namespaces/reads-a/deployments/d1/scale",
    "/apis/apps/v1/namespaces/reads-a/deployments/d1/status",
    "/apis/autoscaling/v1/namespaces/reads-a/horizontalpodautoscalers/h1",
    "/apis/batch/v1/namespaces/reads-a/jobs/j1",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.reads.example.com",
    "/apis/reads.example.com/v1/namespaces/reads-a/widgets/w1",
    "/apis/reads.example.com/v1/namespaces/reads-a/widgets/w2/scale",
    "/apis/reads.example.com/v1/namespaces/reads-a/widgets/w2/status",
    "/apis/reads.example.com/v2beta1/namespaces/reads-a/widgets/w1",
    "/apis/reads.example.com/v1/racks/r1",
    "/apis/reads.example.com/v1/namespaces/reads-a/widgets/none",
];

/// Paths of every sort, most of them wrong.
const PATHS: [&str; 62] = [
    "/",
    "//",
    "/api/",
    "/apis/",
    "/api/v1/",
    "/apis/apps/",
    "/apis/apps/v1/",
    "/api/v2",
    "/api/v2/pods",
    "/apis/none.example.com",
    "/apis/none.example.com/v1",
    "/apis/none.example.com/v1/things",
    "/apis/apps/v9",
    "/apis/apps/v9/deployments",
    "/apis/apps/v1/nothing",
    "/apis/apps/v1/nothing/x",
    "/apis/apps/v1/namespaces/reads-a/nothing",
    "/apis/apps/v1/namespaces/reads-a/nothing/x",
    "/api/v1/nothing",
    "/api/v1/namespaces/reads-a/nothing",
    "/api/v1/pods/",
    "/api/v1/namespaces/reads-a/pods/",
    "/api/v1/namespaces/reads-a/",
    "/api/v1/namespaces/reads-a/configmaps/c1/",
    "/api/v1/namespaces/reads-a/configmaps//c1",
    "/api/v1//namespaces/reads-a/configmaps/c1",
    "//api/v1/namespaces/reads-a/configmaps/c1",
    "/api/v1/namespaces//configmaps",
    "/api/v1/namespaces//configmaps/c1",
    "/api/v1/namespaces/reads-a/configmaps/c%31",
    "/api/v1/namespaces/reads-a/configmaps/c%2F1",
    "/api/v1/namespaces/reads-a/configmaps/%2e%2e",
    "/api/v1/namespaces/reads-a/configmaps/..",
    "/api/v1/namespaces/reads-a/configmaps/.",
    "/api/v1/namespaces/reads-a/configmaps/c1/../c2",
    "/api/v1/namespaces/reads%2Da/configmaps",
    "/api/v1/namespaces/reads-a/configmaps/a%25b",
    "/api/v1/namespaces/reads-a/configmaps/A_B",
    "/api/v1/namespaces/reads-a/configmaps/c1/status",
    "/api/v1/namespaces/reads-a/configmaps/c1/nothing",
    "/api/v1/namespaces/reads-a/configmaps/c1/status/more",
    "/api/v1/namespaces/reads-a/pods/p1/nothing",
    "/api/v1/namespaces/reads-a/pods/p1/binding",
    "/api/v1/namespaces/reads-a/pods/p1/eviction",
    "/api/v1/namespaces/reads-a/pods/p1/status/x",
    "/api/v1/configmaps/c1",
    "/api/v1/namespaces/reads-a/nodes",
    "/api/v1/namespaces/reads-a/nodes/n1",
    "/api/v1/namespaces/reads-a/namespaces",
    "/api/v1/bindings",
    "/api/v1/namespaces/reads-a/bindings",
    "/apis/authentication.k8s.io/v1/tokenreviews",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/apis/reads.example.com/v0/widgets",
    "/apis/reads.example.com/v3/widgets",
    "/apis/reads.example.com/v1/nothing",
    "/apis/reads.example.com/v1/namespaces/reads-a/widgets/w1/nothing",
    "/apis/reads.example.com/v2beta1/namespaces/reads-a/widgets/w1/scale",
    "/apis/reads.example.com/v1/widgets/w1",
    "/apis/reads.example.com/v1/namespaces/reads-a/racks",
    "/Api/v1/pods",
    "/nothing",
];

/// Collections and objects by the old paths of watches.
const OLD_WATCHES: [&str; 8] = [
    "/api/v1/watch/namespaces/reads-a/configmaps",
    "/api/v1/watch/configmaps",
    "/api/v1/watch/namespaces/reads-a/configmaps/c1",
    "/api/v1/watch/namespaces/reads-a",
    "/api/v1/watch/nodes/n1",
    "/apis/apps/v1/watch/deployments",
    "/apis/reads.example.com/v1/watch/namespaces/reads-a/widgets",
    "/api/v1/watch/nothing",
];

const DISCOVERY: [&str; 12] = [
    "/api",
    "/apis",
    "/api",
    "/apis",
    "/api/v1",
    "/apis/apps",
    "/apis/apps/v1",
    "/apis/reads.example.com",
    "/apis/reads.example.com/v1",
    "/apis/reads.example.com/v2beta1",
    "/apis/autoscaling",
    "/apis/events.k8s.io/v1",
];

const OPENAPI: [&str; 8] = [
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/",
    "/openapi/v3/api/v1",
    "/openapi/v3/apis/apps/v1",
    "/openapi/v3/apis/reads.example.com/v1",
    "/openapi/v3/apis/reads.example.com/v2beta1",
    "/openapi/v3/nothing",
];

const HEALTH: [&str; 16] = [
    "/version",
    "/version/",
    "/healthz",
    "/livez",
    "/readyz",
    "/healthz/",
    "/healthz/ping",
    "/livez/ping",
    "/readyz/ping",
    "/readyz/etcd",
    "/readyz/nothing",
    "/healthz/poststarthook/rbac/bootstrap-roles",
    "/.well-known/openid-configuration",
    "/openid/v1/jwks",
    "/logs",
    "/debug/nothing",
];

const ACCEPTS: [&str; 50] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/cbor",
    "application/cbor, application/json",
    "*/*",
    "application/*",
    "text/*",
    "text/html",
    "",
    "garbage",
    "garbage/",
    "application/json;q=0",
    "application/json;q=0.1,application/yaml;q=0.9",
    "application/yaml;q=0.2, application/vnd.kubernetes.protobuf;q=0.3",
    "application/json;charset=utf-8",
    "application/json;charset=latin1",
    "application/json;pretty=1",
    "application/json;stream=watch",
    "application/json;stream=nothing",
    "application/vnd.kubernetes.protobuf;stream=watch",
    "application/xml,application/json",
    "application/xml, */*;q=0.1",
    "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "application/vnd.kubernetes.protobuf,application/json",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
    "application/json;as=Table;v=v2;g=meta.k8s.io",
    "application/json;as=Table;v=v2;g=meta.k8s.io,application/json",
    "application/json;as=Table;g=meta.k8s.io",
    "application/json;as=Table;v=v1",
    "application/json;as=table;v=v1;g=meta.k8s.io",
    "application/yaml;as=Table;v=v1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
    "application/yaml;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/yaml;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;as=Nothing;v=v1;g=meta.k8s.io",
    "application/json;as=Table;v=v1;g=meta.k8s.io;q=0.1,application/json;q=0.2",
    "application/json;profile=nullable",
    "application/json;v=v1;g=apps",
    "application/apply-patch+yaml",
];

const DISCOVERY_ACCEPTS: [&str; 11] = [
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer",
    "application/json;as=APIGroupDiscoveryList;v=v2",
    "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    "application/vnd.kubernetes.protobuf",
    "application/json",
    "application/json, */*",
    "application/yaml",
];

const OPENAPI_ACCEPTS: [&str; 9] = [
    "application/json",
    "*/*",
    "",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
    "application/yaml",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf;q=0.1,application/json",
];

const LABEL_SELECTORS: [&str; 34] = [
    "app=web",
    "app==web",
    "app!=web",
    "app",
    "!app",
    "app in (web,db)",
    "app notin (web)",
    "app in ()",
    "app in (web",
    "app=web,tier=front",
    "app=web,!tier",
    "app=",
    "app!=",
    "app=web,",
    ",app=web",
    "version>1",
    "version<5",
    "version>a",
    "version>=1",
    "app=web tier=front",
    "=web",
    "a/b/c=d",
    "Bad Key!=x",
    "app=bad value!",
    "example.com/name=x",
    "app in (web),app in (db)",
    "app,app",
    "-a=b",
    "app=-b",
    "app===web",
    "app=ünï",
    "(app)",
    "in in (in)",
    " app = web ",
];

const FIELD_SELECTORS: [&str; 36] = [
    "metadata.name=c1",
    "metadata.name==c1",
    "metadata.name!=c1",
    "metadata.name=p1",
    "metadata.name=w1",
    "metadata.name=",
    "metadata.name",
    "metadata.name=c1,metadata.namespace=reads-a",
    "metadata.namespace=reads-a",
    "metadata.namespace=reads-b",
    "metadata.namespace!=reads-a",
    "metadata.uid=x",
    "metadata.labels.app=web",
    "nothing=x",
    "spec.nodeName=n1",
    "spec.nodeName!=n1",
    "spec.nodeName=",
    "status.phase=Running",
    "status.phase!=Running,spec.restartPolicy=Always",
    "spec.hostNetwork=true",
    "spec.schedulerName=default-scheduler",
    "status.podIP=10.1.1.1",
    "type=Opaque",
    "type!=Opaque",
    "spec.unschedulable=true",
    "spec.unschedulable=false",
    "involvedObject.kind=Pod",
    "involvedObject.name=p1,reason=Started",
    "status.successful=0",
    "spec.color=red",
    "spec.color!=red",
    "spec.size=3",
    "spec.size>1",
    "metadata.name=a\\,b",
    "metadata.name=a\\x",
    "metadata.name in (c1)",
];

const VERSIONS: [&str; 11] = [
    "0",
    "@CURRENT@",
    "@CURRENT@",
    "@OLD@",
    "@MID@",
    "@MID@",
    "@FUTURE@",
    "1",
    "garbage",
    "-1",
    "99999999999999999999",
];

const METHODS: [&str; 9] =
    ["HEAD", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND"];

/// The request of a seed.
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
            // What would be deleted has to stay.
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
