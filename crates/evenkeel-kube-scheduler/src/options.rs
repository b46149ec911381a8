//! Options of the program, read from its flags.

use crate::config::{GoDuration, KubeSchedulerConfiguration, LeaderElectionConfiguration};
use crate::console;
use anyhow::{Context as _, Result};
use evenkeel_component::{
    command_line,
    features::{FeatureGates, Program},
    flags::{Flags, InvalidFlags, ParsedFlags, Reader, Value},
    options::{
        ClientOptions, LeaderElectionOptions, LoggingOptions, MetricsOptions, ServingOptions,
    },
};
use std::{net::SocketAddr, sync::Arc, time::Duration};

/// Returns the flags of upstream's kube-scheduler v1.37, and this program's own.
pub(super) fn flags() -> Flags {
    let words = include_str!("../data/words.tsv");
    console::with_flags(Flags::from_table(include_str!("../data/flags.tsv"), words))
}

/// Validated options. The configuration file is read later, after the log has started.
///
/// Upstream: `Options` (cmd/kube-scheduler/app/options)
#[derive(Debug, Clone)]
pub(super) struct Options {
    /// Path of the configuration file (`--config`).
    pub(super) config_file: Option<String>,
    /// Path of the file to which the program writes the configuration (`--write-config-to`).
    pub(super) write_config_to: Option<String>,
    /// The default configuration, changed by the flags that apply only without a file.
    default_configuration: KubeSchedulerConfiguration,
    /// Leader election flags that are set, with the values of all these flags.
    set_leader_flags: Vec<(&'static str, LeaderElectionConfiguration)>,
    pub(super) master: Option<String>,
    pub(super) logging: LoggingOptions,
    pub(super) metrics: MetricsOptions,
    pub(super) serving: ServingOptions,
    pub(super) pod_max_in_unschedulable_pods: Duration,
    /// Address of the console. `None` serves none.
    pub(super) console: Option<SocketAddr>,
    pub(super) gates: Arc<FeatureGates>,
    pub(super) parsed_flags: ParsedFlags,
    /// Warnings to log at start.
    pub(super) warnings: Vec<String>,
    /// Flags on the command line that are accepted without an effect. `warnings` has a sentence about each.
    pub(super) without_effect: Vec<&'static str>,
}

impl Options {
    /// Validates the flags and reads the options.
    ///
    /// # Errors
    /// Returns the errors of all invalid flags.
    pub(super) fn check(parsed: ParsedFlags) -> Result<Self, InvalidFlags> {
        let reader = Reader::new(parsed);
        let (gates, mut warnings) = FeatureGates::resolve(
            &reader.list("emulated-version"),
            &reader.list("min-compatibility-version"),
            &reader.map("feature-gates"),
        )
        .record_errors(&reader);
        warnings.extend(gates.warnings(Program::KubeScheduler));
        let serving = ServingOptions::from_flags(&reader, &gates);
        warnings.extend(serving.warnings());
        let options = Self {
            config_file: reader.non_empty_text("config"),
            write_config_to: reader.non_empty_text("write-config-to"),
            default_configuration: default_configuration(&reader, &gates),
            set_leader_flags: set_leader_flags(&reader),
            master: reader.non_empty_text("master"),
            logging: LoggingOptions::from_flags(&reader, &gates),
            metrics: MetricsOptions::from_flags(&reader),
            serving,
            pod_max_in_unschedulable_pods: reader
                .duration("pod-max-in-unschedulable-pods-duration"),
            console: console::address(&reader),
            gates,
            parsed_flags: reader.parsed().clone(),
            warnings,
            without_effect: Vec::new(),
        };
        let unimplemented = reader.unimplemented_flags();
        reader.done()?;
        let mut options = options;
        options.warnings.extend(command_line::warnings(&options.parsed_flags, &unimplemented));
        options.warnings.extend(options.ignored_flags());
        // The flag is deprecated, which says nothing about its effect.
        if options.parsed_flags.value("contention-profiling") == Some(Value::Bool(true))
            && options.parsed_flags.names().any(|name| name == "contention-profiling")
        {
            options
                .warnings
                .push("--contention-profiling is accepted, but has no effect here".into());
        }
        let is_deprecated =
            |flag: &str| options.parsed_flags.deprecated().any(|(name, _)| name == flag);
        options.without_effect =
            unimplemented.into_iter().filter(|flag| !is_deprecated(flag)).collect();
        Ok(options)
    }

    /// Returns warnings about flags on the command line that have no effect together with `--config`.
    fn ignored_flags(&self) -> Vec<String> {
        let is_ignored =
            |flag: &&str| self.config_file.is_some() && FLAGS_WITHOUT_FILE.contains(flag);
        let ignored = self.parsed_flags.names().filter(is_ignored);
        ignored.map(|flag| format!("--{flag} is not used beside --config")).collect()
    }

