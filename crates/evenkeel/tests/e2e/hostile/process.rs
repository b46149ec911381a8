//! Runs the same cases with a controller manager in its own process, and checks its log and memory.

use super::{Bad, bad, goes_on, write};
use crate::program::{Embedded, Program, free_port};
use evenkeel_plane::{Plane, PlaneOptions};
use std::{collections::BTreeMap, time::Duration};

const BINARY: &str = env!("CARGO_BIN_EXE_kube-controller-manager");

/// Duration of each of the two observations.
const WATCHED: Duration = Duration::from_secs(15);

/// Maximum number of warnings and errors about one object: several controllers may log about it, each once.
const MAX_LINES_PER_OBJECT: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_objects_are_reported_once_without_growth() {
    let folder = tempfile::tempdir().expect("a folder");
    let embedded = Embedded::start().await;
    let cluster = &embedded.cluster;
    let around = PlaneOptions { controllers: Vec::new(), ..PlaneOptions::all(2) };
    let around = Plane::start(cluster.kube(), cluster.clock(), around).expect("nodes start");
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, embedded.server.kubeconfig(&embedded.url)).expect("a kubeconfig");
    let port = free_port();
    let arguments = [
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--secure-port={port}"),
        "--leader-elect=false".to_owned(),
        "--controller-start-interval=0s".to_owned(),
        "--kube-api-qps=1000".to_owned(),
        "--kube-api-burst=1000".to_owned(),
    ];
    let mut program = Program::start(BINARY, &arguments, folder.path());
    program.serves(cluster, port).await;
    let namespace = cluster.namespace("hostile").await;
    let healthy = cluster.namespace("healthy").await;
    let all = bad(&namespace.name);
    for bad in &all {
        write(cluster, bad).await;
    }
    goes_on(&healthy).await;
    cluster.sleep(WATCHED).await;
    let (first, memory) = (lines_by_object(&program, &all), program.memory());
    cluster.sleep(WATCHED).await;
    let again = lines_by_object(&program, &all);
    let often: BTreeMap<_, _> =
        again.iter().filter(|(_, lines)| lines.len() > MAX_LINES_PER_OBJECT).collect();
    assert!(often.is_empty(), "logged repeatedly: {often:#?}");
    let before: usize = first.values().map(Vec::len).sum();
    let after: usize = again.values().map(Vec::len).sum();
    assert!(after <= before + all.len() / 10, "{before} lines, and {after} a while later");
    let grown = program.memory();
    assert!(grown < memory + memory / 10, "{memory} kB, and {grown} kB a while later");
    goes_on(&healthy).await;
    assert!(program.is_running(), "{}", program.last_words());
    program.stop(cluster).await;
    around.stop().await;
    embedded.serving.stop().await;
}

/// Returns the warnings and errors by the object that they name.
fn lines_by_object(program: &Program, all: &[Bad]) -> BTreeMap<String, Vec<String>> {
    let log = program.log();
    let grave = |line: &&str| line.starts_with('W') || line.starts_with('E');
    let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in log.lines().filter(grave) {
        let words: Vec<&str> = line.split(|c: char| !(c.is_alphanumeric() || c == '-')).collect();
        for bad in all {
            let name = bad.object["metadata"]["name"].as_str().unwrap_or_default();
            if words.contains(&name) {
                lines.entry(name.to_owned()).or_default().push(line.to_owned());
            }
        }
    }
    lines
}
