//! Decisions are pure: outside the wiring, no file of a folder with decisions does I/O, reads a clock, takes a lock,
//! spawns, counts, logs or memoizes.

use std::path::{Path, PathBuf};

use evenkeel_tidy::{code, has_word, production, read, root, sources};

/// Identifiers that a pure file neither imports nor names. An import names the imported item, so this also finds uses behind an
/// alias.
const IMPURE: [&str; 44] = [
    "async",
    "await",
    "tokio",
    "tracing",
    "prometheus",
    "Client",
    "Clock",
    "Instant",
    "SystemTime",
    "Timestamp::now",
    "Zoned::now",
    "elapsed",
    "rand::random",
    "rand::rng",
    "tokio_util",
    "fs",
    "mpsc",
    "Tasks",
    "EventRecorder",
    "Mutex",
    "RwLock",
    "Condvar",
    "sync::atomic",
    "AtomicBool",
    "AtomicU64",
    "AtomicUsize",
    "thread",
    "spawn",
    "trace!",
    "debug!",
    "info!",
    "warn!",
    "error!",
    "println!",
    "eprintln!",
    "Registry",
    "IntCounter",
    "IntCounterVec",
    "IntGauge",
    "IntGaugeVec",
    "Histogram",
    "HistogramVec",
    "ControllerContext",
    "PassHandler",
];

/// Types that cache a computed value. A decision with such a type depends on earlier calls.
const MEMOIZING: [&str; 7] =
    ["OnceLock", "OnceCell", "LazyCell", "RefCell", "UnsafeCell", "Cell", "thread_local!"];

/// File names with the wiring of a folder: caches and flags (`mod.rs`), writes that need a live response (`act.rs`), and metric
/// handles (`metrics.rs`).
const WIRING: [&str; 3] = ["mod.rs", "act.rs", "metrics.rs"];

/// Wiring of the simulated kubelets, by what each file does: start all nodes, sync pods, send heartbeats, report volumes,
/// handle requests of an API server, execute commands and read their input, serve HTTP, follow Stages.
const KUBELET_WIRING: [&str; 12] = [
    "mod.rs",
    "run.rs",
    "pod_workers.rs",
    "heartbeats.rs",
    "volumes_in_use.rs",
    "kubelets.rs",
    "exec.rs",
    "stdin.rs",
    "servers.rs",
    "staged.rs",
    "stage_controller.rs",
    "node_workers.rs",
];

/// Wiring of the cloud controllers: the context for their start, and the program that starts them.
const CLOUD_WIRING: [&str; 4] = ["mod.rs", "metrics.rs", "context.rs", "controllers.rs"];

/// Shell of simulated changes: reads files and clusters, runs the clock, performs the change, and records.
const WHATIF_SHELL: [&str; 8] = [
    "actions.rs",
    "clone/read.rs",
    "cluster.rs",
    "kubelets.rs",
    "observe.rs",
    "run.rs",
    "server_thread.rs",
    "wire.rs",
];

/// The shell of API Priority and Fairness: it waits, counts watches, and writes metrics.
const FLOW_SHELL: [&str; 4] = ["level.rs", "limiter.rs", "metrics.rs", "watches.rs"];

/// Names in a file that reads a cache: objects behind a lock, which change between two reads.
const CACHES: [&str; 2] = ["Cache", "Caches"];

/// Names in a file that plans.
const PLANNING: [&str; 6] = ["Plan", "Planner", "Steps", "Action", "Outcomes", "Planned"];

/// Files of the scheduler that measure plugin calls for metrics. No decision reads the durations.
const MEASURING: [&str; 4] = [
    "crates/evenkeel-scheduler/src/queue/mod.rs",
    "crates/evenkeel-scheduler/src/queue/plugin_calls.rs",
    "crates/evenkeel-scheduler/src/schedule/cycle.rs",
    "crates/evenkeel-scheduler/src/schedule/trace.rs",
];

