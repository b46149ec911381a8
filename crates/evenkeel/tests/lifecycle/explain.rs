//! `evenkeel explain` of objects in a cluster of `evenkeel up`.

use crate::{
    client::{request, until},
    home::Home,
    up,
};
use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader},
    process::Stdio,
};

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: big}\nspec: {nodeSelector: {disk: fast}, containers: [{name: c, image: nginx}]}\n";
const STUCK: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: stuck}\n\
    spec: {replicas: 2, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: 'nginx:404'}]}}}\n";

const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: nobody}\nspec: {selector: {a: none}, ports: [{port: 80}]}\n";

#[test]
fn an_explanation_begins_with_the_cause() {
    let home = Home::new();
    home.file("m/pod.yaml", POD);
    home.file("m/stuck.yaml", STUCK);
    up(&home, &["--load=m", "--wait=60s"]);
    let own = home.cluster("default").join("kubeconfig");
    let kubeconfig = format!("--kubeconfig={}", own.display());
    let of_pod = "/api/v1/namespaces/default/pods/big";
    until(&own, of_pod, |pod| pod["status"]["conditions"].is_array());
    let text = home.succeed(&["explain", "pod/big", &kubeconfig]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("Pod default/big (asked the manager at "), "{text}");
    assert!(lines[1].starts_with("  why  it is not scheduled: 0/1 nodes are available"), "{text}");
    assert_eq!(lines[3], "scheduler default-scheduler:", "{text}");
    assert!(lines[4].contains("NodeAffinity: "), "{text}");
    let last = lines.last().expect("a line");
    assert!(
        last.starts_with("  nothing to do: ") && last.contains("taint-eviction-controller"),
        "{text}"
    );

    let json: Value =
        serde_json::from_str(&home.succeed(&["explain", "pod", "big", "-ojson", &kubeconfig]))
            .expect("JSON");
    let yaml = home.succeed(&["explain", "pod", "big", "-oyaml", &kubeconfig]);
    let yaml: Value = serde_saphyr::from_str(&yaml).expect("YAML");
    for answer in [&json, &yaml] {
        assert_eq!(answer["object"]["name"], "big");
        assert!(
            answer["why"][0]["text"]
                .as_str()
                .is_some_and(|text| text.starts_with("it is not scheduled"))
        );
        assert_eq!(answer["scheduler"]["nodes"][0]["refused"]["plugin"], "NodeAffinity");
    }

    until(&own, "/api/v1/namespaces/default/pods?labelSelector=a%3Db", |pods| {
        let is_stuck = |pod: &Value| {
            !pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"].is_null()
        };
        pods["items"].as_array().is_some_and(|pods| pods.len() == 2 && pods.iter().all(is_stuck))
    });
    let text = home.succeed(&["explain", "deployment/stuck", &kubeconfig]);
    let of_pods = |line: &&str| line.contains(" and 1 more: container c waits: ");
    assert!(text.lines().any(|line| of_pods(&line)), "the pods say the cause: {text}");
    assert!(!text.contains("Available is False"), "that follows from it: {text}");

    home.file("service.yaml", SERVICE);
    home.succeed(&["load", "service.yaml"]);
    let text = home.succeed(&["explain", "service/nobody", &kubeconfig]);
    assert!(
        text.contains("  why  its selector a=none matches no pod of the namespace\n"),
        "{text}"
    );

    // The kubelet of a partitioned node does not start pods that the scheduler still binds to the node.
    home.succeed(&["fault", "node/node-0"]);
    home.file("late.yaml", &POD.replace("big", "late").replace("nodeSelector: {disk: fast}, ", ""));
    home.succeed(&["load", "late.yaml"]);
    until(&own, "/api/v1/namespaces/default/pods/late", |pod| pod["spec"]["nodeName"] == "node-0");
    let text = home.succeed(&["explain", "pod/late", &kubeconfig]);
    assert!(text.contains("  why  it is bound to node node-0 since 20"), "{text}");
    assert!(
        text.contains("; a fault cuts the node off (annotation sim.evenkeel.dev/silent)"),
        "{text}"
    );
}

#[test]
fn a_watched_explanation_is_printed_again_when_it_changes() {
    let home = Home::new();
    home.file("pod.yaml", POD);
    up(&home, &[]);
    let own = home.cluster("default").join("kubeconfig");
    let kubeconfig = format!("--kubeconfig={}", own.display());
    let refused = home.fail(&["explain", "pod/big", &kubeconfig]);
    assert!(
        refused.contains("there is no Pod big in the namespace default; `kubectl get pods"),
        "{refused}"
    );
    let refused = home.fail(&["explain", "podz/big", &kubeconfig]);
    assert!(refused.contains("`kubectl api-resources`"), "{refused}");

    let mut watch = home.command(&["explain", "pod/big", "--watch", &kubeconfig]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().expect("runs");
    let mut output = BufReader::new(watch.stdout.take().expect("piped"));
    let mut until_line = |part: &str| {
        let mut read = String::new();
        while !read.contains(part) {
            assert_ne!(output.read_line(&mut read).expect("read"), 0, "{part} is not in {read}");
        }
        read
    };
    until_line("there is no Pod big");
    home.succeed(&["load", "pod.yaml"]);
    let text = until_line("  why  it is not scheduled: 0/1 nodes");
    assert!(text.starts_with("\n--- ") && text.contains("Pod default/big ("), "{text}");
    request(&own, "DELETE", "/api/v1/namespaces/default/pods/big?gracePeriodSeconds=0")
        .expect("deleted");
    until_line("there is no Pod big");
    watch.kill().expect("killed");
    watch.wait().expect("it ends");
}
