//! Tables at the head of a module lead from the words of Kubernetes' documentation to their implementation: a function of the
//! file, `file::function` of its folder or the parent folder, or a path.

use std::{
    fs,
    path::{Path, PathBuf},
};

use evenkeel_tidy::{crates, read, sources};

/// Returns whether `name` is declared in `file`.
fn declares(file: &Path, name: &str) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    ["fn", "struct", "enum"].iter().any(|keyword| {
        let declaration = format!("{keyword} {name}");
        text.match_indices(&declaration).any(|(index, _)| {
            let after = text[index + declaration.len()..].chars().next();
            after.is_some_and(|c| !c.is_alphanumeric() && c != '_')
        })
    })
}

/// Head of such a table.
const HEAD: &str = "//! | documented rule | implemented in |";

/// Modules that must begin with such a table. The scheduler's plugins are found automatically.
const WITH_TABLE: [&str; 25] = [
    "evenkeel-apiserver/src/auth/escalation.rs",
    "evenkeel-apiserver/src/auth/rbac.rs",
    "evenkeel-apiserver/src/flow/allocation.rs",
    "evenkeel-apiserver/src/flow/config.rs",
    "evenkeel-apiserver/src/flow/estimate.rs",
    "evenkeel-apiserver/src/flow/mod.rs",
    "evenkeel-apiserver/src/flow/queueset.rs",
    "evenkeel-apiserver/src/flow/rule.rs",
    "evenkeel-apiserver/src/registry/policybased.rs",
    "evenkeel-apiserver/src/pipeline/mod.rs",
    "evenkeel-apiserver/src/verbs/delete.rs",
    "evenkeel-apiserver/src/verbs/list.rs",
    "evenkeel-apiserver/src/verbs/mod.rs",
    "evenkeel-apiserver/src/verbs/stages/mod.rs",
    "evenkeel-apiserver/src/verbs/watch.rs",
    "evenkeel-controllers/src/apps/daemonset/plan.rs",
    "evenkeel-controllers/src/apps/deployment/plan.rs",
    "evenkeel-controllers/src/apps/statefulset/plan.rs",
    "evenkeel-controllers/src/autoscaling/horizontalpodautoscaler/plan.rs",
    "evenkeel-controllers/src/batch/cronjob/plan.rs",
    "evenkeel-controllers/src/batch/job/plan.rs",
    "evenkeel-controllers/src/core/garbagecollector/plan.rs",
    "evenkeel-controllers/src/core/nodelifecycle/plan/mod.rs",
    "evenkeel-controllers/src/discovery/endpointslice/plan.rs",
    "evenkeel-nodes/src/pod/plan.rs",
];

/// Folder of the scheduler's plugins.
const PLUGINS: &str = "crates/evenkeel-scheduler/src/plugins";

/// Returns whether the file contains a plugin of the scheduler, outside its tests.
fn holds_plugin(text: &str) -> bool {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().any(|line| line.starts_with("impl Plugin for "))
}

#[test]
fn tables_of_what_is_documented_lead_somewhere() {
    let files: Vec<PathBuf> =
        crates().iter().flat_map(|(_, path)| sources(&path.join("src"))).collect();
    let tables = files.iter().filter(|file| read(file).contains(HEAD));
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
        assert!(read(&file).contains(HEAD), "{module} has no table");
    }
}

#[test]
fn every_plugin_has_a_table() {
    let folder = evenkeel_tidy::root().join(PLUGINS);
    let plugins: Vec<PathBuf> =
        sources(&folder).into_iter().filter(|file| holds_plugin(&read(file))).collect();
    assert!(plugins.len() >= 20, "{PLUGINS} holds {} plugins only", plugins.len());
    for plugin in plugins {
        assert!(read(&plugin).contains(HEAD), "{} has no table", plugin.display());
    }
}

#[test]
fn plugins_are_found() {
    assert!(holds_plugin("use a;\n\nimpl Plugin for NodeName {\n}\n"));
    assert!(!holds_plugin("#[cfg(test)]\nmod tests {\nimpl Plugin for Fake {\n}\n}\n"));
    assert!(!holds_plugin("/// Says `impl Plugin for`.\nfn a() {}\n"));
}
