//! Random histories on the embedded server and on upstream's kube-apiserver: each step gets the same response, and
//! watches receive the same events in the same order.
//!
//! The test runs if `EVENKEEL_UPSTREAM_BIN` names the folder of upstream's programs (`tests/upstream/build FOLDER`
//! builds them). `EVENKEEL_HISTORIES` is the number of histories, and `EVENKEEL_HISTORIES_SEED` the seed of the first
//! one. `EVENKEEL_HISTORIES=1 EVENKEEL_HISTORIES_SEED=n` repeats one history and prints its steps.
//! `EVENKEEL_HISTORIES_REPORT` names a file for all differences, one JSON object per line.

mod accepted;
mod generate;
mod kinds;
#[path = "../parity/mod.rs"]
mod parity;
mod schema;
mod side;

use generate::{History, history};
use kinds::Kind;
use parity::Seeds;
use parity::compare::{Verdict, compare, first_difference, normalised};
use parity::report::{Case, Report};
use parity::servers::{Oracle, Sent};
use serde_json::{Value, json};
use side::Side;

/// Histories of an ordinary run.
const N_HISTORIES: u64 = 200;

/// Minimum share of steps in an ordinary run that are equal except for messages. Only raise it. A history ends with its
/// first difference.
const LEAST_EQUAL: f64 = 0.998;

/// Histories at a time.
const N_CONNECTIONS: usize = 8;

/// Variable that repeats one history.
const SEED: &str = "EVENKEEL_HISTORIES_SEED";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_are_those_of_upstream() {
    let Some(binaries) = parity::binaries("histories") else { return };
    let oracles = Oracle::both(&binaries).await;
    let kinds = kinds::all();
    for oracle in &oracles {
        define(oracle, &kinds).await;
    }
    let seeds = Seeds::from_variables(SEED, "EVENKEEL_HISTORIES", N_HISTORIES);
    let is_single = seeds.left() == 1;
    let workers = (0..N_CONNECTIONS).map(async |_| {
        let mut report = Report::new(SEED);
        while let Some(seed) = seeds.take() {
            let history = history(seed, &kinds);
            let steps = run(seed, &history, &oracles, &mut report).await;
            if is_single {
                steps.iter().for_each(|step| println!("{step}"));
            }
        }
        report
    });
    let reports = futures::future::join_all(workers).await;
    let report = Report::sum(SEED, reports);
    println!("{report}");
    report.save("EVENKEEL_HISTORIES_REPORT");
    assert!(report.share_equal_but_texts() >= LEAST_EQUAL, "fewer steps are equal than before");
}

/// Defines the custom resources, and waits until they are served.
async fn define(oracle: &Oracle, kinds: &[Kind]) {
    let mut connection = oracle.connect().await;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for kind in kinds {
        let Some(definition) = kind.definition() else { continue };
        let answer = connection.ask(&Sent::post(path, definition)).await;
        assert_eq!(answer.code, 201, "{}: {}", kind.kind, answer.body);
    }
    for kind in kinds {
        connection.until_served(&kind.collection("default")).await;
    }
}

/// Sorts errors that upstream reports in the random order of Go's maps: errors of a custom object's fields, and
/// managers that an apply conflicts with.
fn sort_errors(status: &mut Value) {
    let is_custom = status["details"]["group"] == "histories.example.com";
    let is_conflict = status["details"]["causes"][0]["reason"] == "FieldManagerConflict";
    if status["kind"] != "Status" || !is_custom && !is_conflict {
        return;
    }
    if let Some(causes) = status["details"]["causes"].as_array_mut() {
        causes.sort_by_key(Value::to_string);
    }
    let message = status["message"].as_str().unwrap_or_default();
    if let Some((head, errors)) = message.split_once(" is invalid: [") {
        let mut errors: Vec<&str> = errors.trim_end_matches(']').split(", ").collect();
        errors.sort_unstable();
        status["message"] = format!("{head} is invalid: [{}]", errors.join(", ")).into();
    }
}

/// Runs a history on both servers, up to its first difference. Returns its steps with their responses.
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
        let mut answers = [theirs.take(step).await, ours.take(step).await];
        answers.iter_mut().for_each(|answer| sort_errors(&mut answer.body));
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