/// Admission that waits or caches: calls of webhooks, conversion of custom objects for policies and webhooks (conversion may
/// call webhooks), and the policies that were compiled last.
const ADMISSION_SHELL: [&str; 6] = [
    "admission/mutating.rs",
    "admission/versioned.rs",
    "admission/webhook.rs",
    "policy/apply.rs",
    "policy/compiled.rs",
    "policy/mod.rs",
];

/// Auditing that writes, sends or collects: the event of a request in progress, the log's thread, the webhook's task.
const AUDIT_SHELL: [&str; 3] = ["audit/mod.rs", "audit/log.rs", "audit/webhook.rs"];

/// The only write that is not part of a request's transaction: IPAddresses of Services that have none.
const REGISTRY_SHELL: [&str; 1] = ["registry/cluster_ips.rs"];

/// Aggregation that queries extension API servers, caches their documents, and writes; its schedule uses the time of timers.
const AGGREGATION_SHELL: [&str; 8] = [
    "aggregation/checker.rs",
    "aggregation/client.rs",
    "aggregation/controller.rs",
    "aggregation/fetcher.rs",
    "aggregation/forward.rs",
    "aggregation/probe.rs",
    "aggregation/remotes.rs",
    "aggregation/schedule.rs",
];

/// Authentication that waits for keys of other issuers, fetches them, or follows their configuration file; caches of
/// authorization: the rules of all roles at the last revision, and the mode that last allowed an impersonation; authorization
/// that calls webhooks, caches and counts their responses, and follows its configuration file.
const AUTH_SHELL: [&str; 14] = [
    "auth/authenticator.rs",
    "auth/authorizer.rs",
    "auth/config_reloads.rs",
    "authorization/answers.rs",
    "authorization/metrics.rs",
    "authorization/source.rs",
    "authorization/webhook.rs",
    "auth/impersonation.rs",
    "auth/rbac_authorizer.rs",
    "oidc/authenticators.rs",
    "oidc/fetch.rs",
    "oidc/keys.rs",
    "oidc/mod.rs",
    "oidc/source.rs",
];

/// The folder with the shared code of all controllers for starts and watches. It makes no decisions.
const WIRING_FOLDER: &str = "crates/evenkeel-controllers/src/wiring";

/// Folders whose files decide, each with the names of its files that do not. Strategies and the scheduling queue have none, and
/// an attempt has only the file that calls extenders.
const DECIDING: [(&str, &[&str]); 16] = [
    ("crates/evenkeel-apiserver/src/admission", &ADMISSION_SHELL),
    ("crates/evenkeel-apiserver/src/aggregation", &AGGREGATION_SHELL),
    ("crates/evenkeel-apiserver/src/audit", &AUDIT_SHELL),
    ("crates/evenkeel-apiserver/src/auth", &AUTH_SHELL),
    ("crates/evenkeel-apiserver/src/flow", &FLOW_SHELL),
    ("crates/evenkeel-apiserver/src/registry", &REGISTRY_SHELL),
    ("crates/evenkeel-apiserver/src/strategy", &[]),
    ("crates/evenkeel-cloud/src", &CLOUD_WIRING),
    ("crates/evenkeel-console/src/view", &[]),
    ("crates/evenkeel-controller-manager/src/plan", &["mod.rs"]),
    ("crates/evenkeel-controllers/src", &WIRING),
    ("crates/evenkeel-nodes/src", &KUBELET_WIRING),
    ("crates/evenkeel-scheduler/src/plugins", &WIRING),
    ("crates/evenkeel-scheduler/src/queue", &[]),
    ("crates/evenkeel-scheduler/src/schedule", &["act.rs"]),
    ("crates/evenkeel-whatif/src", &WHATIF_SHELL),
];

/// Files that compile an expression when it is first evaluated. The cached program depends only on the expression.
const COMPILING_FILES: [&str; 1] = ["crates/evenkeel-apiextensions/src/cel.rs"];

