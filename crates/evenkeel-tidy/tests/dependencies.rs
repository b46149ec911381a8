//! Dependencies: arrows between crates point down.

use std::collections::BTreeSet;

use evenkeel_tidy::{crates, dependencies, read, root};

/// Each crate, and the crates of the workspace that it may depend on; as in ARCHITECTURE.md. `evenkeel-sim` and `evenkeel` may
/// depend on all crates that are listed above them.
const ARROWS: [(&str, &[&str]); 28] = [
    ("evenkeel-tidy", &[]),
    ("evenkeel-api", &[]),
    ("evenkeel-listener", &[]),
    ("evenkeel-tasks", &[]),
    ("evenkeel-x509", &[]),
    ("evenkeel-component-helpers", &["evenkeel-api"]),
    ("evenkeel-apimachinery", &["evenkeel-api"]),
    (
        "evenkeel-kinds",
        &["evenkeel-api", "evenkeel-apimachinery", "evenkeel-cel", "evenkeel-component-helpers"],
    ),
    ("evenkeel-apiextensions", &["evenkeel-api", "evenkeel-apimachinery", "evenkeel-cel"]),
    ("evenkeel-cel", &["evenkeel-api"]),
    ("evenkeel-runtime", &["evenkeel-api", "evenkeel-listener", "evenkeel-tasks", "evenkeel-x509"]),
    (
        "evenkeel-controllers",
        &[
            "evenkeel-api",
            "evenkeel-cel",
            "evenkeel-component-helpers",
            "evenkeel-runtime",
            "evenkeel-x509",
        ],
    ),
    ("evenkeel-component", &["evenkeel-api", "evenkeel-runtime"]),
    (
        "evenkeel-controller-manager",
        &[
            "evenkeel-api",
            "evenkeel-runtime",
            "evenkeel-component",
            "evenkeel-console",
            "evenkeel-controllers",
        ],
    ),
    ("evenkeel-cloud", &["evenkeel-api", "evenkeel-runtime", "evenkeel-component"]),
    (
        "evenkeel-kube-scheduler",
        &[
            "evenkeel-api",
            "evenkeel-component-helpers",
            "evenkeel-runtime",
            "evenkeel-component",
            "evenkeel-console",
            "evenkeel-scheduler",
        ],
    ),
    (
        "evenkeel-scheduler",
        &["evenkeel-api", "evenkeel-cel", "evenkeel-component-helpers", "evenkeel-runtime"],
    ),
    (
        "evenkeel-apiserver",
        &[
            "evenkeel-api",
            "evenkeel-component-helpers",
            "evenkeel-apimachinery",
            "evenkeel-kinds",
            "evenkeel-apiextensions",
            "evenkeel-cel",
            "evenkeel-listener",
            "evenkeel-tasks",
            "evenkeel-x509",
        ],
    ),
    ("evenkeel-shell", &["evenkeel-api"]),
    (
        "evenkeel-nodes",
        &[
            "evenkeel-api",
            "evenkeel-cel",
            "evenkeel-component-helpers",
            "evenkeel-runtime",
            "evenkeel-shell",
        ],
    ),
    (
        "evenkeel-fuzz",
        &[
            "evenkeel-api",
            "evenkeel-component-helpers",
            "evenkeel-apimachinery",
            "evenkeel-kinds",
            "evenkeel-apiextensions",
            "evenkeel-cel",
            "evenkeel-x509",
            "evenkeel-apiserver",
        ],
    ),
    (
        "evenkeel-plane",
        &[
            "evenkeel-api",
            "evenkeel-runtime",
            "evenkeel-controllers",
            "evenkeel-cloud",
            "evenkeel-scheduler",
            "evenkeel-apiserver",
            "evenkeel-nodes",
        ],
    ),
    (
        "evenkeel-console",
        &[
            "evenkeel-api",
            "evenkeel-component",
            "evenkeel-component-helpers",
            "evenkeel-explain",
            "evenkeel-listener",
            "evenkeel-nodes",
            "evenkeel-runtime",
            "evenkeel-scheduler",
        ],
    ),
    ("evenkeel-explain", &["evenkeel-api", "evenkeel-runtime", "evenkeel-scheduler"]),
    (
        "evenkeel-whatif",
        &[
            "evenkeel-api",
            "evenkeel-component-helpers",
            "evenkeel-runtime",
            "evenkeel-controllers",
            "evenkeel-scheduler",
            "evenkeel-apiserver",
            "evenkeel-nodes",
            "evenkeel-plane",
        ],
    ),
    (
        "evenkeel-test",
        &[
            "evenkeel-api",
            "evenkeel-runtime",
            "evenkeel-controllers",
            "evenkeel-cloud",
            "evenkeel-apiserver",
            "evenkeel-plane",
        ],
    ),
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
            "evenkeel-test",
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
            "evenkeel-kube-scheduler",
            "evenkeel-apiserver",
            "evenkeel-console",
            "evenkeel-explain",
            "evenkeel-plane",
            "evenkeel-whatif",
            "evenkeel-nodes",
        ],
    ),
];

#[test]
fn crates_depend_downwards_only() {
    let found: BTreeSet<String> = crates().into_iter().map(|(name, _)| name).collect();
    let listed: BTreeSet<String> = ARROWS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(found, listed, "every crate stands in the table");
    for (name, allowed) in ARROWS {
        let manifest = read(&root().join("crates").join(name).join("Cargo.toml"));
        for dependency in dependencies(&manifest, "dependencies") {
            let outside = !dependency.starts_with("evenkeel");
            assert!(
                outside || allowed.contains(&&*dependency),
                "{name} must not depend on {dependency}"
            );
        }
        assert!(
            manifest.contains("[lints]\nworkspace = true"),
            "{name} inherits the workspace's lints"
        );
    }
}
