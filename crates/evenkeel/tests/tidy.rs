//! Rules of the workspace that the compiler does not know: who may depend on whom, that every file is compiled, and that
//! what decides does nothing else.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Each crate, and what it may depend on besides libraries; as in ARCHITECTURE.md.
const ARROWS: [(&str, &[&str]); 13] = [
    ("evenkeel-api", &[]),
    ("evenkeel-cel", &["evenkeel-api"]),
    ("evenkeel-x509", &[]),
    ("evenkeel-runtime", &["evenkeel-api", "evenkeel-x509"]),
    ("evenkeel-controllers", &["evenkeel-api", "evenkeel-runtime"]),
    ("evenkeel-component", &["evenkeel-api", "evenkeel-runtime"]),
    (
        "evenkeel-controller-manager",
        &["evenkeel-api", "evenkeel-runtime", "evenkeel-component", "evenkeel-controllers"],
    ),
    ("evenkeel-cloud", &["evenkeel-api", "evenkeel-runtime", "evenkeel-component"]),
    (
        "evenkeel-scheduler",
        &["evenkeel-api", "evenkeel-cel", "evenkeel-runtime", "evenkeel-component"],
    ),
    ("evenkeel-apiserver", &["evenkeel-api", "evenkeel-cel", "evenkeel-x509"]),
    ("evenkeel-nodes", &["evenkeel-api", "evenkeel-runtime"]),
    (
        "evenkeel-sim",
        &[
            "evenkeel-api",
            "evenkeel-runtime",
            "evenkeel-controllers",
            "evenkeel-cloud",
            "evenkeel-scheduler",
            "evenkeel-apiserver",
            "evenkeel-nodes",
            "evenkeel",
        ],
    ),
    (
        "evenkeel",
        &[
            "evenkeel-api",
            "evenkeel-runtime",
            "evenkeel-component",
            "evenkeel-controllers",
            "evenkeel-controller-manager",
            "evenkeel-cloud",
            "evenkeel-scheduler",
            "evenkeel-apiserver",
            "evenkeel-nodes",
        ],
    ),
];