/// Crates in which every file is pure: rules of the API, without the programs that apply them.
const PURE_CRATES: [&str; 4] = [
    "crates/evenkeel-component-helpers/src",
    "crates/evenkeel-apimachinery/src",
    "crates/evenkeel-kinds/src",
    "crates/evenkeel-apiextensions/src",
];

fn is_test(file: &Path) -> bool {
    let is_of_tests = |name| matches!(name, Some("tests" | "tests.rs" | "fixtures.rs"));
    file.components().any(|part| is_of_tests(part.as_os_str().to_str()))
}

/// Returns whether a line counts with a metric handle. The metrics of an autoscaler's spec, and the API groups, are objects.
fn counts(line: &str) -> bool {
    line.replace("spec.metrics.", "").replace(".metrics.k8s.io", "").contains(".metrics.")
}

/// Returns the first identifier that makes a file impure, with its line number.
fn impurity(text: &str) -> Option<(usize, &'static str)> {
    let named = |line: &str| IMPURE.iter().find(|word| has_word(line, word)).copied();
    let found = |line: &str| named(line).or_else(|| counts(line).then_some(".metrics."));
    code(production(text)).find_map(|(at, line)| Some((at, found(line)?)))
}

/// Returns the first place where a file caches a computed value. A table that is created once (`static NAME: LazyLock<…>`)
/// depends only on the program.
fn memory(text: &str) -> Option<(usize, &'static str)> {
    let found = |line: &str| {
        let item = line.trim_start();
        let is_static =
            item.starts_with("static ") || item.starts_with("pub") && item.contains(" static ");
        let lazy = line.contains("LazyLock<") && !is_static || line.contains("LazyLock as ");
        let named = || MEMOIZING.iter().find(|word| has_word(line, word)).copied();
        if lazy { Some("LazyLock") } else { named() }
    };
    code(production(text)).find_map(|(at, line)| Some((at, found(line)?)))
}

/// Returns the lines at which a file first reads a cache and first plans, if it does both.
fn plans_from_caches(text: &str) -> Option<(usize, usize)> {
    let has = |line: &str, words: &[&str]| words.iter().any(|word| has_word(line, word));
    let is_index = |line: &str| line.contains("cache::") && has_word(line, "Index");
    let reads = |line: &str| has(line, &CACHES) || is_index(line);
    let first = |found: &dyn Fn(&str) -> bool| {
        code(production(text)).find(|(_, line)| found(line)).map(|(at, _)| at)
    };
    first(&reads).zip(first(&|line| has(line, &PLANNING)))
}

/// Calls that read a cache, or state behind a lock.
const READS: [&str; 5] = [".get(", ".list(", ".namespace(", ".lock(", ".read("];

/// Returns the first line in which a planner's decision (`plan`, `next`, `status`, `remember`) reads data that `observe` did
/// not provide.
fn reads_in_decision(text: &str) -> Option<usize> {
    let decides = |line: &str| {
        let names = ["plan", "next", "status", "remember"];
        names.iter().any(|name| line.starts_with(&format!("    fn {name}(")))
    };
    let (mut in_planner, mut in_decision) = (false, false);
    code(production(text)).find_map(|(at, line)| {
        match line {
            "}" => in_planner = false,
            "    }" => in_decision = false,
            _ if line.starts_with("impl") && line.contains(" Planner for ") => in_planner = true,
            _ if in_planner && decides(line) => in_decision = true,
            _ => {}
        }
        let reads = in_planner && in_decision && READS.iter().any(|call| line.contains(call));
        reads.then_some(at)
    })
}

/// Returns the reason why a file is not pure.
fn found_in(text: &str) -> Option<(usize, &'static str)> {
    impurity(text).or_else(|| memory(text))
}

