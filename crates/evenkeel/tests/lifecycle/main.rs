//! The life cycle of clusters, as a user starts and ends them: runs the program in its own home folder.

mod client;
mod clone;
mod configuration;
mod explain;
mod faults;
mod home;
mod schedulers;

use client::get;
use home::{Home, events, text};
use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Stdio,
};

const WORK: &str = "apiVersion: v1\nkind: Config\ncurrent-context: work\nclusters: []\nusers: []\n\
    contexts: [{name: work, context: {cluster: work, user: work}}]\n";

/// A pod that claims a device with the template from the documentation page.
const CLAIMING_POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: training}\nspec:\n  \
    tolerations: [{key: gpu, operator: Exists}]\n  resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]\n  \
    containers: [{name: c, image: trainer, resources: {claims: [{name: gpu}]}}]\n";

/// Starts a cluster in the background, and returns its last event.
fn up(home: &Home, arguments: &[&str]) -> Value {
    let all = [&["up", "-d", "--port=0", "--nodes=1", "--output=json"], arguments].concat();
    events(&home.succeed(&all)).pop().expect("an event")
}

fn current_context(home: &Home) -> Option<String> {
    let path = home.path(".kube/config");
    let config = kube::config::Kubeconfig::read_from(path).expect("a kubeconfig");
    config.current_context.filter(|name| !name.is_empty())
}

#[test]
fn a_cluster_in_the_background_is_listed_logged_and_stopped() {
    let home = Home::new();
    home.file(".kube/config", WORK);
    let ready = up(&home, &["--wait=60s"]);
    assert_eq!((&ready["event"], &ready["context"]), (&"ready".into(), &"evenkeel-default".into()));
    assert_eq!(home.states(), [("default".to_owned(), "running".to_owned())]);
    let status: Value =
        serde_json::from_str(&home.succeed(&["status", "-ojson"])).expect("a status");
    assert_eq!((&status["live"]["readyNodes"], &status["url"]), (&1.into(), &ready["url"]));
    assert!(home.succeed(&["status"]).contains("nodes        1 of 1 Ready"));
    let log = home.succeed(&["logs"]);
    assert!(log.contains("starting workers") && !log.contains("\nW"), "{log}");
    assert_eq!(current_context(&home).as_deref(), Some("evenkeel-default"));
    for (file, mode) in
        [("", 0o700), ("kubeconfig", 0o600), ("log", 0o600), ("cluster.json", 0o600)]
    {
        let metadata = home.cluster("default").join(file).metadata().expect("there");
        assert_eq!(metadata.permissions().mode() & 0o777, mode, "{file}");
    }
    let mut follower = home.command(&["logs", "-f"]).stdout(Stdio::piped()).spawn().expect("runs");
    let mut output = BufReader::new(follower.stdout.take().expect("piped"));
    let mut followed = String::new();
    output.read_line(&mut followed).expect("read");
    assert_eq!(home.succeed(&["down"]), "stopped default\n");
    output.read_to_string(&mut followed).expect("read");
    assert!(follower.wait().expect("it ends").success(), "it ends with the cluster");
    assert!(followed.starts_with(&log[..40]), "{followed}");
    assert_eq!(current_context(&home).as_deref(), Some("work"));
    assert!(!home.read(".kube/config").contains("evenkeel"));
    assert!(!home.cluster("default").exists());
    assert!(home.fail(&["status"]).contains("there is no cluster"));
}

#[test]
fn clusters_run_side_by_side_under_different_names() {
    let home = Home::new();
    home.file(".kube/config", WORK);
    let [a, b] = ["a", "b"].map(|name| up(&home, &["--name", name]));
    assert_ne!(a["url"], b["url"]);
    // Pods are refused in a namespace without the service account.
    for cluster in [&a, &b] {
        let kubeconfig = cluster["kubeconfig"].as_str().expect("a path");
        let account =
            get(Path::new(kubeconfig), "/api/v1/namespaces/default/serviceaccounts/default");
        assert_eq!(
            account.expect("it is there when the cluster is ready")["kind"],
            "ServiceAccount"
        );
    }
    let refused = home.fail(&["up", "-d", "--name=a", "--port=0"]);
    assert!(refused.contains("the cluster a runs already (process "), "{refused}");
    let refused = home.fail(&["up", "--name=a", "--port=0"]);
    assert!(refused.contains("the cluster a runs already (process "), "{refused}");
    // The cluster that was started last is the kubeconfig's current one; commands that end a cluster ignore the current
    // context.
    let names = [&[][..], &["a"], &["--name=a"]].map(|name| {
        let status = home.succeed(&[&["status", "-ojson"], name].concat());
        serde_json::from_str::<Value>(&status).expect("a status")["name"].clone()
    });
    assert_eq!(names, ["b", "a", "a"]);
    assert!(home.fail(&["down"]).contains("which cluster? There are: a, b; name it: --name a"));
    assert!(home.fail(&["up", "--name=A.b"]).contains("a name has at most 63"));
    assert_eq!(home.succeed(&["down", "--name=a"]), "stopped a\n");
    assert_eq!(current_context(&home).as_deref(), Some("evenkeel-b"));
    // The previous context belongs to a removed cluster; the context before that is left.
    assert_eq!(home.succeed(&["down", "--all"]), "stopped b\n");
    assert_eq!(current_context(&home).as_deref(), Some("work"));
}

