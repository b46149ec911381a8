//! The form in which the configuration is written.

use super::KubeSchedulerConfiguration;
use evenkeel_component::features::FeatureGates;

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
fn lists_change_the_default_plugins_in_place() {
    let config = parse(
        "profiles: [{plugins: {multiPoint: {enabled: [{name: Mine}, {name: NodeAffinity, weight: 7}], \
         disabled: [{name: ImageLocality, weight: 3}]}}}]",
    );
    let plugins = config.profiles[0].plugins.as_ref().unwrap().of("multiPoint");
    let names: Vec<(&str, i32)> =
        plugins.enabled.iter().map(|plugin| (&*plugin.name, plugin.weight)).collect();
    assert_eq!(names[5], ("NodeAffinity", 7));
    assert_eq!(names.last(), Some(&("Mine", 0)));
    assert!(!names.iter().any(|(name, _)| *name == "ImageLocality"));
    assert_eq!(plugins.disabled[0].weight, 0);
}

#[test]
fn text_is_quoted_where_it_must_be() {
    let config = parse("clientConnection: {kubeconfig: 'yes', acceptContentTypes: 'a: b'}");
    let yaml = config.to_yaml();
    assert!(
        yaml.contains("kubeconfig: \"yes\"") && yaml.contains("acceptContentTypes: \"a: b\""),
        "{yaml}"
    );
    assert_eq!(KubeSchedulerConfiguration::parse(&yaml, &FeatureGates::default()).unwrap(), config);
}

#[test]
fn resources_that_extenders_manage_are_ignored() {
    let mut config = parse(
        "extenders: [{urlPrefix: 'http://x', managedResources: [{name: a.b/c, ignoredByScheduler: true}, {name: a.b/d}]}]",
    );
    config.ignore_extender_resources();
    let args = &config.profiles[0].plugin_config;
    let fit = args.iter().find(|config| config.name == "NodeResourcesFit").unwrap();
    assert_eq!(fit.args["ignoredResources"], serde_json::json!(["a.b/c"]));
}
