//! Options of the program, read from its flags.

use super::{NAME, providers::ProviderOptions};
use crate::{Descriptor, Options as CloudOptions, descriptors};
use evenkeel_component::{
    command_line,
    features::{FeatureGates, Program},
    flags::{Flags, InvalidFlags, ParsedFlags, Reader, duration},
    migration::Migration,
    options::{ClientOptions, LeaderElectionOptions, LoggingOptions, ServingOptions},
};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

/// Returns the flags: those of upstream's cloud-controller-manager v1.37 except for webhooks, and this
/// program's own.
pub(super) fn flags() -> Flags {
    let words = include_str!("../../data/words.tsv");
    Flags::from_table(include_str!("../../data/flags.tsv"), words)
        .with_own(include_str!("../../data/own.tsv"), words)
        .with_deprecated(include_str!("../../data/retired.tsv"))
}

/// Validated options of the program.
#[derive(Debug, Clone)]
pub(super) struct Options {
    pub(super) client: ClientOptions,
    pub(super) leader: LeaderElectionOptions,
    /// Leader migration to this program. `None` if it is disabled.
    pub(super) migration: Option<Migration>,
    pub(super) logging: LoggingOptions,
    pub(super) serving: ServingOptions,
    /// Controllers that `--controllers` enables.
    pub(super) enabled: Vec<Descriptor>,
    /// Options of the controllers.
    pub(super) cloud: CloudOptions,
    /// Value of `--cloud-provider`.
    pub(super) provider: String,
    pub(super) provider_options: ProviderOptions,
    pub(super) allow_untagged: bool,
    pub(super) start_interval: Duration,
    /// Least period after which caches send all objects to their handlers again.
    pub(super) min_resync_period: Duration,
    pub(super) profiling: bool,
    pub(super) gates: Arc<FeatureGates>,
    pub(super) parsed_flags: ParsedFlags,
    /// Warnings to log at the start.
    pub(super) warnings: Vec<String>,
}

impl Options {
    /// Reads and validates the flags.
    ///
    /// # Errors
    /// Fails with all invalid values.
    pub(super) fn check(parsed: ParsedFlags) -> Result<Self, InvalidFlags> {
        let read = Reader::new(parsed);
        let (gates, mut warnings) =
            FeatureGates::resolve_generic(&read.map("feature-gates")).record_errors(&read);
        warnings.extend(gates.warnings(Program::CloudControllerManager));
        let provider = read.text("cloud-provider");
        if provider.is_empty() {
            read.record_invalid("cloud-provider", "--cloud-provider cannot be empty");
        }
        let serving = ServingOptions::from_flags(&read, &gates);
        warnings.extend(serving.warnings());
        // Upstream's program accepts it without an effect too.
        read.mark_inert(&["external-cloud-volume-plugin"]);
        let leader = LeaderElectionOptions::from_flags(&read);
        let mut options = Self {
            client: ClientOptions::from_flags(&read),
            migration: Migration::from_flags(&read, NAME).filter(|_| leader.elect),
            leader,
            logging: LoggingOptions::from_flags(&read, &gates),
            serving,
            enabled: enabled_controllers(&read, &mut warnings),
            cloud: cloud_options(&read, &gates),
            provider,
            provider_options: ProviderOptions {
                config: read.non_empty_text("cloud-config").map(Into::into),
                pool: read.non_empty_text("load-balancer-pool"),
            },
            allow_untagged: read.bool("allow-untagged-cloud"),
            start_interval: read.duration("controller-start-interval"),
            min_resync_period: read.duration("min-resync-period"),
            profiling: read.bool("profiling"),
            parsed_flags: read.parsed().clone(),
            gates,
            warnings,
        };
        options
            .warnings
            .extend(command_line::warnings(&options.parsed_flags, &read.unimplemented_flags()));
        read.done()?;
        Ok(options)
    }

    /// Returns the document of `/configz`: the fields of upstream's configuration that have an effect here.
    pub(super) fn configz(&self) -> Value {
        let cloud = &self.cloud;
        json!({"componentconfig": {
            "KubeCloudShared": {
                "CloudProvider": {"Name": self.provider},
                "ClusterName": cloud.cluster,
                "ClusterCIDR": cloud.cluster_cidrs.join(","),
                "ConfigureCloudRoutes": cloud.configure_routes,
                "RouteReconciliationPeriod": duration::print(cloud.route_period),
            },
            "NodeController": {"ConcurrentNodeSyncs": cloud.node_workers},
            "NodeLifecycleController": {
                "ConcurrentNodeLifecycleSyncs": cloud.lifecycle_workers,
                "NodeMonitorPeriod": duration::print(cloud.node_monitor_period),
            },
            "ServiceController": {"ConcurrentServiceSyncs": cloud.service_workers},
            "NodeStatusUpdateFrequency": duration::print(cloud.node_status_period),
        }})
    }
}

/// Reads the options of the controllers.
fn cloud_options(read: &Reader, gates: &FeatureGates) -> CloudOptions {
    let workers = read.positive("concurrent-node-syncs");
    let updates = read.int("concurrent-node-status-updates");
    let updates = usize::try_from(updates).unwrap_or_else(|_| {
        let flag = "concurrent-node-status-updates";
        read.record_invalid(flag, format!("{flag} cannot be a negative number"));
        0
    });
    CloudOptions {
        cluster: read.text("cluster-name"),
        cluster_cidrs: read
            .text("cluster-cidr")
            .split(',')
            .filter(|text| !text.trim().is_empty())
            .map(|text| text.trim().to_owned())
            .collect(),
        configure_routes: read.bool("configure-cloud-routes"),
        route_period: read.duration("route-reconciliation-period"),
        watch_routes: gates.enabled("CloudControllerManagerWatchBasedRoutesReconciliation"),
        service_workers: read.positive("concurrent-service-syncs"),
        node_workers: workers.max(updates),
        node_status_period: read.duration("node-status-update-frequency"),
        lifecycle_workers: read.positive("concurrent-node-lifecycle-syncs"),
        node_monitor_period: read.duration("node-monitor-period"),
    }
}

/// Returns the controllers that `--controllers` enables. The first entry with the name of a controller decides; `*`
/// enables all controllers without an entry.
fn enabled_controllers(read: &Reader, warnings: &mut Vec<String>) -> Vec<Descriptor> {
    let (all, entries) = (descriptors(), read.list("controllers"));
    let mut unknown = Vec::new();
    let mut requested: Vec<(&'static str, bool)> = Vec::new();
    for entry in entries.iter().filter(|entry| *entry != "*") {
        let name = entry.strip_prefix('-').unwrap_or(entry);
        let found = all
            .iter()
            .find(|descriptor| descriptor.name == name || descriptor.aliases.contains(&name));
        match found {
            Some(found) => {
                requested.push((found.name, !entry.starts_with('-')));
                if found.name != name {
                    warnings.push(format!("{name} is an old name of {}", found.name));
                }
            }
            None => unknown.push(format!("{name:?} is not in the list of known controllers")),
        }
    }
    if !unknown.is_empty() {
        read.record_invalid("controllers", unknown.join(", "));
    }
    let enables_others = entries.iter().any(|entry| entry == "*");
    let mut enabled = all;
    enabled.retain(|descriptor| {
        let entry = requested.iter().find(|(name, _)| *name == descriptor.name);
        entry.map_or(enables_others, |(_, is_enabled)| *is_enabled)
    });
    enabled
}