#[test]
fn a_crashed_cluster_is_found_and_cleaned() {
    let home = Home::new();
    home.file(".kube/config", WORK);
    for name in ["a", "b"] {
        up(&home, &["--name", name]);
        home.kill(name);
    }
    let states = [("a", "crashed"), ("b", "crashed")].map(|(n, s)| (n.to_owned(), s.to_owned()));
    assert_eq!(home.states(), states);
    assert!(!home.run(&["status", "a"]).status.success());
    assert!(home.succeed(&["logs", "a"]).contains("starting workers"), "its log is there");
    assert_eq!(home.succeed(&["down", "a"]), "removed a\n");
    assert!(!home.cluster("a").exists() && !home.read(".kube/config").contains("evenkeel-a"));
    up(&home, &["--name=b"]);
    assert_eq!(home.states(), [("b".to_owned(), "running".to_owned())]);
}

#[test]
fn a_cluster_in_the_foreground_is_quiet_and_stops_with_the_signal() {
    let home = Home::new();
    let mut child = home
        .command(&["up", "--port=0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut lines = String::new();
    while !lines.contains("kubectl get all\n") {
        assert_ne!(output.read_line(&mut lines).expect("read"), 0, "{lines}");
    }
    assert!(lines.starts_with("✓ API server     https://127.0.0.1:"), "{lines}");
    assert!(lines.contains("\n✓ components     controllers, scheduler, 3 simulated nodes\n"));
    assert!(lines.contains("    export KUBECONFIG="), "{lines}");
    assert!(!home.path(".kube").exists(), "the user's kubeconfig is left alone");
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.expect("a process"), rustix::process::Signal::TERM)
        .expect("signalled");
    output.read_to_string(&mut lines).expect("read");
    assert!(lines.ends_with("Stopping. Press Ctrl-C again to exit immediately.\n"), "{lines}");
    let end = child.wait_with_output().expect("it ends");
    assert!(end.status.success());
    assert_eq!(text(&end.stderr), "", "nobody has to do anything");
    assert_eq!(home.list(), [Value::Null; 0]);
}

#[test]
fn a_start_that_fails_leaves_nothing() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = format!("--port={}", listener.local_addr().expect("an address").port());
    for detach in [&["-d"][..], &[]] {
        let failed = home.fail(&[&["up", &port], detach].concat());
        assert!(failed.starts_with("Error: port ") && failed.contains(" is in use"), "{failed}");
        assert!(!home.cluster("default").exists());
    }
}

#[test]
fn a_kubeconfig_that_cannot_be_read_ends_the_start_and_keeps_no_cluster() {
    let home = Home::new();
    home.file(".kube/config", "no kubeconfig");
    let failed = home.fail(&["up", "-d", "--port=0", "--nodes=1", "--name=a"]);
    assert!(failed.starts_with("Error: the cluster was not started: your kubeconfig"), "{failed}");
    assert!(failed.contains("--write-kubeconfig=false"), "{failed}");
    assert_eq!(home.states(), []);
    up(&home, &["--name=b", "--write-kubeconfig=false"]);
    home.succeed(&["down", "b"]);
    // An unreadable file does not prevent the stop of a cluster.
    home.file(".kube/config", WORK);
    up(&home, &["--name=c"]);
    home.file(".kube/config", "no kubeconfig");
    let output = home.run(&["down", "c"]);
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("Warning: your kubeconfig was not changed: "), "{errors}");
    assert!(errors.contains("kubectl config delete-context evenkeel-c"), "{errors}");
    assert_eq!(home.states(), []);
}

