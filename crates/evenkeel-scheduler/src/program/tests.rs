//! What the program takes and refuses, and what it makes of it.

use super::{NAME, Options, Registry, config::Configuration, flags, profiles};
use evenkeel_component::flags::Asked;
use serde_json::Value;

fn options(arguments: &[&str]) -> Result<Options, String> {
    let arguments = arguments.iter().map(|argument| (*argument).to_owned());
    match flags().parse(NAME, arguments).map_err(|error| error.to_string())? {
        Asked::Run(given) => Options::check(given).map_err(|problems| problems.to_string()),
        other => panic!("not to run: {other:?}"),
    }
}

#[test]
fn defaults_are_upstreams() {
    let options = options(&["--kubeconfig=sched.kc"]).unwrap();
    assert_eq!(options.serving.port, 10259);
    assert_eq!(options.warnings, Vec::<String>::new());
    let config = options.configuration().unwrap();
    let recorded: Value = serde_json::from_str(include_str!("../../data/configz.json")).unwrap();
    assert_eq!(config.shown(), recorded["componentconfig"]);
    for flag in flags().iter() {
        assert!(!flag.words.is_empty(), "--{} has words", flag.name);
    }
    let profiles = profiles::build(&config, &Registry::builtin(), &options.gates).unwrap();
    assert_eq!(profiles.len(), 1);
}

#[test]
fn flags_count_as_upstream_has_them() {
    let alone =
        options(&["--kube-api-qps=7", "--profiling=false", "--leader-elect=false"]).unwrap();
    let config = alone.configuration().unwrap();
    assert_eq!((config.client_connection.qps, config.enable_profiling), (7.0, Some(false)));
    assert!(!alone.client(&config).json);
    let json = options(&["--kube-api-content-type=application/json"]).unwrap();
    assert!(json.client(&json.configuration().unwrap()).json);
    assert_eq!(config.leader_election.leader_elect, Some(false));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
        clientConnection: {qps: 0.5, acceptContentTypes: application/json}\nleaderElection: {leaseDuration: 1m}\n";
    std::fs::write(&path, text).unwrap();
    let config = format!("--config={}", path.display());
    let both =
        options(&[&config, "--kube-api-qps=7", "--leader-elect-resource-name=mine"]).unwrap();
    assert_eq!(both.warnings, ["--kube-api-qps is not used beside --config"]);
    assert!(both.client(&both.configuration().unwrap()).json);
    let shown = both.configuration().unwrap().shown();
    assert_eq!(shown["clientConnection"]["qps"], 0.5);
    assert_eq!(shown["leaderElection"]["leaseDuration"], "1m0s");
    assert_eq!(shown["leaderElection"]["resourceName"], "mine");
    let error = options(&["--config=/nope"]).unwrap().configuration().unwrap_err();
    assert!(format!("{error:#}").contains("/nope"));
}

/// Upstream's words on what it refuses, but for what differs by the order of a map in memory.
#[test]
fn what_is_wrong_is_refused_in_upstreams_words() {
    let gates = options(&[]).unwrap().gates;
    for line in include_str!("../../data/recorded-refusals.tsv").lines() {
        let (text, wanted) = line.split_once('\t').unwrap();
        let text = format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n{text}\n"
        );
        let found = Configuration::parse(&text, &gates)
            .map_err(|error| error.to_string())
            .and_then(|config| {
                config.check(&gates).map_err(|error| error.to_string())?;
                profiles::build(&config, &Registry::builtin(), &gates)
                    .map_err(|error| format!("{error:#}"))
            });
        assert_eq!(found.err().as_deref().unwrap_or("nothing"), wanted, "{text}");
    }
}
