//! Tests of the flags and configurations that the program accepts or rejects.

use super::{NAME, Options, Registry, config::KubeSchedulerConfiguration, flags, profiles};
use evenkeel_component::{features::FeatureGates, flags::Invocation};
use evenkeel_scheduler::plugins::inert::INERT;
use serde_json::Value;

/// Returns the options of a command line, or the error message.
fn options(arguments: &[&str]) -> Result<Options, String> {
    let arguments = arguments.iter().map(|argument| (*argument).to_owned());
    match flags().parse(NAME, arguments).map_err(|error| error.to_string())? {
        Invocation::Run(parsed) => Options::check(parsed).map_err(|invalid| invalid.to_string()),
        other => panic!("not to run: {other:?}"),
    }
}

#[test]
fn defaults_equal_upstreams() {
    let options = options(&["--kubeconfig=sched.kc"]).unwrap();
    assert_eq!(options.serving.port, 10259);
    assert_eq!(options.warnings, Vec::<String>::new());
    let config = options.configuration().unwrap();
    let recorded: Value = serde_json::from_str(include_str!("../data/configz.json")).unwrap();
    assert_eq!(config.to_json(), recorded["componentconfig"]);
    for flag in flags().iter() {
        assert!(!flag.description.is_empty(), "--{} has a description", flag.name);
    }
    let profiles = profiles::build_profiles(&config, &Registry::in_tree(), &options.gates).unwrap();
    assert_eq!(profiles.len(), 1);
}

#[test]
fn flags_and_the_configuration_file_combine_as_in_upstream() {
    let flags_only =
        options(&["--kube-api-qps=7", "--profiling=false", "--leader-elect=false"]).unwrap();
    let config = flags_only.configuration().unwrap();
    assert_eq!((config.client_connection.qps, config.enable_profiling), (7.0, Some(false)));
    assert!(!flags_only.client(&config).json);
    let json = options(&["--kube-api-content-type=application/json"]).unwrap();
    assert!(json.client(&json.configuration().unwrap()).json);
    assert_eq!(config.leader_election.leader_elect, Some(false));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
        clientConnection: {qps: 0.5, acceptContentTypes: application/json}\nleaderElection: {leaseDuration: 1m}\n";
    std::fs::write(&path, text).unwrap();
    let config = format!("--config={}", path.display());
    let flags_and_file =
        options(&[&config, "--kube-api-qps=7", "--leader-elect-resource-name=mine"]).unwrap();
    assert_eq!(flags_and_file.warnings, ["--kube-api-qps is not used beside --config"]);
    assert!(flags_and_file.client(&flags_and_file.configuration().unwrap()).json);
    let shown = flags_and_file.configuration().unwrap().to_json();
    assert_eq!(shown["clientConnection"]["qps"], 0.5);
    assert_eq!(shown["leaderElection"]["leaseDuration"], "1m0s");
    assert_eq!(shown["leaderElection"]["resourceName"], "mine");
    let error = options(&["--config=/nope"]).unwrap().configuration().unwrap_err();
    assert!(format!("{error:#}").contains("/nope"));
}

/// The expected errors are upstream's, except where they depend on the iteration order of a Go map.
#[test]
fn invalid_options_are_rejected_with_upstreams_messages() {
    let gates = options(&[]).unwrap().gates;
    for line in include_str!("../data/recorded-refusals.tsv").lines() {
        let (text, wanted) = line.split_once('\t').unwrap();
        let text = format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n{text}\n"
        );
        let found = KubeSchedulerConfiguration::parse(&text, &gates)
            .map_err(|error| error.to_string())
            .and_then(|config| {
                config.validate(&gates).map_err(|error| error.to_string())?;
                profiles::build_profiles(&config, &Registry::in_tree(), &gates)
                    .map_err(|error| format!("{error:#}"))
            });
        assert_eq!(found.err().as_deref().unwrap_or("nothing"), wanted, "{text}");
    }
}

/// Reads the options and builds the profiles, as the program does when it starts.
fn started(arguments: &[&str]) -> Result<Options, String> {
    let options = options(arguments)?;
    let config = options.configuration().map_err(|error| format!("{error:#}"))?;
    let built = profiles::build_profiles(&config, &Registry::in_tree(), &options.gates);
    built.map_err(|error| format!("{error:#}"))?;
    Ok(options)
}

#[test]
fn the_program_starts_with_each_gate_that_upstream_starts_with() {
    let names: Vec<&str> = FeatureGates::default().iter().map(|(name, ..)| name).collect();
    assert!(names.len() > 200, "{}", names.len());
    let each = names.iter().flat_map(|name| [format!("{name}=true"), format!("{name}=false")]);
    let several = [
        "AllAlpha=true,AllBeta=true",
        "AllBeta=true,AllAlpha=false",
        "AllAlpha=true,GenericWorkload=true,CompositePodGroup=false",
        "AllBeta=true,SchedulerAsyncPreemption=false",
    ];
    let mut rejected = Vec::new();
    for gates in each.chain(several.map(str::to_owned)) {
        let pairs: Vec<_> = gates.split(',').map(|pair| (String::new(), pair.to_owned())).collect();
        let errors = FeatureGates::resolve(&[], &[], &pairs).errors;
        match started(&[&format!("--feature-gates={gates}")]) {
            Ok(_) => assert_eq!(errors, [""; 0], "{gates}"),
            Err(error) => {
                let same = errors.iter().all(|message| error.contains(message));
                assert!(same && !errors.is_empty(), "{gates}: {error}");
                rejected.push(gates);
            }
        }
    }
    for accepted in
        ["AllBeta=true", "AllBeta=false", "AllAlpha=false", "AllAlpha=true,AllBeta=true"]
    {
        assert!(!rejected.iter().any(|gates| gates == accepted), "{accepted}");
    }
}

#[test]
fn gates_without_effect_are_reported() {
    let warnings = started(&["--feature-gates=AllAlpha=true,AllBeta=true"]).unwrap().warnings;
    for (_, gate) in INERT {
        let about = format!("the feature gate {gate}=true is accepted, but has no effect here: ");
        let found = warnings.iter().filter(|warning| warning.starts_with(&about));
        assert_eq!(found.count(), 1, "{gate}: {warnings:?}");
    }
    assert_eq!(started(&[]).unwrap().warnings, Vec::<String>::new());
    let warnings = started(&["--contention-profiling"]).unwrap().warnings;
    let found = warnings.iter().filter(|warning| warning.starts_with("--contention-profiling is"));
    assert_eq!(found.count(), 1, "{warnings:?}");
    // As in upstream, a configuration may name these plugins regardless of the enabled feature gates.
    let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
        profiles: [{plugins: {multiPoint: {enabled: [{name: GangScheduling}]}}}]\n";
    let gates = FeatureGates::default();
    let config = KubeSchedulerConfiguration::parse(text, &gates).unwrap();
    assert_eq!(profiles::build_profiles(&config, &Registry::in_tree(), &gates).unwrap().len(), 1);
}