/// What must not stand in a file that decides.
const IMPURE: [&str; 10] = [
    "async ",
    ".await",
    "tokio::",
    "tracing::",
    "Client",
    "Clock",
    "Mutex",
    "RwLock",
    "spawn(",
    "Instant",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn crates() -> Vec<(String, PathBuf)> {
    let folders = fs::read_dir(root().join("crates")).expect("crates");
    let mut crates: Vec<_> = folders
        .map(|folder| folder.expect("a folder").path())
        .map(|path| (path.file_name().expect("a name").to_string_lossy().into_owned(), path))
        .collect();
    crates.sort();
    crates
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn crates_depend_downwards_only() {
    let found: BTreeSet<String> = crates().into_iter().map(|(name, _)| name).collect();
    let listed: BTreeSet<String> = ARROWS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(found, listed, "every crate stands in the table");
    for (name, allowed) in ARROWS {
        let manifest = read(&root().join("crates").join(name).join("Cargo.toml"));
        let dependencies = manifest
            .split("[dependencies]")
            .nth(1)
            .unwrap_or_default()
            .split("\n[")
            .next()
            .unwrap_or_default();
        for line in dependencies.lines() {
            let dependency = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if dependency.starts_with("evenkeel") {
                assert!(allowed.contains(&dependency), "{name} must not depend on {dependency}");
            }
        }
        assert!(
            manifest.contains("[lints]\nworkspace = true"),
            "{name} inherits the workspace's lints"
        );
    }
}

#[test]
fn every_file_is_compiled() {
    for (name, path) in crates() {
        for file in sources(&path.join("src")) {
            let stem = file.file_stem().expect("a name").to_string_lossy().into_owned();
            let folder = file.parent().expect("a folder");
            if matches!(&*stem, "lib" | "main") || folder.ends_with("bin") {
                continue;
            }
            let (module, parents) = if stem == "mod" {
                let above = folder.parent().expect("a folder");
                (
                    folder.file_name().expect("a name").to_string_lossy().into_owned(),
                    above.to_path_buf(),
                )
            } else {
                (stem, folder.to_path_buf())
            };
            let beside = parents.with_extension("rs");
            let candidates =
                [parents.join("mod.rs"), parents.join("lib.rs"), parents.join("main.rs"), beside];
            let declared =
                candidates.iter().filter(|candidate| candidate.exists()).any(|candidate| {
                    let text = read(candidate);
                    text.lines().any(|line| {
                        let line = line.trim();
                        line.ends_with(&format!("mod {module};"))
                            || line.ends_with(&format!("mod {module} {{"))
                    })
                });
            assert!(declared, "{name}: no `mod` reaches {}", file.display());
        }
    }
}

/// Whether `word` is in `line`; one that begins with a dot not as the beginning of a longer one, such as `.awaited`.
fn has_word(line: &str, word: &str) -> bool {
    let goes_on = |rest: &str| rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let mut found = line.match_indices(word);
    found.any(|(at, _)| !word.starts_with('.') || !goes_on(&line[at + word.len()..]))
}

#[test]
fn what_decides_does_nothing_else() {
    let mut seen = 0;
    for name in ["evenkeel-cloud", "evenkeel-controllers", "evenkeel-nodes", "evenkeel-scheduler"] {
        for file in sources(&root().join("crates").join(name).join("src")) {
            let is_plan = file.ends_with("plan.rs")
                || file.parent().is_some_and(|folder| folder.ends_with("plan"));
            if !is_plan {
                continue;
            }
            seen += 1;
            let text = read(&file);
            let production = text.split("#[cfg(test)]").next().unwrap_or_default();
            let code = production.lines().filter(|line| !line.trim_start().starts_with("//"));
            for (number, line) in code.enumerate() {
                for word in IMPURE {
                    assert!(
                        !has_word(line, word),
                        "{}, line {}: {word:?} in a plan: {line}",
                        file.display(),
                        number + 1
                    );
                }
            }
        }
    }
    assert!(seen >= 7, "the plans are where they are looked for ({seen} found)");
}

/// Whether `name` is declared in `file`.
fn declares(file: &Path, name: &str) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    ["fn", "struct", "enum"].iter().any(|keyword| {
        let declaration = format!("{keyword} {name}");
        text.match_indices(&declaration).any(|(at, _)| {
            let after = text[at + declaration.len()..].chars().next();
            after.is_some_and(|c| !c.is_alphanumeric() && c != '_')
        })
    })
}

/// Modules that must begin with a table *documented → function*.
const WITH_TABLE: [&str; 9] = [
    "apps/daemonset/plan.rs",
    "apps/deployment/plan.rs",
    "apps/statefulset/plan.rs",
    "autoscaling/horizontalpodautoscaler/plan.rs",
    "batch/cronjob/plan.rs",
    "batch/job/plan.rs",
    "core/garbagecollector/plan.rs",
    "core/nodelifecycle/plan/mod.rs",
    "discovery/endpointslice/plan.rs",
];

/// A decision's page begins with a table that leads from the words of Kubernetes' documentation to what they have become:
/// a function of the file, `file::function` of its folder or the one above, or a path.
#[test]
fn tables_of_what_is_documented_lead_somewhere() {
    let crates = ["evenkeel-controllers", "evenkeel-scheduler"];
    let files: Vec<PathBuf> = crates
        .iter()
        .flat_map(|name| sources(&root().join("crates").join(name).join("src")))
        .collect();
    let tables = files.iter().filter(|file| read(file).contains("//! | documented | where |"));
    let mut n_tables = 0;
    for file in tables {
        n_tables += 1;
        let (text, folder) = (read(file), file.parent().expect("a folder"));
        let rows = text.lines().filter(|line| line.starts_with("//! | ")).skip(1);
        for row in rows {
            let place = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
            let names: Vec<&str> = place.split('`').skip(1).step_by(2).collect();
            assert!(!names.is_empty(), "{}: {row} leads nowhere", file.display());
            for name in names {
                let there = match name.split_once("::") {
                    Some((module, name)) => [folder, folder.parent().expect("a folder")]
                        .iter()
                        .any(|folder| declares(&folder.join(module).with_extension("rs"), name)),
                    None if name.contains('/') => folder.join(name).exists(),
                    None => declares(file, name),
                };
                assert!(there, "{}: {name} is not there", file.display());
            }
        }
    }
    assert!(n_tables >= 6, "{n_tables}: each of the great controllers has a table");
    for module in WITH_TABLE {
        let file = root().join("crates/evenkeel-controllers/src").join(module);
        assert!(read(&file).contains("//! | documented | where |"), "{module} has no table");
    }
}

#[test]
fn the_api_crate_does_no_io() {
    for file in sources(&root().join("crates/evenkeel-api/src")) {
        let text = read(&file);
        let production = text.split("#[cfg(test)]").next().unwrap_or_default();
        for word in ["std::fs", "std::net", "tokio", ".await", "SystemTime", "Timestamp::now"] {
            assert!(!production.contains(word), "{}: {word}", file.display());
        }
    }
}
