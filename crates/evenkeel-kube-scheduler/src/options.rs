//! Options of the program, read from its flags.

use crate::config::{GoDuration, KubeSchedulerConfiguration, LeaderElectionConfiguration};
use anyhow::{Context as _, Result};
use evenkeel_component::{
    command_line,
    features::FeatureGates,
    flags::{Flags, InvalidFlags, ParsedFlags, Reader},
    options::{
        ClientOptions, LeaderElectionOptions, LoggingOptions, MetricsOptions, ServingOptions,
    },
};
use evenkeel_scheduler::plugins::inert::INERT;
use std::{sync::Arc, time::Duration};

/// Returns the flags of upstream's kube-scheduler v1.37.
pub(super) fn flags() -> Flags {
    let words = include_str!("../data/words.tsv");
    Flags::from_table(include_str!("../data/flags.tsv"), words)
}

/// Validated options. The configuration file is read later, after the log has started.
///
/// Upstream: `Options` (cmd/kube-scheduler/app/options)
#[derive(Debug, Clone)]
pub(super) struct Options {
    /// Path of the configuration file (`--config`).
    file: Option<String>,
    /// Path of the file to which the program writes the configuration (`--write-config-to`).
    pub(super) write_to: Option<String>,
    /// The default configuration, changed by the flags that apply only without a file.
    default_configuration: KubeSchedulerConfiguration,
    /// Leader election flags that are set, with the values of all these flags.
    leader: Vec<(&'static str, LeaderElectionConfiguration)>,
    pub(super) master: Option<String>,
    pub(super) logging: LoggingOptions,
    pub(super) metrics: MetricsOptions,
    pub(super) serving: ServingOptions,
    pub(super) pod_max_in_unschedulable_pods: Duration,
    pub(super) gates: Arc<FeatureGates>,
    pub(super) parsed_flags: ParsedFlags,
    /// Warnings to log at start.
    pub(super) warnings: Vec<String>,
}

impl Options {
    /// Validates the flags and reads the options.
    ///
    /// # Errors
    /// Returns the errors of all invalid flags.
    pub(super) fn check(parsed: ParsedFlags) -> Result<Self, InvalidFlags> {
        let read = Reader::new(parsed);
        let (gates, mut warnings) = FeatureGates::resolve(
            &read.list("emulated-version"),
            &read.list("min-compatibility-version"),
            &read.map("feature-gates"),
        )
        .record_errors(&read);
        warnings.extend(inert_plugin_warnings(&gates));
        let serving = ServingOptions::from_flags(&read, &gates);
        warnings.extend(serving.warnings());
        let options = Self {
            file: read.non_empty_text("config"),
            write_to: read.non_empty_text("write-config-to"),
            default_configuration: default_configuration(&read, &gates),
            leader: leader(&read),
            master: read.non_empty_text("master"),
            logging: LoggingOptions::from_flags(&read, &gates),
            metrics: MetricsOptions::from_flags(&read),
            serving,
            pod_max_in_unschedulable_pods: read.duration("pod-max-in-unschedulable-pods-duration"),
            gates,
            parsed_flags: read.parsed().clone(),
            warnings,
        };
        let unimplemented = read.unimplemented_flags();
        read.done()?;
        let mut options = options;
        options.warnings.extend(command_line::warnings(&options.parsed_flags, &unimplemented));
        options.warnings.extend(options.ignored_flags());
        Ok(options)
    }

    /// Returns warnings about flags on the command line that have no effect together with `--config`.
    fn ignored_flags(&self) -> Vec<String> {
        let with_file = |flag: &&str| self.file.is_some() && DEPRECATED.contains(flag);
        let ignored = self.parsed_flags.names().filter(with_file);
        ignored.map(|flag| format!("--{flag} is not used beside --config")).collect()
    }

    /// Returns the validated configuration from the file and the flags.
    ///
    /// Upstream: `ApplyTo`.
    ///
    /// # Errors
    /// If the file cannot be read or the configuration is invalid.
    pub(super) fn configuration(&self) -> Result<KubeSchedulerConfiguration> {
        let mut config = match &self.file {
            Some(path) => {
                let text = std::fs::read_to_string(path).with_context(|| format!("open {path}"))?;
                KubeSchedulerConfiguration::parse(&text, &self.gates)?
            }
            None => self.default_configuration.clone(),
        };
        for (flag, values) in &self.leader {
            override_leader_election(&mut config.leader_election, flag, values);
        }
        config.validate(&self.gates)?;
        config.ignore_extender_resources();
        Ok(config)
    }

