//! Tables at the head of a module lead from the words of Kubernetes' documentation to what they have become: a function of
//! the file, `file::function` of its folder or the one above, or a path.

use std::{
    fs,
    path::{Path, PathBuf},
};

use evenkeel_tidy::{crates, read, sources};

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

/// Modules that must begin with such a table.
const WITH_TABLE: [&str; 23] = [
    "evenkeel-apiserver/src/auth/escalation.rs",
    "evenkeel-apiserver/src/auth/rbac.rs",
    "evenkeel-apiserver/src/flow.rs",
    "evenkeel-apiserver/src/kinds/policybased.rs",
    "evenkeel-apiserver/src/pipeline/mod.rs",
    "evenkeel-apiserver/src/verbs/list.rs",
    "evenkeel-apiserver/src/verbs/stages.rs",
    "evenkeel-controllers/src/apps/daemonset/plan.rs",
    "evenkeel-controllers/src/apps/deployment/plan.rs",
    "evenkeel-controllers/src/apps/statefulset/plan.rs",
    "evenkeel-controllers/src/autoscaling/horizontalpodautoscaler/plan.rs",
    "evenkeel-controllers/src/batch/cronjob/plan.rs",
    "evenkeel-controllers/src/batch/job/plan.rs",
    "evenkeel-controllers/src/core/garbagecollector/plan.rs",
    "evenkeel-controllers/src/core/nodelifecycle/plan/mod.rs",
    "evenkeel-controllers/src/discovery/endpointslice/plan.rs",
    "evenkeel-scheduler/src/plugins/default_preemption/mod.rs",
    "evenkeel-scheduler/src/plugins/dynamic_resources/mod.rs",
    "evenkeel-scheduler/src/plugins/inter_pod_affinity/mod.rs",
    "evenkeel-scheduler/src/plugins/node_resources_fit/mod.rs",
    "evenkeel-scheduler/src/plugins/pod_topology_spread/mod.rs",
    "evenkeel-scheduler/src/plugins/taint_toleration.rs",
    "evenkeel-scheduler/src/plugins/volume_binding/mod.rs",
];

#[test]
fn tables_of_what_is_documented_lead_somewhere() {
    let files: Vec<PathBuf> =
        crates().iter().flat_map(|(_, path)| sources(&path.join("src"))).collect();
    let tables = files.iter().filter(|file| read(file).contains("//! | documented | where |"));
    for file in tables {
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
}

#[test]
fn the_great_decisions_have_a_table() {
    for module in WITH_TABLE {
        let file = evenkeel_tidy::root().join("crates").join(module);
        assert!(read(&file).contains("//! | documented | where |"), "{module} has no table");
    }
}
