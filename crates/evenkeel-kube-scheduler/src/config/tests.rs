//! Tests of the YAML form of the configuration and of its defaults.

use super::KubeSchedulerConfiguration;
use evenkeel_component::features::FeatureGates;

/// Parses a configuration with these fields besides `apiVersion` and `kind`.
fn parse(rest: &str) -> KubeSchedulerConfiguration {
    let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration";
    KubeSchedulerConfiguration::parse(&format!("{head}\n{rest}\n"), &FeatureGates::default())
        .unwrap()
}

#[test]
fn the_default_is_written_as_upstream_writes_it() {
    let config = parse("clientConnection: {kubeconfig: kc}");
    assert_eq!(config.with_used_args().to_yaml(), include_str!("../../data/configuration.yaml"));
}

#[test]
fn a_profiles_lists_override_default_plugins_in_place() {
    let config = parse(
        "profiles: [{plugins: {multiPoint: {enabled: [{name: Mine}, {name: NodeAffinity, weight: 7}], \
         disabled: [{name: ImageLocality, weight: 3}]}}}]",
    );
    let plugins = config.profiles[0].plugins.as_ref().unwrap().at_point("multiPoint");
    let names: Vec<(&str, i32)> =
        plugins.enabled.iter().map(|plugin| (&*plugin.name, plugin.weight)).collect();
    assert_eq!(names[5], ("NodeAffinity", 7));
    assert_eq!(names.last(), Some(&("Mine", 0)));
    assert!(!names.iter().any(|(name, _)| *name == "ImageLocality"));
    assert_eq!(plugins.disabled[0].weight, 0);
}

#[test]
fn text_is_quoted_if_yaml_would_read_another_value() {
    let config = parse("clientConnection: {kubeconfig: 'yes', acceptContentTypes: 'a: b'}");
    let yaml = config.to_yaml();
    assert!(
        yaml.contains("kubeconfig: \"yes\"") && yaml.contains("acceptContentTypes: \"a: b\""),
        "{yaml}"
    );
    assert_eq!(KubeSchedulerConfiguration::parse(&yaml, &FeatureGates::default()).unwrap(), config);
}

#[test]
fn node_resources_fit_ignores_resources_that_only_extenders_manage() {
    let mut config = parse(
        "extenders: [{urlPrefix: 'http://x', managedResources: [{name: a.b/c, ignoredByScheduler: true}, {name: a.b/d}]}]",
    );
    config.ignore_extender_resources();
    let args = &config.profiles[0].plugin_config;
    let fit = args.iter().find(|config| config.name == "NodeResourcesFit").unwrap();
    assert_eq!(fit.args["ignoredResources"], serde_json::json!(["a.b/c"]));
}

/// All profiles share one queue, so its plugin has one set of arguments.
#[test]
fn the_queue_sort_plugin_has_the_same_arguments_in_all_profiles() {
    let profile = |name: &str, args: &str| {
        format!(
            "- {{schedulerName: {name}, plugins: {{queueSort: {{enabled: [{{name: Mine}}], \
             disabled: [{{name: '*'}}]}}}}, pluginConfig: [{{name: Mine, args: {args}}}]}}\n"
        )
    };
    for (second, is_valid) in [("{by: cost}", true), ("{by: age}", false)] {
        let profiles = profile("a", "{by: cost}") + &profile("b", second);
        let config = parse(&format!("clientConnection: {{kubeconfig: kc}}\nprofiles:\n{profiles}"));
        let errors =
            config.validate(&FeatureGates::default()).err().map(|errors| errors.to_string());
        let has_error = errors.as_ref().is_some_and(|errors| {
            errors.contains("profiles[1].pluginConfig.args")
                && errors.contains("queueSort must be the same for all profiles")
        });
        assert_eq!(has_error, !is_valid, "{errors:?}");
    }
}
