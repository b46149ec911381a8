//! Tests of the flags: defaults, limits, help text, `/configz` and `/flagz`.

use super::*;
use evenkeel_component::flags::Invocation;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Returns the options of a command line, or the error message.
fn options(arguments: &[&str]) -> Result<Options, String> {
    let arguments = arguments.iter().map(|argument| (*argument).to_owned());
    match flags().parse(NAME, arguments).map_err(|error| error.to_string())? {
        Invocation::Run(parsed) => Options::check(parsed).map_err(|invalid| invalid.to_string()),
        other => Err(format!("{other:?}")),
    }
}

#[test]
fn defaults_equal_upstreams() {
    let options = options(&[]).expect("defaults are valid");
    assert_eq!((options.client.qps, options.client.burst), (20.0, 30));
    assert_eq!(options.serving.port, 10257);
    assert_eq!(options.leader.name, "kube-controller-manager");
    assert_eq!(options.serving.always_allow, ["/healthz", "/readyz", "/livez"]);
    assert_eq!(options.warnings, [""; 0]);
    // The controllers' defaults without flags must equal the defaults of the flags.
    assert_eq!(options.controllers, controllers::Options::default());
}

#[test]
fn every_default_is_printed_as_recorded() {
    let Ok(Invocation::Run(parsed)) = flags().parse(NAME, []) else { panic!("no flag is set") };
    for flag in flags().iter() {
        let printed = parsed.text(flag.name).unwrap_or_default();
        let default = flag.default.trim_matches('"');
        let empty = matches!(printed.as_str(), "" | "false" | "0" | "0s" | "[]");
        assert!(printed == default || (default.is_empty() && empty), "{}: {printed}", flag.name);
    }
}

/// Command lines that we reject with another message than upstream, and our message.
const OTHER_MESSAGES: [(&str, &str); 3] = [
    (
        // Rust formats the error of the operating system differently from Go.
        "--allow-metric-labels-manifest=/nope",
        "metrics.allowListMappingManifest: Invalid value: \"/nope\": failed to read allow list manifest: \
         No such file or directory (os error 2)",
    ),
    (
        // Upstream's message names a flag that does not exist.
        "--attach-detach-reconcile-sync-period=1ms",
        "attach-detach-reconcile-sync-period must be greater than one second, but got 1ms",
    ),
    (
        // We use the same message for all numbers of workers.
        "--concurrent-resourceclaim-syncs=0",
        "concurrent-resourceclaim-syncs must be greater than 0, but got 0",
    ),
];

/// Each recorded line has arguments, a tab, and the error message of upstream's program (v1.37.1).
#[test]
fn invalid_options_are_rejected_with_upstreams_messages() {
    for line in include_str!("../../data/recorded-refusals.tsv").lines() {
        let (arguments, message) = line.split_once('\t').expect("two columns");
        let other = OTHER_MESSAGES.iter().find(|(other, _)| *other == arguments);
        let message = other.map_or(message, |(_, message)| message);
        let arguments: Vec<&str> = arguments.split(' ').collect();
        assert_eq!(options(&arguments).map(|_| ()), Err(message.to_owned()), "{arguments:?}");
    }
}