/// Returns whether a file must be pure: it is neither wiring nor a test.
fn decides(root: &Path, file: &Path, wiring: &[&str]) -> bool {
    !wiring.iter().any(|name| file.ends_with(name))
        && !file.starts_with(root.join(WIRING_FOLDER))
        && !is_test(file)
}

#[test]
fn files_that_decide_do_nothing_else() {
    let root = root();
    let mut n_pure = 0;
    for (folder, wiring) in DECIDING {
        let files = sources(&root.join(folder));
        for file in files.iter().filter(|file| decides(&root, file, wiring)) {
            n_pure += 1;
            let found = found_in(&read(file));
            assert_eq!(found, None, "{} decides: (line, identifier)", file.display());
        }
    }
    assert!(n_pure >= 200, "{n_pure} pure files: they are where they are looked for");
}

#[test]
fn plans_depend_on_what_was_observed() {
    let root = root();
    for folder in ["crates/evenkeel-cloud/src", "crates/evenkeel-controllers/src"] {
        let (_, wiring) = DECIDING.iter().find(|(name, _)| *name == folder).expect("it decides");
        let files = sources(&root.join(folder));
        for file in files.iter().filter(|file| decides(&root, file, wiring)) {
            let found = plans_from_caches(&read(file));
            assert_eq!(found, None, "{}: lines of a cache and of a plan", file.display());
        }
        for file in files.iter().filter(|file| !is_test(file)) {
            let found = reads_in_decision(&read(file));
            assert_eq!(found, None, "{}: a decision reads", file.display());
        }
    }
    let planner = "impl Planner for Pods {\n    fn observe(&self) {\n        self.pods.get(name)\n    }\n\n    \
                   fn plan(\n        &self,\n    ) -> Plan {\n        let own = self.own.lock();\n    }\n}\n";
    assert_eq!(reads_in_decision(planner), Some(9));
    assert_eq!(reads_in_decision(&planner.replace("fn plan", "fn describe")), None);
    assert_eq!(reads_in_decision(&planner.replace("Planner", "PassHandler")), None);
    for (text, found) in [
        ("use evenkeel_runtime::{\n    cache::Cache,\n    plan::{Key, Plan},\n};\n", Some((2, 3))),
        ("use evenkeel_runtime::cache::{CacheEvent, Index};\nfn plan() -> Plan {}\n", Some((1, 2))),
        ("fn observe(caches: &Caches) {}\nimpl Planner for Pods {}\n", Some((1, 2))),
        ("use evenkeel_runtime::{cache::Cache, plan::Key};\n", None),
        ("enum Record {\n    Index(u32),\n}\nfn plan(event: &CacheEvent<Pod>) -> Plan {}\n", None),
    ] {
        assert_eq!(plans_from_caches(text), found, "{text}");
    }
}

#[test]
fn only_files_that_are_named_measure() {
    let folder = root().join("crates/evenkeel-scheduler/src");
    let deciding = ["plugins", "queue", "schedule"].map(|name| sources(&folder.join(name)));
    let mut found: Vec<PathBuf> = deciding.into_iter().flatten().collect();
    found.retain(|file| !is_test(file));
    found.retain(|file| code(production(&read(file))).any(|(_, line)| has_word(line, "Stopwatch")));
    assert_eq!(found, MEASURING.map(|file| root().join(file)));
}

#[test]
fn wiring_is_what_it_is_called() {
    let root = root();
    for (folder, wiring) in DECIDING {
        for name in wiring.iter().filter(|name| !WIRING.contains(name)) {
            let files = sources(&root.join(folder)).into_iter().filter(|file| file.ends_with(name));
            let impure = files.filter(|file| found_in(&read(file)).is_some()).count();
            assert!(impure > 0, "{folder}: no {name} needs to be wiring; strike it off");
        }
    }
    assert!(root.join(WIRING_FOLDER).is_dir(), "{WIRING_FOLDER} is gone; strike it off");
}