#[test]
fn a_cluster_is_not_added_to_another_ones_kubeconfig() {
    let home = Home::new();
    up(&home, &["--name=first", "--write-kubeconfig=false"]);
    let own = home.cluster("first").join("kubeconfig");
    let before = std::fs::read_to_string(&own).expect("there");
    let second = home
        .command(&["up", "-d", "--port=0", "--nodes=1", "--name=second"])
        .env("KUBECONFIG", &own)
        .output()
        .expect("the program runs");
    let printed = text(&second.stdout);
    assert!(second.status.success(), "{printed}{}", text(&second.stderr));
    assert_eq!(std::fs::read_to_string(&own).expect("there"), before, "it is not changed");
    assert_eq!(current_context(&home).as_deref(), Some("evenkeel-second"));
    let kubeconfig = home.cluster("second").join("kubeconfig");
    assert!(printed.contains(&format!("export KUBECONFIG={}", kubeconfig.display())), "{printed}");
    assert!(printed.contains("is another cluster's own file"), "{printed}");
    home.succeed(&["down", "--all"]);
}

#[test]
fn pods_are_loaded_right_after_their_namespace() {
    let home = Home::new();
    let objects = |namespace: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, namespace: {namespace}}}\nspec: {{containers: [{{name: c, image: i}}]}}\n---\n\
             apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d, namespace: {namespace}}}\nspec:\n  \
             selector: {{matchLabels: {{a: b}}}}\n  template: {{metadata: {{labels: {{a: b}}}}, spec: {{containers: [{{name: c, image: i}}]}}}}\n---\n\
             apiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}\n"
        )
    };
    home.file("first.yaml", &objects("first"));
    up(&home, &["--load=first.yaml"]);
    for namespace in ["second", "third", "fourth"] {
        home.file("next.yaml", &objects(namespace));
        let loaded = home.succeed(&["load", "next.yaml"]);
        assert!(loaded.ends_with("pod/p created\ndeployment.apps/d created\n"), "{loaded}");
    }
    let log = home.succeed(&["logs"]);
    assert!(!log.contains("\nW"), "{log}");
    std::fs::create_dir(home.path("empty")).expect("made");
    let refused = home.fail(&["load", "empty"]);
    assert!(refused.contains("empty has no object; a folder's manifests"), "{refused}");
    home.succeed(&["down"]);
}

#[test]
fn a_start_that_waits_says_for_what_and_can_be_stopped() {
    let home = Home::new();
    let stored = ["--name=default", "--data-dir=data"];
    up(&home, &stored);
    // The kubelet reports the fault again after a start.
    home.succeed(&["fault", "node/node-0", "--kind=not-ready"]);
    client::until(&home.path("data/kubeconfig"), "/api/v1/nodes/node-0", |node| {
        let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|it| it["type"] == "Ready" && it["status"] == "False")
    });
    home.succeed(&["down"]);
    let waiting = [&["up", "-d", "--port=0", "--nodes=1", "--wait=600s"][..], &stored].concat();
    let mut child = home.command(&waiting).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut lines = String::new();
    while !lines.contains("waits for node node-0") {
        assert_ne!(output.read_line(&mut lines).expect("read"), 0, "{lines}");
    }
    let status = home.run(&["status"]);
    assert!(!status.status.success(), "it does not run yet");
    let status = text(&status.stdout);
    assert!(status.contains("state        starting: nodes\n"), "{status}");
    assert_eq!(home.succeed(&["down"]), "stopped default\n");
    assert!(!child.wait().expect("it ends").success());
    assert_eq!(home.list(), [Value::Null; 0]);
}

#[test]
fn nodes_are_ready_without_controllers() {
    let home = Home::new();
    up(&home, &["--no-controllers", "--wait=60s"]);
    assert!(home.succeed(&["status"]).contains("nodes        1 of 1 Ready"));
}

