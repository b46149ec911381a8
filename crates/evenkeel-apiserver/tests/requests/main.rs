//! Sends handwritten requests to the embedded server and to upstream's kube-apiserver, and compares their responses.
//! They cover cases that generators do not reach, such as a sequence that a rule needs.
//!
//! The test runs if `EVENKEEL_UPSTREAM_BIN` names the folder of upstream's programs (`tests/upstream/build FOLDER`
//! builds them). `requests.yaml` has the requests by area, in order: method, path, body and media type. All responses
//! must be equal, including messages. `UNTIL` waits until its path is served.

#[path = "../parity/mod.rs"]
mod parity;

use http::Method;
use parity::compare::{Verdict, compare, normalised};
use parity::servers::{Connection, Oracle, Sent};
use serde_json::Value;

/// The written requests, by area.
const REQUESTS: &str = include_str!("requests.yaml");

/// Returns the media type for the name of a patch or body in the file.
fn media(name: &str) -> &'static str {
    match name {
        "merge" => "application/merge-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        "json-patch" => "application/json-patch+json",
        "apply" => "application/apply-patch+yaml",
        "xml" => "application/xml",
        "form" => "application/x-www-form-urlencoded",
        "protobuf" => "application/vnd.kubernetes.protobuf",
        _ => "application/json",
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn written_requests_get_upstreams_answers() {
    let Some(binaries) = parity::binaries("requests") else { return };
    let oracles = Oracle::both(&binaries).await;
    let mut both = [oracles[0].connect().await, oracles[1].connect().await];
    let areas = evenkeel_apimachinery::decode::file(REQUESTS.as_bytes()).expect("YAML");
    let (mut n_requests, mut n_different) = (0, 0);
    for (area, requests) in areas.as_object().into_iter().flatten() {
        let namespace = format!("requests-{area}");
        for connection in &mut both {
            connection.make_namespace(&namespace).await;
        }
        for request in requests.as_array().into_iter().flatten() {
            n_requests += 1;
            if let Some(difference) = ask(&mut both, &namespace, request).await {
                n_different += 1;
                println!("{area}: {request}\n{difference}");
            }
        }
    }
    println!("{n_requests} requests, {n_different} different");
    assert_eq!(n_different, 0, "upstream gave other answers");
}

/// Sends a request to both servers. Returns both responses if they differ. `NAMESPACE` in the request stands for the
/// area's namespace.
async fn ask(both: &mut [Connection; 2], namespace: &str, request: &Value) -> Option<String> {
    let request = request.to_string().replace("NAMESPACE", namespace);
    let request: Value = serde_json::from_str(&request).expect("JSON");
    let text = |index: usize| request[index].as_str().unwrap_or_default().to_owned();
    let (method, path) = (text(0), text(1));
    if method == "UNTIL" {
        for connection in both {
            connection.until_served(&path).await;
        }
        return None;
    }
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    let sent = Sent { method, path, media: media(&text(3)), body: request[2].clone() };
    let [theirs, ours] = both;
    let (theirs, ours) = (theirs.ask(&sent).await, ours.ask(&sent).await);
    let is_equal = compare(&theirs, &ours) == Verdict::Equal;
    (!is_equal)
        .then(|| format!("  theirs: {}\n  ours:   {}", normalised(&theirs), normalised(&ours)))
}
