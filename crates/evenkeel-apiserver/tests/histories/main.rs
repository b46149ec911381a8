//! Random histories on the embedded server and on upstream's kube-apiserver: each step gets the same answer, and watches see the
//! same events in the same order.
//!
//! It runs where `EVENKEEL_UPSTREAM_BIN` names the folder of upstream's programs (`tests/upstream/build FOLDER` makes them).
//! `EVENKEEL_HISTORIES` is the number of histories, `EVENKEEL_HISTORIES_SEED` the first one's seed: `EVENKEEL_HISTORIES=1
//! EVENKEEL_HISTORIES_SEED=n` repeats one and prints its steps. `EVENKEEL_HISTORIES_REPORT` names a file for all differences, one
//! JSON object a line.

mod accepted;
mod generate;
mod kinds;
#[path = "../parity/mod.rs"]
mod parity;
mod schema;
mod side;

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use generate::{History, history};
use http::Method;
use kinds::Kind;
use parity::compare::{Verdict, compare, first_difference, normalised};
use parity::report::{Case, Report};
use parity::servers::{Oracle, Sent};
use parity::{number, variable};
use serde_json::{Value, json};
use side::Side;

/// Histories of an ordinary run.
const N_HISTORIES: u64 = 200;

/// The share of equal steps, texts apart, in an ordinary run: it only rises. A history ends with its first difference.
const LEAST_EQUAL: f64 = 0.998;

/// Histories at a time.
const N_CONNECTIONS: usize = 8;

/// What repeats one history.
const SEED: &str = "EVENKEEL_HISTORIES_SEED";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_are_those_of_upstream() {
    let binaries = match parity::binaries() {
        Ok(binaries) => binaries,
        Err(why) => {
            println!("histories: {why}");
            return;
        }
    };
    let oracles = Oracle::both(&binaries).await;
    let kinds = kinds::all();
    for oracle in &oracles {
        define(oracle, &kinds).await;
    }
    let first = number(SEED).unwrap_or_default();
    let n_histories = number("EVENKEEL_HISTORIES").unwrap_or(N_HISTORIES);
    let next = AtomicU64::new(first);
    let workers = (0..N_CONNECTIONS).map(async |_| {
        let mut report = Report::new(SEED);
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + n_histories {
                return report;
            }
            let history = history(seed, &kinds);
            let steps = run(seed, &history, &oracles, &mut report).await;
            if n_histories == 1 {
                steps.iter().for_each(|step| println!("{step}"));
            }
        }
    });
    let mut report = Report::new(SEED);
    futures::future::join_all(workers).await.into_iter().for_each(|part| report.add(part));
    println!("{report}");
    if let Some(file) = variable("EVENKEEL_HISTORIES_REPORT") {
        let mut file = std::fs::File::create(file).expect("a file");
        report.differences.iter().for_each(|line| writeln!(file, "{line}").expect("written"));
    }
    assert!(report.share_equal_but_texts() >= LEAST_EQUAL, "fewer steps are equal than before");
}

/// Defines the custom resources, and waits until they are served.
async fn define(oracle: &Oracle, kinds: &[Kind]) {
    let mut connection = oracle.connect().await;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for kind in kinds {
        let Some(definition) = kind.definition() else { continue };
        let post = Sent {
            method: Method::POST,
            path: path.to_owned(),
            media: "application/json",
            body: definition,
        };
        let answer = connection.ask(&post).await;
        assert_eq!(answer.code, 201, "{}: {}", kind.kind, answer.body);
    }
    for kind in kinds {
        let get = Sent {
            method: Method::GET,
            path: kind.collection("default"),
            media: "",
            body: Value::Null,
        };
        let mut n_tries = 0;
        while connection.ask(&get).await.code != 200 {
            n_tries += 1;
            assert!(n_tries < 600, "{} are not served", kind.plural);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Runs a history on both servers, up to its first difference. Returns its steps with their answers.
async fn run(
    seed: u64,
    history: &History,
    oracles: &[Oracle; 2],
    report: &mut Report,
) -> Vec<String> {
    let mut shown = Vec::new();
    let namespace = format!("h{seed}");
    let [mut theirs, mut ours] = [
        Side::begin(&oracles[0], history, &namespace).await,
        Side::begin(&oracles[1], history, &namespace).await,
    ];
    for (index, step) in history.steps.iter().enumerate() {
        let answers = [theirs.take(step).await, ours.take(step).await];
        let verdict = compare(&answers[0], &answers[1]);
        let answers = [normalised(&answers[0]), normalised(&answers[1])];
        shown.push(format!("{}\n  {}\n  {}", step.shown(), answers[0], answers[1]));
        let place = if answers[0]["code"] == answers[1]["code"] {
            first_difference(&answers[0], &answers[1])
        } else {
            "/code".to_owned()
        };
        let case = Case {
            seed,
            kind: &history.kind.kind,
            verb: step.verb,
            change: &format!("{index}: {}", step.shown()),
            place: &place,
            path: &history.kind.plural,
        };
        match accepted::reason(&history.kind, step, &place) {
            Some(reason) if verdict != Verdict::Equal => report.accept(&case, reason),
            _ => report.note(&case, verdict, &answers[0], &answers[1]),
        }
        let is_last = index + 1 == history.steps.len();
        // Without the object that ends it, a watch would not end.
        if verdict == Verdict::Different || is_last && answers[1]["code"] != 201 {
            return shown;
        }
    }
    let (theirs, ours) = (theirs.events().await, ours.events().await);
    for ((query, theirs), ours) in history.watches.iter().zip(&theirs).zip(&ours) {
        let verdict = if theirs == ours { Verdict::Equal } else { Verdict::Different };
        let answers = [theirs, ours].map(|events| json!({"code": 200, "events": events}));
        let case = Case {
            seed,
            kind: &history.kind.kind,
            verb: "watch",
            change: query,
            place: &first_difference(&answers[0], &answers[1]),
            path: &history.kind.plural,
        };
        report.note(&case, verdict, &answers[0], &answers[1]);
    }
    shown
}
