//! Sends generated reads of the same objects to the embedded server and to upstream's kube-apiserver, and compares
//! their responses.
//!
//! The test runs if `EVENKEEL_UPSTREAM_BIN` names the folder of upstream's programs (`tests/upstream/build FOLDER`
//! builds them). `EVENKEEL_READS` is the number of requests, and `EVENKEEL_READS_SEED` the seed of the first one.
//! `EVENKEEL_READS_AREA` limits the test to one area. `EVENKEEL_READS_REPORT` names a file for all differences, one
//! JSON object per line.

mod accepted;
mod generate;
mod normalise;
#[path = "../parity/mod.rs"]
mod parity;
mod pools;
mod prepare;
mod shards;

use bytes::Bytes;
use generate::{CONTINUE, ETAG, Read, read};
use http::{Method, Request};
use http_body_util::Full;
use normalise::{Versions, normalised, without_texts};
use parity::compare::{Verdict, first_difference};
use parity::report::{Case, Report};
use parity::servers::{Connection, Oracle};
use parity::{Seeds, variable};
use serde_json::Value;

/// Requests of an ordinary run.
const N_REQUESTS: u64 = 4_000;

/// Minimum share of equal responses in an ordinary run. Only raise it.
const LEAST_EQUAL: f64 = 0.99;

/// Connections to each server: most of them wait for the end of a watch.
const N_CONNECTIONS: usize = 16;

/// Variable that repeats one request.
const SEED: &str = "EVENKEEL_READS_SEED";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_get_upstreams_answers() {
    let Some(binaries) = parity::binaries("reads") else { return };
    let oracles = Oracle::both(&binaries).await;
    let known = prepare::prepare(&oracles).await;
    let seeds = Seeds::from_variables(SEED, "EVENKEEL_READS", N_REQUESTS);
    let only = variable("EVENKEEL_READS_AREA");
    let workers = (0..N_CONNECTIONS).map(async |_| {
        let mut sides = [
            Side { connection: oracles[0].connect().await, known: &known[0] },
            Side { connection: oracles[1].connect().await, known: &known[1] },
        ];
        let mut report = Report::new(SEED);
        while let Some(seed) = seeds.take() {
            let read = read(seed);
            if only.as_ref().is_none_or(|only| *only == format!("{:?}", read.area)) {
                try_it(&read, &mut sides, &mut report).await;
            }
        }
        report
    });
    let reports = futures::future::join_all(workers).await;
    let report = Report::sum(SEED, reports);
    println!("{report}");
    report.save("EVENKEEL_READS_REPORT");
    assert!(report.share_equal() >= LEAST_EQUAL, "fewer answers are equal than before");
}

/// Resource versions of a server's objects: ordinal numbers of all versions, and an old, a middle and the current
/// version.
pub(crate) struct KnownObjects {
    pub(crate) versions: Versions,
    pub(crate) old: String,
    pub(crate) mid: String,
    pub(crate) current: String,
}

/// A connection to one server.
struct Side<'k> {
    connection: Connection,
    known: &'k KnownObjects,
}

/// Sends a request to both servers, and records the comparison of the responses.
async fn try_it(read: &Read, sides: &mut [Side<'_>; 2], report: &mut Report) {
    let [theirs, ours] = sides;
    let (theirs, ours) = futures::join!(theirs.answer(read), ours.answer(read));
    let verdict = if theirs == ours {
        Verdict::Equal
    } else if without_texts(theirs.clone()) == without_texts(ours.clone()) {
        Verdict::Texts
    } else {
        Verdict::Different
    };
    let place = if theirs["code"] == ours["code"] {
        first_difference(&theirs, &ours)
    } else {
        "/code".to_owned()
    };
    let case = Case {
        seed: read.seed,
        kind: &format!("{:?}", read.area),
        verb: read.method.as_str(),
        change: &accepted::shown(read),
        place: &place,
        path: &read.uri(),
    };
    match accepted::reason(read, &place) {
        Some(reason) if verdict != Verdict::Equal => report.accept(&case, reason),
        _ => report.note(&case, verdict, &theirs, &ours),
    }
}

impl Side<'_> {
    /// Sends a request with this server's versions and tokens.
    async fn answer(&mut self, read: &Read) -> Value {
        let mut read = read.clone();
        let page = read.page();
        for (_, value) in &mut read.query {
            match value.as_str() {
                "@OLD@" => *value = self.known.old.clone(),
                "@MID@" => *value = self.known.mid.clone(),
                "@CURRENT@" => *value = self.known.current.clone(),
                "@FUTURE@" => *value = "99999999".to_owned(),
                CONTINUE => {
                    let first = get(&page, &[]);
                    let first = self.connection.send(first).await;
                    let list: Value = serde_json::from_slice(&first.bytes).unwrap_or_default();
                    *value = list["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
                }
                _ => {}
            }
        }
        let uri = read.uri();
        if read.header("if-none-match") == ETAG {
            let same: Vec<_> =
                read.headers.iter().filter(|(name, _)| *name != "if-none-match").cloned().collect();
            let before = self.connection.send(get(&uri, &same)).await;
            let tag = before.headers.get("etag").and_then(|tag| tag.to_str().ok());
            let tag = tag.unwrap_or("none").to_owned();
            for (_, value) in read.headers.iter_mut().filter(|(_, value)| value == ETAG) {
                value.clone_from(&tag);
            }
        }
        let raw = self.connection.send(request(&read.method, &uri, &read.headers)).await;
        normalised(&read, &raw, &self.known.versions)
    }
}

fn get(uri: &str, headers: &[(&'static str, String)]) -> Request<Full<Bytes>> {
    request(&Method::GET, uri, headers)
}

fn request(method: &Method, uri: &str, headers: &[(&'static str, String)]) -> Request<Full<Bytes>> {
    let mut request = Request::builder()
        .method(method.clone())
        .uri(uri)
        .header("host", "localhost")
        .header("authorization", "Bearer admin");
    if !headers.iter().any(|(name, _)| *name == "user-agent") {
        request = request.header("user-agent", "reads/1");
    }
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    request.body(Full::default()).expect("a request")
}
