//! `evenkeel preflight`, as an administrator runs it before a replacement.

use crate::program::{Embedded, POLL_INTERVAL, Program, free_port};
use serde_json::Value;
use std::{
    path::Path,
    process::{Command, Output},
};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");
const SCHEDULER: &str = env!("CARGO_BIN_EXE_kube-scheduler");
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler";

/// Runs the command.
fn preflight(kubeconfig: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(EVENKEEL);
    command.arg("preflight").arg("--kubeconfig").arg(kubeconfig).args(arguments);
    command.output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_with_a_running_scheduler_is_ready() {
    let folder = tempfile::tempdir().expect("a folder");
    let embedded = Embedded::start().await;
    let admin = folder.path().join("admin");
    std::fs::write(&admin, embedded.server.kubeconfig(&embedded.url)).expect("a kubeconfig");
    let arguments = [
        format!("--kubeconfig={}", admin.display()),
        format!("--secure-port={}", free_port()),
        "--leader-elect=true".to_owned(),
    ];
    let flags = folder.path().join("cmdline");
    std::fs::write(&flags, format!("{SCHEDULER}\0{}\0", arguments.join("\0"))).expect("a file");
    let mut program = Program::start(SCHEDULER, &arguments, folder.path());
    let is_held = |lease: &Value| lease["spec"]["holderIdentity"].is_string();
    let mut tries = 0;
    while !is_held(&embedded.cluster.get(LEASE).await) {
        tries += 1;
        assert!(program.is_running() && tries < 600, "{}", program.last_words());
        embedded.cluster.sleep(POLL_INTERVAL).await;
    }

    let flags = format!("--scheduler-flags={}", flags.display());
    let output = preflight(&admin, &["--program=kube-scheduler", &flags, "-ojson"]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["isReady"], true);
    let find = |check: &str| {
        let mut findings = report["findings"].as_array().into_iter().flatten();
        findings.find(|finding| finding["check"] == check).cloned().unwrap_or_default()
    };
    for check in ["version", "permissions", "lease", "configuration"] {
        assert_eq!(find(check)["verdict"], "ok", "{check}: {report}");
    }
    let holder = embedded.cluster.get(LEASE).await["spec"]["holderIdentity"].clone();
    let message = find("lease")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains(holder.as_str().expect("a holder")), "{message}");
    assert_eq!(report["flags"][0]["accepted"].as_array().map(Vec::len), Some(3));
    assert_eq!(report["plan"][0]["program"], "kube-scheduler");

    let wrong = folder.path().join("wrong");
    std::fs::write(&wrong, "kube-scheduler --policy-config-file=/x").expect("a file");
    let wrong = format!("--scheduler-flags={}", wrong.display());
    let output = preflight(&admin, &["--program=kube-scheduler", &wrong]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains("BLOCKER  flags: unknown flag: --policy-config-file"), "{shown}");
    assert!(shown.contains("there is no plan"), "{shown}");

    program.stop(&embedded.cluster).await;
    embedded.serving.stop().await;
}
