//! Sends generated requests to the embedded server and to upstream's kube-apiserver, and compares their responses.
//!
//! The test runs if `EVENKEEL_UPSTREAM_BIN` names the folder of upstream's programs (`tests/upstream/build FOLDER`
//! builds them). `EVENKEEL_PARITY_REQUESTS` is the number of requests, and `EVENKEEL_PARITY_SEED` the seed of the first
//! one. `EVENKEEL_PARITY_KIND` limits the test to kinds whose names contain it. The wide reach also writes
//! subresources, and fills fields that the examples lack. `EVENKEEL_PARITY_REACH` limits the test to one reach
//! (`narrow` or `wide`). Then `EVENKEEL_PARITY_REPORT` names a file for all differences, one JSON object per line, and
//! `EVENKEEL_PARITY_TABLE` a file for the figures of each kind. `accepted` lists the accepted differences.

mod accepted;
#[path = "../parity/examples.rs"]
mod examples;
mod generate;
mod mutate;
#[path = "../parity/mod.rs"]
mod parity;
mod schema;
mod wide;

use examples::{EXAMPLES, objects};
use generate::{Attempt, Example, NAMESPACE, Part, Reach, VERSION, attempt};
use parity::compare::{Verdict, compare, normalised};
use parity::report::{Case, Report};
use parity::servers::{Connection, Oracle, Sent};
use parity::{Seeds, variable};
use schema::Schemas;
use serde_json::{Value, json};

/// Parameters of a run of a reach.
struct Run {
    name: &'static str,
    /// Requests of an ordinary run.
    n_requests: u64,
    /// Minimum share of responses that are equal except for messages. Only raise it.
    least_equal: f64,
    /// Minimum share of responses that are equal with their messages. Only raise it.
    least_equal_texts: f64,
}

impl Run {
    fn of(reach: Reach) -> Self {
        match reach {
            Reach::Narrow => Self {
                name: "narrow",
                n_requests: 3_000,
                least_equal: 0.996,
                least_equal_texts: 0.988,
            },
            Reach::Wide => Self {
                name: "wide",
                n_requests: 2_000,
                least_equal: 0.995,
                least_equal_texts: 0.986,
            },
        }
    }
}

/// Connections to each server.
const N_CONNECTIONS: usize = 8;

/// Further examples of the wide reach, for rules that involve several fields.
const WIDE_EXAMPLES: &str = include_str!("examples/wide.yaml");

