//! Decisions are pure: outside the wiring, no file of a deciding folder does I/O, reads a clock, locks, spawns, counts or logs.

use std::path::{Path, PathBuf};

use evenkeel_tidy::{code, has_word, production, read, root, sources};

/// Identifiers that a pure file neither imports nor names. An import names what it brings, so that this finds a use behind
/// an alias, too.
const IMPURE: [&str; 32] = [
    "async",
    "await",
    "tokio",
    "tracing",
    "prometheus",
    "Client",
    "Clock",
    "Instant",
    "SystemTime",
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

/// File names that hold the wiring of a folder: caches and flags (`mod.rs`), writes that need a live answer (`act.rs`), and
/// the handles that count (`metrics.rs`).
const WIRING: [&str; 3] = ["mod.rs", "act.rs", "metrics.rs"];

/// The folder of what all controllers share to start and to watch. It decides for none of them.
const WIRING_FOLDER: &str = "crates/evenkeel-controllers/src/wiring";

/// Folders whose files decide, each with the names of its files that do not: strategies and the scheduling queue have none,
/// and an attempt only that which asks extenders.
const DECIDING: [(&str, &[&str]); 5] = [
    ("crates/evenkeel-apiserver/src/strategy", &[]),
    ("crates/evenkeel-controllers/src", &WIRING),
    ("crates/evenkeel-scheduler/src/plugins", &WIRING),
    ("crates/evenkeel-scheduler/src/queue", &[]),
    ("crates/evenkeel-scheduler/src/schedule", &["act.rs"]),
];

/// Files of those folders that are not pure yet. Strike one off when it is made pure; none may be added.
const IMPURE_FILES: [&str; 16] = [
    "crates/evenkeel-controllers/src/autoscaling/horizontalpodautoscaler/readings.rs",
    "crates/evenkeel-controllers/src/certificates/signing/authority.rs",
    "crates/evenkeel-controllers/src/core/garbagecollector/inspect.rs",
    "crates/evenkeel-controllers/src/core/garbagecollector/monitor.rs",
    "crates/evenkeel-controllers/src/core/garbagecollector/snapshot.rs",
    "crates/evenkeel-controllers/src/storage/binder/claims.rs",
    "crates/evenkeel-controllers/src/storage/binder/host_path.rs",
    "crates/evenkeel-controllers/src/storage/binder/volumes.rs",
    "crates/evenkeel-scheduler/src/plugins/dynamic_resources/assumed.rs",
    "crates/evenkeel-scheduler/src/plugins/dynamic_resources/attempt.rs",
    "crates/evenkeel-scheduler/src/plugins/dynamic_resources/bind.rs",
    "crates/evenkeel-scheduler/src/plugins/dynamic_resources/extended_claims.rs",
    "crates/evenkeel-scheduler/src/plugins/dynamic_resources/inventory.rs",
    "crates/evenkeel-scheduler/src/plugins/dynamic_resources/selectors.rs",
    "crates/evenkeel-scheduler/src/plugins/dynamic_resources/waiting.rs",
    "crates/evenkeel-scheduler/src/plugins/resource_classes.rs",
];

/// Plans outside those folders.
const PLANS: [&str; 2] = ["crates/evenkeel-nodes/src", "crates/evenkeel-cloud/src"];

/// Crates of which every file is pure: rules of the API, without the server that applies them.
const PURE_CRATES: [&str; 3] = [
    "crates/evenkeel-apimachinery/src",
    "crates/evenkeel-kinds/src",
    "crates/evenkeel-apiextensions/src",
];

fn is_test(file: &Path) -> bool {
    file.components().any(|part| matches!(part.as_os_str().to_str(), Some("tests" | "tests.rs")))
}

/// The first identifier that makes a file impure, with the number of its line.
fn impurity(text: &str) -> Option<(usize, &'static str)> {
    code(production(text))
        .find_map(|(at, line)| Some((at, *IMPURE.iter().find(|word| has_word(line, word))?)))
}

#[test]
fn files_that_decide_do_nothing_else() {
    let root = root();
    let mut listed: Vec<&str> = IMPURE_FILES.to_vec();
    let mut n_pure = 0;
    for (folder, wiring) in DECIDING {
        for file in sources(&root.join(folder)) {
            let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let is_wiring = wiring.contains(&name) || file.starts_with(root.join(WIRING_FOLDER));
            if is_wiring || is_test(&file) {
                continue;
            }
            let path = file.strip_prefix(&root).expect("below the root").display().to_string();
            let found = impurity(&read(&file));
            match listed.iter().position(|listed| *listed == path) {
                Some(at) => {
                    listed.swap_remove(at);
                    assert!(found.is_some(), "{path} is pure now; strike it off the list");
                }
                None => {
                    n_pure += 1;
                    assert_eq!(found, None, "{path} decides, and must be pure (line, identifier)");
                }
            }
        }
    }
    assert!(listed.is_empty(), "these files are gone; strike them off the list: {listed:?}");
    assert!(n_pure >= 200, "{n_pure} pure files: they are where they are looked for");
}

#[test]
fn plans_are_pure() {
    let files: Vec<PathBuf> =
        PLANS.iter().flat_map(|folder| sources(&root().join(folder))).collect();
    let plans = files.iter().filter(|file| {
        file.ends_with("plan.rs") || file.parent().is_some_and(|folder| folder.ends_with("plan"))
    });
    let mut n_plans = 0;
    for file in plans {
        n_plans += 1;
        assert_eq!(impurity(&read(file)), None, "{}: (line, identifier)", file.display());
    }
    assert!(n_plans >= 2, "the plans are where they are looked for ({n_plans} found)");
}

#[test]
fn rules_of_the_api_are_pure() {
    for folder in PURE_CRATES {
        let files = sources(&root().join(folder));
        assert!(files.len() >= 15, "{folder}: the files are where they are looked for");
        for file in files.iter().filter(|file| !is_test(file)) {
            assert_eq!(impurity(&read(file)), None, "{}: (line, identifier)", file.display());
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
        "tasks.spawn(\"x\", run());",
        "let client = Client::default();",
    ] {
        assert!(impurity(&format!("fn pure() {{}}\n{line}\n")).is_some(), "{line}");
    }
    assert!(impurity("#[cfg(test)]\nmod tests;\nuse std::sync::Mutex;\n").is_some());
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
