//! `evenkeel explain --server`: queries a running controller manager over its secure port.

use crate::{
    forbidden::USER,
    objects::deployment,
    program::{Embedded, Program, Watcher, free_port},
};
use base64::prelude::*;
use evenkeel::explain::{Args, run};
use serde_json::json;
use std::path::PathBuf;

const BINARY: &str = env!("CARGO_BIN_EXE_kube-controller-manager");

fn args(kubeconfig: PathBuf, namespace: &str, port: u16) -> Args {
    Args {
        object: vec!["deploy/web".to_owned()],
        namespace: Some(namespace.to_owned()),
        kubeconfig: Some(kubeconfig),
        context: None,
        server: Some(format!("https://127.0.0.1:{port}")),
        certificate_authority: None,
        insecure_skip_tls_verify: true,
        offline: false,
        output: "text".to_owned(),
        watch: false,
    }
}

async fn refused(args: &Args) -> String {
    format!("{:#}", run(args, &[]).await.expect_err("it cannot be answered"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_manager_explains_an_object() {
    let folder = tempfile::tempdir().expect("a folder");
    let embedded = Embedded::start().await;
    let cluster = &embedded.cluster;
    let admin = folder.path().join("admin");
    std::fs::write(&admin, embedded.server.kubeconfig(&embedded.url)).expect("a kubeconfig");
    let port = free_port();
    let path = |flag: &str| format!("--{flag}={}", admin.display());
    let authority = folder.path().join("ca.crt");
    std::fs::write(&authority, embedded.server.ca_pem()).expect("a CA");
    let arguments = [
        path("kubeconfig"),
        path("authentication-kubeconfig"),
        path("authorization-kubeconfig"),
        format!("--client-ca-file={}", authority.display()),
        format!("--secure-port={port}"),
        "--leader-elect=false".to_owned(),
        "--version=v1.37.1-vendor.1".to_owned(),
        "--controller-start-interval=0s".to_owned(),
        "--controllers=serviceaccount-controller,deployment-controller,replicaset-controller"
            .to_owned(),
    ];
    let mut program = Program::start(BINARY, &arguments, folder.path());
    program.serves(cluster, port).await;
    let namespace = cluster.namespace("explain").await;
    namespace.create("deployments", deployment("web", 2, "app:v1")).await;
    namespace.until("deployments/web", |web| web["status"]["replicas"] == 2).await;
    let asked = args(admin.clone(), &namespace.name, port);
    let text = run(&asked, &[]).await.unwrap_or_else(|error| panic!("{error:#}"));
    for line in [
        &format!("asked the manager at https://127.0.0.1:{port}"),
        "deployment-controller",
        "2 wanted, 2 there, 0 ready",
        "replicaset-controller",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let none =
        Args { object: vec!["deploy/none".to_owned()], ..args(admin.clone(), "default", port) };
    let error = refused(&none).await;
    assert!(error.contains("there is no Deployment none in the namespace default"), "{error}");

    // The program reports the version with which it was started.
    let watcher = Watcher::with_token(port, embedded.server.admin_token());
    assert!(watcher.text("/metrics").await.contains("git_version=\"v1.37.1-vendor.1\""));
    assert!(watcher.text("/statusz").await.contains("1.37.1-vendor.1"));

    // Errors name the next step.
    let wary = Args { insecure_skip_tls_verify: false, ..asked };
    assert!(refused(&wary).await.contains("is not trusted"), "{}", refused(&wary).await);
    let limited = folder.path().join("limited");
    let ca = BASE64_STANDARD.encode(embedded.server.ca_pem());
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": embedded.url, "certificate-authority-data": ca}}],
        "users": [{"name": "u", "user": {"token": USER}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    std::fs::write(&limited, text.to_string()).expect("a kubeconfig");
    let error = refused(&args(limited, "default", port)).await;
    assert!(error.contains("does not permit you to read its reports"), "{error}");
    let error = refused(&args(admin.clone(), "default", free_port())).await;
    assert!(error.contains("does not answer"), "{error}");
    let api_server: u16 =
        embedded.url.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let error = refused(&args(admin, "default", api_server)).await;
    assert!(error.contains("is not a manager of Evenkeel"), "{error}");
    program.stop(cluster).await;
    embedded.serving.stop().await;
}