#[test]
fn configz_equals_upstreams_by_default() {
    let options = options(&[]).expect("defaults are valid");
    let recorded: Value =
        serde_json::from_str(include_str!("../../data/configz.json")).expect("recorded");
    let mut ours = configz(&options);
    // Upstream was recorded with these flags on its command line.
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
fn configz_shows_the_given_flags() {
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
fn every_pointer_and_every_flag_of_the_configz_table_exists() {
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
fn controllers_are_enabled_by_name_alias_and_star() {
    let check = |controllers: &str| {
        let options = options(&[&format!("--controllers={controllers}")])?;
        let known_controllers = [
            ("deployment-controller", true),
            ("job-controller", true),
            ("token-cleaner-controller", false),
        ];
        let enabled = options.choice.enabled(known_controllers);
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

/// Returns section, name, type and default of each flag in a help text.
fn parse_help(help: &str) -> Vec<[String; 4]> {
    let (mut section, mut flags) = (String::new(), Vec::new());
    for line in help.lines() {
        if let Some(name) = line.strip_suffix(" flags:") {
            section = name.to_owned();
        }
        // Continuation lines of a flag's description have a greater indentation.
        let head = match (line.strip_prefix("      --"), line.trim_start().split_once(", --")) {
            (Some(head), _) => head,
            (None, Some((letter, head))) if letter.len() == 2 && line.starts_with("  -") => head,
            _ => continue,
        };
        let (head, words) = head.split_once("   ").unwrap_or((head, ""));
        let (name, kind) = head.split_once(' ').unwrap_or((head, "bool"));
        let default = words.rsplit_once("(default ").and_then(|(_, rest)| rest.strip_suffix(')'));
        flags.push([&section, name, kind, default.unwrap_or_default()].map(str::to_owned));
    }
    flags
}

/// Flags that upstream's help text lacks, and the reason.
const OURS: &[(&str, &str)] = &[
    ("plan", "a dry run before this program replaces upstream's"),
    #[cfg(feature = "console")]
    ("console-bind-address", "the console in the browser, which upstream's program does not have"),
];

#[test]
fn the_help_text_lists_upstreams_flags_and_ours() {
    let recorded = include_str!("../../data/flags.tsv").lines().skip(1).map(|line| {
        let cells: Vec<&str> = line.split('\t').collect();
        [cells[0], cells[1], cells[2], cells[3]].map(str::to_owned)
    });
    let is_ours = |flag: &[String; 4]| OURS.iter().any(|(name, _)| flag[1] == *name);
    let (ours, upstreams): (Vec<_>, Vec<_>) =
        parse_help(&command_line().help()).into_iter().partition(is_ours);
    assert_eq!(upstreams, recorded.collect::<Vec<_>>());
    let names: Vec<&str> = OURS.iter().map(|(name, _)| *name).collect();
    assert_eq!(ours.iter().map(|flag| &*flag[1]).collect::<Vec<_>>(), names);
}

#[test]
fn every_flag_has_our_description() {
    for flag in flags().iter() {
        assert!(!flag.description.is_empty(), "{}", flag.name);
    }
    let names: Vec<&str> = include_str!("../../data/words.tsv")
        .lines()
        .filter_map(|line| line.split_once('\t').map(|(name, _)| name))
        .collect();
    for name in &names {
        assert!(flags().get(name).is_some(), "there is no flag {name}");
    }
}

/// Flags that kubeadm writes into `kube-controller-manager.yaml` for every cluster.
const KUBEADM: [&str; 14] = [
    "--authentication-kubeconfig=/etc/kubernetes/controller-manager.conf",
    "--authorization-kubeconfig=/etc/kubernetes/controller-manager.conf",
    "--bind-address=127.0.0.1",
    "--client-ca-file=/etc/kubernetes/pki/ca.crt",
    "--cluster-name=kubernetes",
    "--cluster-signing-cert-file=/etc/kubernetes/pki/ca.crt",
    "--cluster-signing-key-file=/etc/kubernetes/pki/ca.key",
    "--controllers=*,bootstrapsigner,tokencleaner",
    "--kubeconfig=/etc/kubernetes/controller-manager.conf",
    "--leader-elect=true",
    "--requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt",
    "--root-ca-file=/etc/kubernetes/pki/ca.crt",
    "--service-account-private-key-file=/etc/kubernetes/pki/sa.key",
    "--use-service-account-credentials=true",
];

#[test]
fn the_flags_that_kubeadm_sets_are_accepted() {
    let variants: [&[&str]; 8] = [
        &[],
        // A cluster with a pod network.
        &[
            "--allocate-node-cidrs=true",
            "--cluster-cidr=10.244.0.0/16",
            "--service-cluster-ip-range=10.96.0.0/12",
        ],
        // A cluster with two IP families.
        &[
            "--allocate-node-cidrs=true",
            "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56",
            "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112",
            "--node-cidr-mask-size-ipv4=24",
            "--node-cidr-mask-size-ipv6=64",
        ],
        // A cluster with an external cloud provider.
        &["--cloud-provider=external", "--configure-cloud-routes=false"],
        // A cluster with an external CA, and therefore without signing keys.
        &["--cluster-signing-cert-file=", "--cluster-signing-key-file="],
        // Feature gates of the cluster's configuration, and current names of controllers.
        &["--feature-gates=MutablePVNodeAffinity=true", "--controllers=*,token-cleaner-controller"],
        // Other key types and lifetimes (certificateValidityPeriod, encryptionAlgorithm).
        &["--cluster-signing-duration=8760h0m0s"],
        // Flags that users often set in extraArgs.
        &[
            "--bind-address=0.0.0.0",
            "--profiling=false",
            "--terminated-pod-gc-threshold=1000",
            "--v=2",
        ],
    ];
    for variant in variants {
        let arguments: Vec<&str> = KUBEADM.iter().chain(variant).copied().collect();
        let options = options(&arguments).unwrap_or_else(|error| panic!("{variant:?}: {error}"));
        let controllers = options
            .choice
            .enabled(known_controllers().iter().map(|known| (known.name, known.on_by_default)));
        assert!(controllers.contains(&"token-cleaner-controller"), "{variant:?}");
        assert!(options.client.own_credentials && options.leader.elect, "{variant:?}");
        assert_eq!(options.root_ca.as_deref(), Some("/etc/kubernetes/pki/ca.crt"));
    }
}

#[test]
fn flags_without_effect_are_reported_once() {
    let options = options(&["--contention-profiling", "--node-sync-period=1s", "--v=2"]);
    let options = options.expect("valid");
    let warnings = options.warnings;
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].starts_with("Flag --node-sync-period has been deprecated"), "{warnings:?}");
    assert!(warnings[1].starts_with("--contention-profiling is accepted"), "{warnings:?}");
    assert_eq!(options.without_effect, ["contention-profiling"]);
}

#[test]
fn flags_without_effect_upstream_are_not_reported() {
    let options = options(&[
        "--cidr-allocator-type=RangeAllocator",
        "--cloud-config=/nope",
        "--cloud-provider=external",
        "--cluster-name=prod",
        "--configure-cloud-routes=false",
        "--external-cloud-volume-plugin=a",
        "--route-reconciliation-period=1m",
        "--min-resync-period=1h",
    ]);
    let options = options.expect("valid");
    assert_eq!((options.warnings, options.without_effect), (Vec::new(), Vec::new()));
    assert_eq!(options.min_resync_period, Duration::from_secs(3600));
}

#[test]
fn gates_without_effect_are_reported_with_the_reason() {
    let options =
        options(&["--feature-gates=StaleControllerConsistencyJob=false,HPAScaleToZero=false"]);
    let warnings = options.expect("valid").warnings;
    assert_eq!(
        warnings,
        [
            "the feature gate StaleControllerConsistencyJob=false is accepted, but has no effect here: a pass waits \
          until the caches show its own writes; without it, writes would be repeated"
        ]
    );
}

#[test]
fn flagz_equals_upstreams_by_default() {
    // Upstream was recorded with these flags on its command line.
    let options = options(&["--v=1", "--kubeconfig=/nope"]).expect("valid");
    let recorded: BTreeMap<String, String> = include_str!("../../data/recorded-flagz.tsv")
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let mut ours = command_line::flagz(&options.parsed_flags);
    ours.retain(|name, _| !OURS.iter().any(|(own, _)| own == name));
    assert_eq!(ours, recorded);
}

#[test]
fn flag_values_are_printed_as_upstream_prints_them() {
    for (given, printed) in [
        ("--allow-metric-labels=metric1,label1=v1", "[\"metric1,label1=v1\"]"),
        ("--bind-address=::1", "::1"),
        ("--controller-start-interval=1500ms", "1.5s"),
        ("--controllers=*,-job", "[*,-job]"),
        ("--emulated-version=kube=1.37", "[kube=1.37]"),
        (
            "--feature-gates=kube:LoggingAlphaOptions=true,kube:GenericWorkload=true",
            "kube:LoggingAlphaOptions=true,kube:GenericWorkload=true",
        ),
        ("--horizontal-pod-autoscaler-tolerance=1e-3", "0.001"),
        ("--kube-api-burst=0x10", "16"),
        ("--kube-api-content-type=a b", "a b"),
        ("--kube-api-qps=1000000", "1e+06"),
        ("--min-resync-period=90m", "1h30m0s"),
        ("--node-eviction-rate=0.25", "0.25"),
        ("--requestheader-allowed-names=\"a,b\",c", "[\"a,b\",c]"),
        ("--secondary-node-eviction-rate=1e-7", "1e-07"),
        ("--show-hidden-metrics-for-version=1.36", "1.36"),
        ("--tls-curve-preferences=29,23", "[29,23]"),
        ("--tls-sni-cert-key=a.crt,a.key:*.a.com,a.com", "[a.crt,a.key:*.a.com,a.com]"),
        ("--vmodule=a=1,b*=2", "a=1,b*=2"),
    ] {
        let name = given.trim_start_matches('-').split('=').next().unwrap_or_default();
        let options = options(&[given]).unwrap_or_else(|error| panic!("{given}: {error}"));
        let values = command_line::flagz(&options.parsed_flags);
        assert_eq!(values.get(name).map(String::as_str), Some(printed), "{given}");
    }
}

#[test]
fn the_program_starts_with_each_gate_that_upstream_starts_with() {
    let names: Vec<&str> = FeatureGates::default().iter().map(|(name, ..)| name).collect();
    let each = names.iter().flat_map(|name| [format!("{name}=true"), format!("{name}=false")]);
    let several =
        ["AllAlpha=true,AllBeta=true", "AllAlpha=true,GenericWorkload=true,WorkloadWithJob=false"];
    for gates in each.chain(several.map(str::to_owned)) {
        let pairs: Vec<_> = gates.split(',').map(|pair| (String::new(), pair.to_owned())).collect();
        let errors = FeatureGates::resolve(&[], &[], &pairs).errors;
        let started = options(&[&format!("--feature-gates={gates}")]);
        assert_eq!(started.is_ok(), errors.is_empty(), "{gates}: {errors:?}");
    }
}
