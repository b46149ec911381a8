use super::*;
use evenkeel_component::flags::Asked;
use serde_json::{Value, json};

fn options(arguments: &[&str]) -> Result<Options, String> {
    let arguments = arguments.iter().map(|argument| (*argument).to_owned());
    match flags().parse(NAME, arguments).map_err(|error| error.to_string())? {
        Asked::Run(given) => Options::check(given).map_err(|problems| problems.to_string()),
        other => Err(format!("{other:?}")),
    }
}

#[test]
fn defaults_are_upstreams() {
    let options = options(&[]).expect("defaults are valid");
    assert_eq!((options.client.qps, options.client.burst), (20.0, 30));
    assert_eq!(options.serving.port, 10257);
    assert_eq!(options.leader.name, "kube-controller-manager");
    assert_eq!(options.serving.always_allow, ["/healthz", "/readyz", "/livez"]);
    assert_eq!(options.warnings, [""; 0]);
    // What a controller has without any flags is what the flags have when they are not given.
    assert_eq!(options.controllers, controllers::Options::default());
}

#[test]
fn every_recorded_default_is_of_its_type() {
    let Ok(Asked::Run(given)) = flags().parse(NAME, []) else { panic!("nothing is given") };
    for flag in flags().iter() {
        let printed = given.text(flag.name).unwrap_or_default();
        let default = flag.default.trim_matches('"');
        let empty = matches!(printed.as_str(), "" | "false" | "0" | "0s" | "[]");
        assert!(printed == default || (default.is_empty() && empty), "{}: {printed}", flag.name);
    }
}

/// What ours says in other words, and why.
const OTHER_WORDS: [(&str, &str); 3] = [
    (
        // The system's words, as this language has them.
        "--allow-metric-labels-manifest=/nope",
        "metrics.allowListMappingManifest: Invalid value: \"/nope\": failed to read allow list manifest: \
         No such file or directory (os error 2)",
    ),
    (
        // Upstream names a flag that there is not.
        "--attach-detach-reconcile-sync-period=1ms",
        "attach-detach-reconcile-sync-period must be greater than one second, but got 1ms",
    ),
    (
        // One form for all numbers of workers.
        "--concurrent-resourceclaim-syncs=0",
        "concurrent-resourceclaim-syncs must be greater than 0, but got 0",
    ),
];

/// The recorded lines are arguments, a tab, and what upstream's program (v1.37.1) says before it ends.
#[test]
fn what_upstream_refuses_is_refused_in_its_words() {
    for line in include_str!("../../data/recorded-refusals.tsv").lines() {
        let (arguments, words) = line.split_once('\t').expect("two columns");
        let other = OTHER_WORDS.iter().find(|(other, _)| *other == arguments);
        let words = other.map_or(words, |(_, words)| words);
        let arguments: Vec<&str> = arguments.split(' ').collect();
        assert_eq!(options(&arguments).map(|_| ()), Err(words.to_owned()), "{arguments:?}");
    }
}

#[test]
fn configz_is_upstreams_by_default() {
    let options = options(&[]).expect("defaults are valid");
    let recorded: Value =
        serde_json::from_str(include_str!("../../data/configz.json")).expect("recorded");
    let mut ours = configz(&options);
    // Upstream was recorded with these on its command line.
    let group = &mut ours["kubecontrollermanager.config.k8s.io"];
    for (pointer, value) in [
        ("/Generic/ClientConnection/kubeconfig", json!("kcm.kc")),
        ("/KubeCloudShared/UseServiceAccountCredentials", json!(true)),
        ("/CSRSigningController/ClusterSigningCertFile", json!("ca.crt")),
        ("/CSRSigningController/ClusterSigningKeyFile", json!("ca.key")),
        ("/SAController/ServiceAccountKeyFile", json!("sa.key")),
        ("/SAController/RootCAFile", json!("ca.crt")),
    ] {
        *group.pointer_mut(pointer).expect(pointer) = value;
    }
    assert_eq!(ours, recorded);
}

#[test]
fn configz_shows_what_was_given() {
    let options = options(&[
        "--controllers=*,-deployment",
        "--service-cluster-ip-range=10.0.0.0/16,fd00::/108",
        "--horizontal-pod-autoscaler-tolerance=0.5",
        "--min-resync-period=90m",
    ]);
    let config = configz(&options.expect("valid"));
    let config = &config["kubecontrollermanager.config.k8s.io"];
    assert_eq!(config["Generic"]["Controllers"], json!(["*", "-deployment-controller"]));
    assert_eq!(config["Generic"]["MinResyncPeriod"], "1h30m0s");
    assert_eq!(config["NodeIPAMController"]["ServiceCIDR"], "10.0.0.0/16");
    assert_eq!(config["NodeIPAMController"]["SecondaryServiceCIDR"], "fd00::/108");
    assert_eq!(config["HPAController"]["HorizontalPodAutoscalerTolerance"], 0.5);
}

#[test]
fn every_place_of_configz_is_there_and_every_flag_of_it_exists() {
    let recorded: Value =
        serde_json::from_str(include_str!("../../data/configz.json")).expect("recorded");
    let config = &recorded["kubecontrollermanager.config.k8s.io"];
    for line in include_str!("../../data/configz.tsv").lines().skip(1) {
        let (pointer, flag) = line.split_once('\t').expect("two columns");
        assert!(config.pointer(pointer).is_some(), "{pointer}");
        assert!(flags().get(flag).is_some(), "{flag}");
    }
}

#[test]
fn controllers_are_chosen_by_name_alias_and_star() {
    let check = |asked: &str| {
        let options = options(&[&format!("--controllers={asked}")])?;
        let known = [
            ("deployment-controller", true),
            ("job-controller", true),
            ("token-cleaner-controller", false),
        ];
        let enabled = options.choice.enabled(known);
        Ok::<_, String>((enabled, options.warnings.len()))
    };
    assert_eq!(check("*"), Ok((vec!["deployment-controller", "job-controller"], 0)));
    assert_eq!(check("*,-deployment"), Ok((vec!["job-controller"], 1)));
    assert_eq!(check("job-controller"), Ok((vec!["job-controller"], 0)));
    assert_eq!(
        check("*,tokencleaner"),
        Ok((vec!["deployment-controller", "job-controller", "token-cleaner-controller"], 1))
    );
}