#[test]
fn rules_of_the_api_are_pure() {
    for folder in PURE_CRATES {
        let files = sources(&root().join(folder));
        assert!(files.len() >= 15, "{folder}: the files are where they are looked for");
        for file in files.iter().filter(|file| !is_test(file)) {
            let text = read(file);
            assert_eq!(impurity(&text), None, "{}: (line, identifier)", file.display());
            let compiles = COMPILING_FILES.iter().any(|path| file.ends_with(path));
            let remembers = memory(&text);
            assert_eq!(remembers.is_some(), compiles, "{}: {remembers:?}", file.display());
        }
    }
}

#[test]
fn what_is_planted_is_found() {
    for line in [
        "use std::time::Instant as Moment;",
        "let now = std::time::Instant::now();",
        "    state: Mutex<State>,",
        "pub(crate) async fn act() {}",
        "tracing::debug!(\"x\");",
        "static PODS: AtomicU64 = AtomicU64::new(0);",
        "use std::sync::atomic::Ordering;",
        "static N: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(0);",
        "    restarts: prometheus::IntCounter,",
        "use prometheus::core::Collector as _;",
        "let now = tokio::time::Instant::now();",
        "fn plan(clock: &Clock) {}",
        "use evenkeel_runtime::clock::Clock as Time;",
        "warn!(\"x\");",
        "log::info!(\"x\");",
        "std::thread::spawn(|| {});",
        "let text = std::fs::read_to_string(path);",
        "use std::{fs, io};",
        "let took = began.elapsed();",
        "let seed: u64 = rand::random();",
        "use std::sync::mpsc::channel;",
        "fn start(tasks: &Tasks) {}",
        "    events: EventRecorder,",
        "tasks.spawn(\"x\", run());",
        "let client = Client::default();",
        "let now = jiff::Timestamp::now();",
        "let today = Zoned::now().date();",
        "let mut rng = rand::rng();",
        "use tokio_util::sync::CancellationToken;",
        "pub(super) fn start(context: &ControllerContext) {}",
        "impl PassHandler<Self> for Claims {",
        "    binder.metrics.failed(&observed.claim.meta);",
    ] {
        assert!(impurity(&format!("fn pure() {{}}\n{line}\n")).is_some(), "{line}");
    }
    assert!(impurity("#[cfg(test)]\nmod tests;\nuse std::sync::Mutex;\n").is_some());
    for line in [
        "    decision: OnceLock<Decision>,",
        "    sync::{Arc, OnceLock},",
        "use std::sync::OnceLock as Once;",
        "    static SEEN: OnceLock<Vec<Pod>> = OnceLock::new();",
        "    decision: std::sync::LazyLock<Decision>,",
        "type Memo = LazyLock<Decision>;",
        "use std::sync::LazyLock as Later;",
        "    plan: std::cell::OnceCell<Plan>,",
        "    seen: RefCell<Vec<Pod>>,",
        "    calls: Cell<u32>,",
        "thread_local! {",
        "std::thread_local!(static N: u32 = 0);",
    ] {
        assert!(found_in(&format!("fn pure() {{}}\n{line}\n")).is_some(), "{line}");
    }
    let table = "use std::sync::LazyLock;\npub(super) static NAMES: LazyLock<Vec<u8>> = LazyLock::new(Vec::new);\n\
                 fn all() {\n    static ALL: LazyLock<u8> =\n        LazyLock::new(u8::default);\n}\n";
    assert_eq!(found_in(table), None);
    let pure = "// Instant of a comment\nfn instant(awaited: bool) {}\n#[cfg(test)]\nuse tokio;\n";
    assert_eq!(impurity(pure), None);
}

#[test]
fn the_api_crate_does_no_io() {
    for file in sources(&root().join("crates/evenkeel-api/src")) {
        let text = read(&file);
        for word in ["std::fs", "std::net", "tokio", ".await", "SystemTime", "Timestamp::now"] {
            assert!(!production(&text).contains(word), "{}: {word}", file.display());
        }
    }
}