    /// Returns the options of the connection to the API server.
    pub(super) fn client(&self, config: &KubeSchedulerConfiguration) -> ClientOptions {
        let connection = &config.client_connection;
        ClientOptions {
            kubeconfig: Some(connection.kubeconfig.clone()).filter(|path| !path.is_empty()),
            master: self.master.clone(),
            qps: connection.qps,
            burst: u32::try_from(connection.burst).unwrap_or_default(),
            json: ClientOptions::asks_for_json(
                &connection.accept_content_types,
                &connection.content_type,
            ),
            own_credentials: false,
        }
    }
}

/// Returns the leader election options of a configuration.
pub(super) fn leader_options(election: &LeaderElectionConfiguration) -> LeaderElectionOptions {
    LeaderElectionOptions {
        elect: election.leader_elect.unwrap_or(true),
        lease_duration: election.lease_duration.duration(),
        renew_deadline: election.renew_deadline.duration(),
        retry_period: election.retry_period.duration(),
        name: election.resource_name.clone(),
        namespace: election.resource_namespace.clone(),
    }
}

/// Flags that apply only without `--config`, because the configuration has fields for them.
///
/// Upstream: `DeprecatedOptions`.
const DEPRECATED: [&str; 6] = [
    "profiling",
    "contention-profiling",
    "kubeconfig",
    "kube-api-content-type",
    "kube-api-qps",
    "kube-api-burst",
];

/// Returns warnings about enabled feature gates whose plugins have no effect here.
fn inert_plugin_warnings(gates: &FeatureGates) -> impl Iterator<Item = String> {
    let enabled = INERT.iter().filter(|(_, gate)| gates.enabled(gate));
    enabled.map(|(plugin, gate)| {
        format!("feature gate {gate} is accepted, but the plugin {plugin} has no effect here")
    })
}

/// Returns the default configuration, changed by the deprecated flags. It reads all of them, so none counts as
/// unimplemented.
fn default_configuration(read: &Reader, gates: &FeatureGates) -> KubeSchedulerConfiguration {
    let mut config = KubeSchedulerConfiguration::defaults(gates);
    config.enable_profiling = Some(read.bool("profiling"));
    config.enable_contention_profiling = Some(read.bool("contention-profiling"));
    let client = &mut config.client_connection;
    client.kubeconfig = read.text("kubeconfig");
    client.content_type = read.text("kube-api-content-type");
    client.qps = read.float("kube-api-qps") as f32;
    client.burst = i32::try_from(read.int("kube-api-burst")).unwrap_or_default();
    config
}

/// Returns each leader election flag that is set, with the values of all these flags.
fn leader(read: &Reader) -> Vec<(&'static str, LeaderElectionConfiguration)> {
    let span =
        |flag: &str| GoDuration(i64::try_from(read.duration(flag).as_nanos()).unwrap_or(i64::MAX));
    let all = LeaderElectionConfiguration {
        leader_elect: Some(read.bool("leader-elect")),
        lease_duration: span("leader-elect-lease-duration"),
        renew_deadline: span("leader-elect-renew-deadline"),
        retry_period: span("leader-elect-retry-period"),
        resource_lock: read.text("leader-elect-resource-lock"),
        resource_name: read.text("leader-elect-resource-name"),
        resource_namespace: read.text("leader-elect-resource-namespace"),
    };
    let set_flags = read.parsed().names().filter(|name| name.starts_with("leader-elect"));
    set_flags.map(|name| (name, all.clone())).collect()
}

/// Overrides the field of the configuration that corresponds to a leader election flag.
fn override_leader_election(
    to: &mut LeaderElectionConfiguration,
    flag: &str,
    values: &LeaderElectionConfiguration,
) {
    match flag {
        "leader-elect" => to.leader_elect = values.leader_elect,
        "leader-elect-lease-duration" => to.lease_duration = values.lease_duration,
        "leader-elect-renew-deadline" => to.renew_deadline = values.renew_deadline,
        "leader-elect-retry-period" => to.retry_period = values.retry_period,
        "leader-elect-resource-lock" => to.resource_lock.clone_from(&values.resource_lock),
        "leader-elect-resource-name" => to.resource_name.clone_from(&values.resource_name),
        _ => to.resource_namespace.clone_from(&values.resource_namespace),
    }
}
