//! Generated CEL expressions on the embedded server and on upstream's kube-apiserver. Both refuse the same expressions
//! with the same messages, and evaluate the others to the same values and errors.
//!
//! The test runs if `EVENKEEL_UPSTREAM_BIN` names the folder of upstream's programs (`tests/upstream/build FOLDER`
//! builds them). `EVENKEEL_EXPRESSIONS` is the number of expressions, and `EVENKEEL_EXPRESSIONS_SEED` the seed of the
//! first one. `EVENKEEL_EXPRESSIONS_REPORT` names a file for all differences, one JSON object per line. `accepted`
//! lists the accepted differences.

mod accepted;
mod generate;
mod grammar;
mod literals;
#[path = "../parity/mod.rs"]
mod parity;
mod places;
mod scopes;
mod values;

use generate::Generated;
use parity::compare::Verdict;
use parity::report::{Case, Report};
use parity::servers::{Connection, Oracle};
use parity::{Seeds, number};
use places::{ExpressionField, PLACES, said};
use serde_json::Value;

/// Expressions of an ordinary run.
const N_EXPRESSIONS: u64 = 2_400;

/// Minimum share of expressions in an ordinary run that both servers accept or refuse, and evaluate, equally except for
/// messages. Only raise it.
const LEAST_EQUAL: f64 = 0.998;

/// Minimum share of responses that are equal with their messages. Only raise it.
const LEAST_EQUAL_TEXTS: f64 = 0.99;

/// Connections to each server.
const N_CONNECTIONS: usize = 4;

/// Variable that repeats expressions.
const SEED: &str = "EVENKEEL_EXPRESSIONS_SEED";

/// Seeds of one batch: more than a request holds.
const BATCH: u64 = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expressions_mean_what_upstream_says() {
    let Some(binaries) = parity::binaries("expressions") else { return };
    let oracles = Oracle::both(&binaries).await;
    let first = number(SEED).unwrap_or_default() / BATCH;
    let count = number("EVENKEEL_EXPRESSIONS").unwrap_or(N_EXPRESSIONS).div_ceil(BATCH);
    let batches = Seeds::between(first, count);
    let workers = (0..N_CONNECTIONS).map(async |_| {
        let mut both = [oracles[0].connect().await, oracles[1].connect().await];
        let mut report = Report::new(SEED);
        while let Some(batch) = batches.take() {
            run(batch, &mut both, &mut report).await;
        }
        report
    });
    let reports = futures::future::join_all(workers).await;
    let report = Report::sum(SEED, reports);
    println!("{report}");
    report.save("EVENKEEL_EXPRESSIONS_REPORT");
    assert!(
        report.share_equal_but_texts() >= LEAST_EQUAL,
        "fewer expressions are equal than before"
    );
    assert!(report.share_equal() >= LEAST_EQUAL_TEXTS, "fewer texts are equal than before");
}

/// Tries a batch of expressions. Every third one is evaluated. The others are compiled, in each place in turn.
async fn run(batch: u64, both: &mut [Connection; 2], report: &mut Report) {
    let seeds = batch * BATCH..(batch + 1) * BATCH;
    if batch % 3 == 2 {
        let expressions = seeds.take(values::COUNT).map(values::expression).enumerate().collect();
        return evaluated(batch, expressions, both, report).await;
    }
    let place = &PLACES[((batch / 3 * 2 + batch % 3) % PLACES.len() as u64) as usize];
    let expressions: Vec<Generated> =
        seeds.take(place.count).map(|seed| place.generated(seed)).collect();
    compiled(place, &expressions, both, report).await;
}

/// Compiles expressions in one request, or each in its own request if upstream does not respond.
async fn compiled(
    place: &ExpressionField,
    expressions: &[Generated],
    both: &mut [Connection; 2],
    report: &mut Report,
) {
    let sent = place.sent(expressions);
    let [theirs, ours] = both;
    let (theirs, ours) = (theirs.ask(&sent).await, ours.ask(&sent).await);
    if theirs.code == 0 && expressions.len() > 1 {
        for one in expressions {
            Box::pin(compiled(place, std::slice::from_ref(one), both, report)).await;
        }
        return;
    }
    let theirs = place.said(&theirs, expressions.len());
    let ours = place.said(&ours, expressions.len());
    for ((one, theirs), ours) in expressions.iter().zip(&theirs).zip(&ours) {
        note(one, place.name, "compile", theirs, ours, report);
    }
}

/// Defines a custom resource with the expressions that both servers accept, and compares their results.
async fn evaluated(
    batch: u64,
    mut expressions: Vec<(usize, Generated)>,
    both: &mut [Connection; 2],
    report: &mut Report,
) {
    let name = format!("value{batch}");
    for attempt in 0..2 {
        let definition = values::define(&name, &expressions);
        let [theirs, ours] = both;
        let (theirs, ours) = (
            values::serve(theirs, &name, &definition).await,
            values::serve(ours, &name, &definition).await,
        );
        if theirs.code == 201 && ours.code == 201 {
            break;
        }
        for (connection, answer) in both.iter_mut().zip([&theirs, &ours]) {
            if answer.code == 201 {
                values::remove(connection, &name).await;
            }
        }
        let mut left = Vec::new();
        for (i, one) in expressions {
            let field = format!("properties[p{i}].");
            let (theirs, ours) = (said(&theirs, &field), said(&ours, &field));
            let is_refused = [&theirs, &ours].iter().any(|said| said["code"] != 201);
            if attempt == 0 && is_refused {
                note(&one, "value", "compile", &theirs, &ours, report);
            } else if attempt == 0 {
                left.push((i, one));
            }
        }
        expressions = left;
    }
    let [theirs, ours] = both;
    let (theirs, ours) = (
        values::evaluate(theirs, &name, &expressions).await,
        values::evaluate(ours, &name, &expressions).await,
    );
    for (theirs, ours) in theirs.iter().zip(&ours) {
        for (((_, one), theirs), ours) in expressions.iter().zip(theirs).zip(ours) {
            note(one, "value", "evaluate", theirs, ours, report);
        }
    }
    for connection in both {
        values::remove(connection, &name).await;
    }
}

fn note(
    one: &Generated,
    kind: &str,
    verb: &str,
    theirs: &Value,
    ours: &Value,
    report: &mut Report,
) {
    let case =
        Case { seed: one.seed, kind, verb, change: &one.source, place: one.change, path: "" };
    let verdict = if theirs["code"] == 0 {
        Verdict::Unanswered
    } else if theirs == ours {
        Verdict::Equal
    } else if theirs["code"] == ours["code"] {
        Verdict::Texts
    } else {
        Verdict::Different
    };
    match accepted::reason(theirs, ours) {
        Some(reason) if verdict != Verdict::Equal => report.accept(&case, reason),
        _ => report.note(&case, verdict, theirs, ours),
    }
}