#[test]
fn clusters_that_are_killed_at_any_time_are_removed() {
    let home = Home::new();
    let lock = home.cluster("default").join("lock");
    for round in 0..12 {
        // The process is killed while it starts, before it has a record, or when it runs.
        let mut child = home
            .command(&["up", "--port=0", "--nodes=1"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it runs");
        if round % 4 == 3 {
            let mut output = BufReader::new(child.stdout.take().expect("piped"));
            let mut lines = String::new();
            while !lines.contains("kubectl get all\n") {
                assert_ne!(output.read_line(&mut lines).expect("read"), 0, "{lines}");
            }
        }
        while !lock.exists() {
            assert_eq!(child.try_wait().expect("asked"), None, "it runs");
        }
        child.kill().expect("killed");
        // The process ends while the command checks it.
        home.succeed(&["down", "--all"]);
        child.wait().expect("it ends");
        assert_eq!(home.list(), [Value::Null; 0], "nothing is left in round {round}");
    }
}

#[test]
fn manifests_are_loaded_and_discarded() {
    let home = Home::new();
    home.file(
        "manifests/a/widget.yaml",
        "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n",
    );
    home.file(
        "manifests/b.json",
        r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com"},
            "spec":{"group":"example.com","scope":"Namespaced","names":{"kind":"Widget","plural":"widgets"},"versions":[
            {"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#,
    );
    let map = home.file("map.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n");
    let map = map.to_str().expect("text");
    for data in [&[][..], &["--data-dir=data"]] {
        up(&home, &[&["--name=a", "--load=manifests"], data].concat());
        let loaded = home.succeed(&["load", "manifests", map]);
        assert_eq!(
            loaded,
            "customresourcedefinition.apiextensions.k8s.io/widgets.example.com applied\n\
             configmap/m created\nwidget.example.com/w applied\n"
        );
        let before = home.list();
        assert_eq!(home.succeed(&["reset", "a"]), "reset a\n");
        let after = home.list();
        assert_eq!(after[0]["url"], before[0]["url"], "it has the same port");
        assert_eq!(home.succeed(&["load", map]), "configmap/m created\n");
        let refused = home.fail(&["load", "nowhere.yaml"]);
        assert!(refused.contains("cannot read nowhere.yaml"), "{refused}");
        if !data.is_empty() {
            let refused = home.fail(&["reset", "--data-dir=data"]);
            assert!(
                refused.contains("is the data folder of the cluster a, which runs"),
                "{refused}"
            );
            let other = home.fail(&["up", "--name=b", "--port=0", "--data-dir=data"]);
            assert!(other.contains("it is of the cluster a: evenkeel down a"), "{other}");
        }
        let by = if data.is_empty() { "a" } else { "data" };
        assert_eq!(home.succeed(&["down", by]), "stopped a\n", "also by its data folder");
    }
    std::fs::create_dir(home.path("empty")).expect("made");
    for (arguments, want) in [
        (&["reset", "--data-dir=nowhere"][..], "there is no folder nowhere"),
        (&["snapshot", "save", "s", "--data-dir=nowhere"], "there is no folder nowhere"),
        (&["snapshot", "save", "s", "--data-dir=empty"], "empty has no objects"),
        (&["explain", "pod/p", "--kubeconfig=nowhere"], "name another one with --kubeconfig"),
        (&["preflight", "--kubeconfig=nowhere"], "name another one with --kubeconfig"),
    ] {
        let refused = home.fail(arguments);
        assert!(refused.contains(want), "{arguments:?}: {refused}");
    }
    assert!(home.succeed(&["reset", "--data-dir=data"]).starts_with("discarded the objects of"));
    assert!(home.succeed(&["reset", "--data-dir=data"]).starts_with("no objects in"));
}

#[test]
fn a_reset_whose_start_fails_says_why() {
    let home = Home::new();
    let good = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n";
    home.file("m.yaml", good);
    up(&home, &["--name=a", "--load=m.yaml"]);
    home.file("m.yaml", "apiVersion: v1\nkind: Nothing\nmetadata: {name: m}\n");
    let refused = home.fail(&["reset", "a"]);
    assert!(
        refused.contains("cluster a did not start again: --load: m.yaml: Nothing m:"),
        "{refused}"
    );
    assert_eq!(home.states(), [("a".to_owned(), "failed".to_owned())]);
    assert!(home.fail(&["status", "a"]).is_empty());
    home.file("m.yaml", good);
    up(&home, &["--name=a", "--load=m.yaml"]);
    assert_eq!(home.states(), [("a".to_owned(), "running".to_owned())]);
    home.succeed(&["down", "a"]);
}

#[test]
fn a_configuration_describes_a_cluster() {
    let home = Home::new();
    let page = include_str!("../../../../docs/cluster-config.md");
    let (_, rest) = page.split_once("```yaml\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    home.file("c/cluster.yaml", example);
    home.file("c/manifests/map.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n");
    let output = home.succeed(&["up", "-d", "--port=0", "--config=c/cluster.yaml", "-ojson"]);
    let stages: Vec<Value> = events(&output);
    assert_eq!(stages.last().expect("an event")["name"], "staging");
    assert!(output.contains("5 simulated nodes") && output.contains("1 created"), "{output}");
    assert!(output.contains("devices and images of 5 nodes"), "{output}");
    assert!(home.path("c/state/kubeconfig-ann").exists() && home.path("c/audit.log").exists());
    let status: Value =
        serde_json::from_str(&home.succeed(&["status", "-ojson"])).expect("a status");
    assert_eq!(status["live"]["readyNodes"], 5);
    let folder = status["dataDir"].as_str().expect("a folder");
    assert_eq!(std::path::Path::new(folder), home.path("c/./state"), "relative to the file");
    assert_eq!(current_context(&home).as_deref(), Some("evenkeel-staging"));
    let (_, rest) = rest.split_once("```yaml\n").expect("a claim");
    let (claim, _) = rest.split_once("```").expect("its end");
    home.file("claim.yaml", &format!("{claim}---\n{CLAIMING_POD}"));
    home.succeed(&["load", "claim.yaml"]);
    let own = home.path("c/state/kubeconfig");
    let pod = client::until(&own, "/api/v1/namespaces/default/pods/training", |pod| {
        pod["status"]["phase"] == "Running"
    });
    assert!(pod["spec"]["nodeName"].as_str().is_some_and(|node| node.starts_with("gpu-")), "{pod}");
    home.succeed(&["down"]);
    home.file("c/wrong.yaml", &example.replace("taints:", "taint:"));
    let refused = home.fail(&["up", "--config=c/wrong.yaml"]);
    let want = "c/wrong.yaml:23:3: nodes[1].taint: unknown field \"taint\"; did you mean taints?";
    assert!(refused.contains(want), "{refused}");
    let schema: Value =
        serde_json::from_str(&home.succeed(&["up", "--print-config-schema"])).expect("a schema");
    assert_eq!(schema["required"], serde_json::json!(["apiVersion", "kind"]));
    assert!(schema["properties"]["nodes"]["description"].is_string());
}

/// Sends a request over plain HTTP, and returns the response.
fn fetch(address: &str, target: &str, cookie: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).expect("connected");
    let head = format!(
        "GET {target} HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("sent");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).expect("read");
    text(&response)
}

/// Sends a request over plain HTTP, and returns the head of the response in lower case.
fn head_of(address: &str, target: &str, cookie: &str) -> String {
    let response = fetch(address, target, cookie);
    response.split("\r\n\r\n").next().unwrap_or_default().to_lowercase()
}

#[test]
fn the_console_shows_ages_in_the_clusters_time() {
    let home = Home::new();
    let ready = up(&home, &["--speed=1x", "--wait=60s"]);
    home.succeed(&["time", "+30m"]);
    let url = ready["console"].as_str().and_then(|url| url.strip_prefix("http://"));
    let (address, target) = url.and_then(|url| url.split_once('/')).expect("a URL");
    let entered = fetch(address, &format!("/{target}"), "");
    let (_, cookie) = entered.split_once("set-cookie: ").expect("a cookie");
    let cookie = cookie.split(';').next().unwrap_or_default();
    let node = fetch(address, "/object/core/v1/nodes/-/node-0", cookie);
    assert!(node.contains(">30m ago</time>"), "{node}");
    let controller = fetch(address, "/controller/node-lifecycle-controller", cookie);
    assert!(
        controller.starts_with("HTTP/1.1 200") && !controller.contains("Z\">in "),
        "{controller}"
    );
}

#[test]
fn the_console_lets_in_who_has_its_url() {
    let home = Home::new();
    let ready = up(&home, &[]);
    let url = home.succeed(&["console"]);
    assert_eq!(ready["console"].as_str(), Some(url.trim_end()));
    assert!(home.succeed(&["status"]).contains(&format!("console      {url}")));
    assert_eq!(home.list()[0]["console"], ready["console"]);
    let rest = url.trim_end().strip_prefix("http://").expect("a URL");
    let (address, target) = rest.split_at(rest.find('/').expect("a path"));
    assert!(head_of(address, "/", "").starts_with("http/1.1 401 "));
    let entered = head_of(address, target, "");
    assert!(entered.starts_with("http/1.1 303 "), "{entered}");
    let token = target.split_once('=').expect("a token").1.to_lowercase();
    assert!(!entered.contains(&token), "the cookie has a value of its own");
    home.succeed(&["down"]);

    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let refused = home.fail(&["up", "-d", "--port=0", &format!("--console={port}")]);
    assert!(refused.contains("--console"), "{refused}");
    let without = up(&home, &["--console=none"]);
    assert_eq!(without["console"], Value::Null);
    assert!(home.fail(&["console"]).contains("has no console"));
}