/// Variable that repeats one request.
const SEED: &str = "EVENKEEL_PARITY_SEED";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generated_requests_get_upstreams_answers() {
    run(Reach::Narrow).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wider_requests_get_upstreams_answers() {
    run(Reach::Wide).await;
}

/// Sends the requests of a reach, prints the report, and checks the shares of equal responses.
#[expect(clippy::print_stdout, reason = "the report is for whoever runs the test")]
async fn run(reach: Reach) {
    let run = Run::of(reach);
    if variable("EVENKEEL_PARITY_REACH").is_some_and(|asked| asked != run.name) {
        return;
    }
    let Some(binaries) = parity::binaries("parity") else { return };
    let oracles = Oracle::both(&binaries).await;
    let mut both = Both::connect(&oracles).await;
    let (examples, schemas) = prepare(&mut both, reach).await;
    let seeds = Seeds::from_variables(SEED, "EVENKEEL_PARITY_REQUESTS", run.n_requests);
    let workers = (0..N_CONNECTIONS).map(async |_| {
        let mut both = Both::connect(&oracles).await;
        let mut report = Report::new(SEED);
        while let Some(seed) = seeds.take() {
            both.try_it(&attempt(seed, reach, &examples, &schemas), &mut report).await;
        }
        report
    });
    let reports = futures::future::join_all(workers).await;
    let report = Report::sum(SEED, reports);
    println!("{} requests:\n{report}", run.name);
    report.save("EVENKEEL_PARITY_REPORT");
    let equal = report.share_equal_but_texts();
    assert!(equal >= run.least_equal, "fewer answers are equal than before");
    assert!(report.share_equal() >= run.least_equal_texts, "fewer texts are equal than before");
}

/// A connection to each server.
struct Both([Connection; 2]);

impl Both {
    async fn connect(oracles: &[Oracle; 2]) -> Self {
        Self([oracles[0].connect().await, oracles[1].connect().await])
    }

    /// Sends a request to both servers, each with its own resource version of the object, and records the comparison of
    /// the responses.
    async fn try_it(&mut self, attempt: &Attempt, report: &mut Report) {
        let mut answers = Vec::new();
        for connection in &mut self.0 {
            let mut sent = attempt.sent.clone();
            if sent.body["metadata"]["resourceVersion"] == VERSION {
                let object = connection.ask(&Sent::get(&attempt.object_path)).await.body;
                sent.body["metadata"]["resourceVersion"] =
                    object["metadata"]["resourceVersion"].clone();
            }
            answers.push(connection.ask(&sent).await);
        }
        let verdict = compare(&answers[0], &answers[1]);
        let [theirs, ours] = [0, 1].map(|index| normalised(&answers[index]));
        let case = Case {
            seed: attempt.seed,
            kind: &attempt.kind,
            verb: &format!("{:?}", attempt.verb),
            change: &attempt.class,
            place: attempt.class.split(" = ").next().unwrap_or_default(),
            path: &attempt.sent.path,
        };
        report.note(&case, verdict, &theirs, &ours);
        if matches!(verdict, Verdict::Texts | Verdict::Different)
            && let Some(reason) = accepted::class_of(attempt, &theirs, &ours)
        {
            report.explain(&case, reason);
        }
    }
}

/// Creates the objects that examples refer to, reads the schemas, and creates an object of each example in both
/// servers.
async fn prepare(both: &mut Both, reach: Reach) -> (Vec<Example>, Schemas) {
    let only = variable("EVENKEEL_PARITY_KIND").unwrap_or_default();
    let mut schemas = Schemas::default();
    let mut resources = Vec::new();
    for connection in &mut both.0 {
        connection.make_namespace(NAMESPACE).await;
    }
    let more = (reach == Reach::Wide).then_some(WIDE_EXAMPLES);
    let documents: Vec<Value> = EXAMPLES.into_iter().chain(more).flat_map(objects).collect();
    let mut examples: Vec<Example> = Vec::new();
    let mut groups: Vec<String> = Vec::new();
    for (index, mut object) in documents.into_iter().enumerate() {
        let text = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let group = if api_version.contains('/') {
            format!("/apis/{api_version}")
        } else {
            format!("/api/{api_version}")
        };
        if !groups.contains(&group) {
            schemas.add(&both.0[0].ask(&Sent::get(&format!("/openapi/v3{group}"))).await.body);
            resources.push(both.0[0].ask(&Sent::get(&group)).await.body);
            groups.push(group.clone());
        }
        let place = groups.iter().position(|known| *known == group).unwrap_or_default();
        let served: Vec<&Value> =
            resources[place]["resources"].as_array().into_iter().flatten().collect();
        let found = served
            .iter()
            .find(|r| r["kind"] == *kind && !r["name"].as_str().unwrap_or_default().contains('/'));
        let Some(resource) = found else {
            panic!("{api_version} {kind} is not served: {}", resources[place])
        };
        let plural = resource["name"].as_str().unwrap_or_default();
        let parts: Vec<Part> = served
            .iter()
            .filter_map(|r| r["name"].as_str()?.strip_prefix(&format!("{plural}/")))
            .filter_map(Part::of)
            .collect();
        let has_status = served.iter().any(|r| r["name"] == format!("{plural}/status"));
        let collection = match resource["namespaced"] == true {
            true => format!("{group}/namespaces/{NAMESPACE}/{plural}"),
            false => format!("{group}/{plural}"),
        };
        if !only.is_empty() && !format!("{api_version} {kind}").contains(&only) {
            continue;
        }
        let mut base = object.clone();
        let name = match kind.as_str() {
            "IPAddress" => "10.96.9.10".to_owned(),
            "CustomResourceDefinition" => {
                base = serde_json::from_str(&base.to_string().replace("idget", "idgetbase"))
                    .expect("a definition");
                "widgetbases.parity.example.com".to_owned()
            }
            _ => format!("base-{index}"),
        };
        if kind == "CustomResourceDefinition" {
            base["spec"]["names"] = json!({"plural": "widgetbases", "singular": "widgetbase", "kind": "WidgetBase", "listKind": "WidgetBaseList"});
        }
        base["metadata"]["name"] = name.clone().into();
        let codes = [
            both.0[0].ask(&Sent::post(&collection, base.clone())).await,
            both.0[1].ask(&Sent::post(&collection, base.clone())).await,
        ];
        let is_made = codes.iter().all(|answer| answer.code == 201);
        assert!(is_made, "the example {index} of {kind} is refused: {codes:?}");
        if kind == "CustomResourceDefinition" {
            object["metadata"]["name"] = "widgets.parity.example.com".into();
        }
        examples.push(Example { kind, collection, object, base: name, has_status, parts });
    }
    (examples, schemas)
}
