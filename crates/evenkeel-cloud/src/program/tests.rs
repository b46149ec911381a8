//! Tests of the options that the program accepts and rejects, and of the registry of providers.

use super::{NAME, Options, ProviderOptions, ProviderRegistry, flags};
use evenkeel_component::flags::Invocation;
use std::time::Duration;

fn options(arguments: &[&str]) -> Result<Options, String> {
    let arguments = arguments.iter().map(|argument| (*argument).to_owned());
    match flags().parse(NAME, arguments).map_err(|error| error.to_string())? {
        Invocation::Run(parsed) => Options::check(parsed).map_err(|invalid| invalid.to_string()),
        other => panic!("not to run: {other:?}"),
    }
}

#[test]
fn flag_defaults_equal_upstreams() {
    let options = options(&["--cloud-provider=ip-pool"]).unwrap();
    assert_eq!((options.serving.port, &*options.leader.name), (10258, "cloud-controller-manager"));
    let defaults = crate::Options::default();
    assert_eq!(options.cloud, defaults);
    let names: Vec<&str> = options.enabled.iter().map(|d| d.name).collect();
    assert_eq!(
        names,
        [
            "cloud-node-controller",
            "cloud-node-lifecycle-controller",
            "node-route-controller",
            "service-lb-controller"
        ]
    );
    assert_eq!(options.warnings, Vec::<String>::new());
    for flag in flags().iter() {
        assert!(!flag.description.is_empty(), "--{} has a description", flag.name);
    }
}

#[test]
fn flags_reach_the_controllers() {
    let options = options(&[
        "--cloud-provider=ip-pool",
        "--controllers=*,-route,-cloud-node-lifecycle-controller",
        "--concurrent-node-status-updates=7",
        "--concurrent-service-syncs=3",
        "--node-monitor-period=9s",
        "--cluster-cidr=10.0.0.0/16,fd00::/64",
        "--feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation=true",
        "--load-balancer-pool=198.18.0.0/24",
    ])
    .unwrap();
    let names: Vec<&str> = options.enabled.iter().map(|d| d.name).collect();
    assert_eq!(names, ["cloud-node-controller", "service-lb-controller"]);
    let cloud = &options.cloud;
    assert_eq!((cloud.node_workers, cloud.service_workers, cloud.watch_routes), (7, 3, true));
    assert_eq!(cloud.node_monitor_period, Duration::from_secs(9));
    assert_eq!(cloud.cluster_cidrs, ["10.0.0.0/16", "fd00::/64"]);
    assert_eq!(options.warnings, ["route is an old name of node-route-controller"]);
}

#[test]
fn invalid_flags_are_rejected() {
    for (arguments, why) in [
        (&[][..], "--cloud-provider cannot be empty"),
        (
            &["--cloud-provider=x", "--controllers=nonsense"],
            "\"nonsense\" is not in the list of known controllers",
        ),
        (
            &["--cloud-provider=x", "--concurrent-service-syncs=0"],
            "concurrent-service-syncs must be greater than 0",
        ),
        (
            &["--cloud-provider=x", "--concurrent-node-status-updates=-1"],
            "cannot be a negative number",
        ),
        (&["--no-such-flag"], "no-such-flag"),
    ] {
        let error = options(arguments).unwrap_err();
        assert!(error.contains(why), "{arguments:?}: {error}");
    }
}

#[test]
fn providers_are_built_by_name() {
    let init_provider = |name: &str, pool: Option<&str>| {
        let options = ProviderOptions { config: None, pool: pool.map(str::to_owned) };
        ProviderRegistry::builtin()
            .init_provider(name, &options)
            .map(|p| p.name().to_owned())
            .map_err(|e| e.to_string())
    };
    assert_eq!(init_provider("ip-pool", Some("198.18.0.0/24")), Ok("ip-pool".to_owned()));
    assert!(init_provider("ip-pool", None).is_err_and(|e| e.contains("--cloud-config")));
    assert!(init_provider("ip-pool", Some("here")).is_err_and(|e| e.contains("\"here\"")));
    assert!(init_provider("gce", None).is_err_and(|e| e.contains("known are ip-pool")));
}

#[test]
fn all_alpha_and_all_beta_are_accepted() {
    for gates in
        ["AllAlpha=true", "AllBeta=true", "AllBeta=false", "AllAlpha=true,ComponentFlagz=false"]
    {
        let given = format!("--feature-gates={gates}");
        assert!(options(&["--cloud-provider=ip-pool", &given]).is_ok(), "{gates}");
    }
}

#[test]
fn what_has_no_effect_is_reported_unless_it_has_none_upstream() {
    let table: [(&str, &[&str]); 4] = [
        (
            "--feature-gates=CloudControllerManagerWebhook=true",
            &[
                "the feature gate CloudControllerManagerWebhook=true is accepted, but has no effect here: ",
            ],
        ),
        ("--feature-gates=WatchListClient=false", &[]),
        ("--external-cloud-volume-plugin=a", &[]),
        ("--contention-profiling", &["--contention-profiling is accepted, but has no effect here"]),
    ];
    for (argument, expected) in table {
        let warnings = options(&["--cloud-provider=ip-pool", argument]).expect(argument).warnings;
        assert_eq!(warnings.len(), expected.len(), "{argument}: {warnings:?}");
        for (warning, begin) in warnings.iter().zip(expected) {
            assert!(warning.starts_with(begin), "{warning}");
        }
    }
    let options = options(&["--cloud-provider=ip-pool", "--min-resync-period=1h"]).expect("valid");
    assert_eq!(options.min_resync_period, Duration::from_secs(3600));
}
