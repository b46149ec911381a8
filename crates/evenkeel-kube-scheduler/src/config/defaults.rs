//! Upstream's defaults of the configuration (`pkg/scheduler/apis/config/v1/defaults.go`).

use super::{
    GROUP, GoDuration, KubeSchedulerConfiguration, KubeSchedulerProfile, PluginConfig, Plugins,
    args, plugins,
};
use evenkeel_component::features::FeatureGates;
use serde_json::Value;

impl KubeSchedulerConfiguration {
    /// Sets the defaults of unset fields.
    pub(super) fn set_defaults(&mut self, gates: &FeatureGates) {
        "KubeSchedulerConfiguration".clone_into(&mut self.kind);
        GROUP.clone_into(&mut self.api_version);
        self.parallelism.get_or_insert(16);
        if self.profiles.is_empty() {
            self.profiles.push(KubeSchedulerProfile::default());
        }
        // Several profiles must each set their own name.
        if let [profile] = self.profiles.as_mut_slice() {
            profile
                .scheduler_name
                .get_or_insert_with(|| evenkeel_scheduler::DEFAULT_SCHEDULER.to_owned());
        }
        self.profiles.iter_mut().for_each(|profile| profile.set_defaults(gates));
        self.percentage_of_nodes_to_score.get_or_insert(0);
        self.set_leader_election_defaults();
        let client = &mut self.client_connection;
        if client.content_type.is_empty() {
            "application/vnd.kubernetes.protobuf".clone_into(&mut client.content_type);
        }
        if client.qps == 0.0 {
            client.qps = 50.0;
        }
        if client.burst == 0 {
            client.burst = 100;
        }
        self.pod_initial_backoff_seconds.get_or_insert(1);
        self.pod_max_backoff_seconds.get_or_insert(10);
        if *self.enable_profiling.get_or_insert(true) {
            self.enable_contention_profiling.get_or_insert(true);
        }
    }

    /// Replaces the resources that `NodeResourcesFit` ignores with those that only extenders manage. Like upstream, it does
    /// not merge the two.
    pub(crate) fn ignore_extender_resources(&mut self) {
        let managed = self.extenders.iter().flat_map(|extender| &extender.managed_resources);
        let ignored: Vec<&str> = managed
            .filter(|resource| resource.ignored_by_scheduler)
            .map(|resource| &*resource.name)
            .collect();
        if ignored.is_empty() {
            return;
        }
        let configs = self.profiles.iter_mut().flat_map(|profile| &mut profile.plugin_config);
        for config in configs.filter(|config| config.name == "NodeResourcesFit") {
            config.args["ignoredResources"] = ignored.as_slice().into();
        }
    }

    fn set_leader_election_defaults(&mut self) {
        let leader = &mut self.leader_election;
        leader.leader_elect.get_or_insert(true);
        for (text, default) in [
            (&mut leader.resource_lock, "leases"),
            (&mut leader.resource_namespace, "kube-system"),
            (&mut leader.resource_name, "kube-scheduler"),
        ] {
            if text.is_empty() {
                default.clone_into(text);
            }
        }
        for (duration, default_seconds) in [
            (&mut leader.lease_duration, 15),
            (&mut leader.renew_deadline, 10),
            (&mut leader.retry_period, 2),
        ] {
            if *duration == GoDuration(0) {
                *duration = GoDuration::from_seconds(default_seconds);
            }
        }
    }
}

impl KubeSchedulerProfile {
    /// Sets the default plugins, and the arguments of all enabled in-tree plugins.
    fn set_defaults(&mut self, gates: &FeatureGates) {
        self.plugins = Some(plugins::with_default_plugins(gates, self.plugins.take()));
        for config in &mut self.plugin_config {
            let configured = std::mem::take(&mut config.args);
            // The arguments of out-of-tree plugins stay as they are.
            config.args =
                args::with_defaults(&config.name, &configured, gates).unwrap_or(configured);
        }
        let enabled = self.plugins.as_ref().map(enabled_plugin_names).unwrap_or_default();
        for name in enabled {
            if self.plugin_config.iter().any(|config| config.name == name) {
                continue;
            }
            let args = args::with_defaults(&name, &Value::Null, gates);
            self.plugin_config.extend(args.map(|args| PluginConfig { name, args }));
        }
    }
}

/// Returns the names of all enabled plugins, sorted.
fn enabled_plugin_names(plugins: &Plugins) -> Vec<String> {
    let mut names: Vec<String> = plugins
        .0
        .iter()
        .filter(|(point, _)| point.as_str() != "podGroupPostFilter")
        .flat_map(|(_, set)| &set.enabled)
        .map(|plugin| plugin.name.clone())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}
