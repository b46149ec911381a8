//! Decisions are pure: outside the wiring, no file of a deciding folder does I/O, reads a clock, locks, spawns, counts, logs or
//! remembers.

use std::path::Path;

use evenkeel_tidy::{code, has_word, production, read, root, sources};

/// Identifiers that a pure file neither imports nor names. An import names what it brings, so that this finds a use behind
/// an alias, too.
const IMPURE: [&str; 38] = [
    "async",
    "await",
    "tokio",
    "tracing",
    "prometheus",
    "Client",
    "Clock",
    "Instant",
    "SystemTime",
    "elapsed",
    "rand::random",
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
];

/// Types that remember what was computed first. A decision that holds one depends on what was asked of it before.
const MEMOIZING: [&str; 7] =
    ["OnceLock", "OnceCell", "LazyCell", "RefCell", "UnsafeCell", "Cell", "thread_local!"];

/// File names that hold the wiring of a folder: caches and flags (`mod.rs`), writes that need a live answer (`act.rs`), and
/// the handles that count (`metrics.rs`).
const WIRING: [&str; 3] = ["mod.rs", "act.rs", "metrics.rs"];

/// Wiring of the simulated kubelets, by what each file does: start all nodes, sync pods, send heartbeats, report volumes,
/// answer an API server.
const KUBELET_WIRING: [&str; 6] =
    ["mod.rs", "run.rs", "pod_workers.rs", "heartbeats.rs", "volumes_in_use.rs", "kubelets.rs"];

/// Wiring of the cloud controllers: the context that they start with, and the program that starts them.
const CLOUD_WIRING: [&str; 4] = ["mod.rs", "metrics.rs", "context.rs", "controllers.rs"];

/// The shell of API Priority and Fairness: it waits, counts watches, and writes metrics.
const FLOW_SHELL: [&str; 4] = ["level.rs", "limiter.rs", "metrics.rs", "watches.rs"];

/// The folder of what all controllers share to start and to watch. It decides for none of them.
const WIRING_FOLDER: &str = "crates/evenkeel-controllers/src/wiring";

/// Folders whose files decide, each with the names of its files that do not: strategies and the scheduling queue have none,
/// and an attempt only that which asks extenders.
const DECIDING: [(&str, &[&str]); 9] = [
    ("crates/evenkeel-apiserver/src/flow", &FLOW_SHELL),
    ("crates/evenkeel-apiserver/src/strategy", &[]),
    ("crates/evenkeel-cloud/src", &CLOUD_WIRING),
    ("crates/evenkeel-controller-manager/src/plan", &["mod.rs"]),
    ("crates/evenkeel-controllers/src", &WIRING),
    ("crates/evenkeel-nodes/src", &KUBELET_WIRING),
    ("crates/evenkeel-scheduler/src/plugins", &WIRING),
    ("crates/evenkeel-scheduler/src/queue", &[]),
    ("crates/evenkeel-scheduler/src/schedule", &["act.rs"]),
];

/// Files that compile an expression when it is first evaluated. What is remembered follows from the expression alone.
const COMPILING_FILES: [&str; 1] = ["crates/evenkeel-apiextensions/src/cel.rs"];

/// Crates of which every file is pure: rules of the API, without the programs that apply them.
const PURE_CRATES: [&str; 4] = [
    "crates/evenkeel-component-helpers/src",
    "crates/evenkeel-apimachinery/src",
    "crates/evenkeel-kinds/src",
    "crates/evenkeel-apiextensions/src",
];

fn is_test(file: &Path) -> bool {
    file.components().any(|part| matches!(part.as_os_str().to_str(), Some("tests" | "tests.rs")))
}

/// The first identifier that makes a file impure, with the number of its line.
fn impurity(text: &str) -> Option<(usize, &'static str)> {
    let found = |line: &str| IMPURE.iter().find(|word| has_word(line, word)).copied();
    code(production(text)).find_map(|(at, line)| Some((at, found(line)?)))
}

/// The first place where a file remembers what it computed. A table that is made once (`static NAME: LazyLock<…>`) depends
/// on nothing but the program.
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

/// What keeps a file from being pure.
fn found_in(text: &str) -> Option<(usize, &'static str)> {
    impurity(text).or_else(|| memory(text))
}

/// Whether a file has to be pure: it is neither wiring nor a test.
fn decides(root: &Path, file: &Path, wiring: &[&str]) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    !wiring.contains(&name) && !file.starts_with(root.join(WIRING_FOLDER)) && !is_test(file)
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