    /// Returns the validated configuration from the file and the flags.
    ///
    /// Upstream: `ApplyTo`.
    ///
    /// # Errors
    /// Fails if the file cannot be read or the configuration is invalid.
    pub(super) fn configuration(&self) -> Result<KubeSchedulerConfiguration> {
        let read =
            |path: &String| std::fs::read_to_string(path).with_context(|| format!("open {path}"));
        let text = self.config_file.as_ref().map(read).transpose()?;
        self.configuration_from(text.as_deref())
    }

    /// Returns the validated configuration from the content of the file, if there is one, and the flags.
    ///
    /// # Errors
    /// Fails if the configuration is invalid.
    pub(super) fn configuration_from(
        &self,
        text: Option<&str>,
    ) -> Result<KubeSchedulerConfiguration> {
        let mut config = match text {
            Some(text) => KubeSchedulerConfiguration::parse(text, &self.gates)?,
            None => self.default_configuration.clone(),
        };
        for (flag, values) in &self.set_leader_flags {
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
            for_users: self.console.is_some(),
        }
    }
}

/// Returns the leader election options of a configuration.
pub(super) fn leader_options(election: &LeaderElectionConfiguration) -> LeaderElectionOptions {
    LeaderElectionOptions {
        elect: election.leader_elect.unwrap_or(true),
        lease_duration: election.lease_duration.to_duration(),
        renew_deadline: election.renew_deadline.to_duration(),
        retry_period: election.retry_period.to_duration(),
        name: election.resource_name.clone(),
        namespace: election.resource_namespace.clone(),
    }
}

/// Flags that apply only without `--config`, because the configuration has fields for them.
///
/// Upstream: `DeprecatedOptions`.
const FLAGS_WITHOUT_FILE: [&str; 6] = [
    "profiling",
    "contention-profiling",
    "kubeconfig",
    "kube-api-content-type",
    "kube-api-qps",
    "kube-api-burst",
];

/// Returns the default configuration, changed by the deprecated flags. It reads all of them, so none counts as
/// unimplemented.
fn default_configuration(reader: &Reader, gates: &FeatureGates) -> KubeSchedulerConfiguration {
    let mut config = KubeSchedulerConfiguration::defaults(gates);
    config.enable_profiling = Some(reader.bool("profiling"));
    config.enable_contention_profiling = Some(reader.bool("contention-profiling"));
    let client = &mut config.client_connection;
    client.kubeconfig = reader.text("kubeconfig");
    client.content_type = reader.text("kube-api-content-type");
    client.qps = reader.float("kube-api-qps") as f32;
    client.burst = i32::try_from(reader.int("kube-api-burst")).unwrap_or_default();
    config
}

/// Returns each leader election flag that is set, with the values of all these flags.
fn set_leader_flags(reader: &Reader) -> Vec<(&'static str, LeaderElectionConfiguration)> {
    let duration = |flag: &str| {
        GoDuration(i64::try_from(reader.duration(flag).as_nanos()).unwrap_or(i64::MAX))
    };
    let values = LeaderElectionConfiguration {
        leader_elect: Some(reader.bool("leader-elect")),
        lease_duration: duration("leader-elect-lease-duration"),
        renew_deadline: duration("leader-elect-renew-deadline"),
        retry_period: duration("leader-elect-retry-period"),
        resource_lock: reader.text("leader-elect-resource-lock"),
        resource_name: reader.text("leader-elect-resource-name"),
        resource_namespace: reader.text("leader-elect-resource-namespace"),
    };
    let set_flags = reader.parsed().names().filter(|name| name.starts_with("leader-elect"));
    set_flags.map(|name| (name, values.clone())).collect()
}

/// Overrides the field of the configuration that corresponds to a leader election flag.
fn override_leader_election(
    config: &mut LeaderElectionConfiguration,
    flag: &str,
    values: &LeaderElectionConfiguration,
) {
    match flag {
        "leader-elect" => config.leader_elect = values.leader_elect,
        "leader-elect-lease-duration" => config.lease_duration = values.lease_duration,
        "leader-elect-renew-deadline" => config.renew_deadline = values.renew_deadline,
        "leader-elect-retry-period" => config.retry_period = values.retry_period,
        "leader-elect-resource-lock" => config.resource_lock.clone_from(&values.resource_lock),
        "leader-elect-resource-name" => config.resource_name.clone_from(&values.resource_name),
        _ => config.resource_namespace.clone_from(&values.resource_namespace),
    }
}
