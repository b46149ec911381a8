//! What the program's flags mean to it.

use super::config::{Configuration, LeaderElection, Span};
use crate::plugins::inert::INERT;
use anyhow::{Context as _, Result};
use evenkeel_component::{
    command_line,
    features::FeatureGates,
    flags::{Flags, Given, Problems, Reader},
    options::{ClientOptions, LeaderOptions, LoggingOptions, MetricsOptions, ServingOptions},
};
use std::{sync::Arc, time::Duration};

/// The flags of upstream's kube-scheduler v1.37.
pub(super) fn flags() -> Flags {
    let words = include_str!("../../data/words.tsv");
    Flags::from_table(include_str!("../../data/flags.tsv"), words)
}

/// Checked options. The configuration is read later, since that is told in the log.
#[derive(Debug, Clone)]
pub(super) struct Options {
    /// `--config`.
    file: Option<String>,
    pub(super) write_to: Option<String>,
    /// Changed by the flags that count without a file.
    standard: Configuration,
    /// The flags of the leader election that were given.
    leader: Vec<(&'static str, LeaderElection)>,
    pub(super) master: Option<String>,
    pub(super) logging: LoggingOptions,
    pub(super) metrics: MetricsOptions,
    pub(super) serving: ServingOptions,
    pub(super) pod_max_in_unschedulable_pods: Duration,
    pub(super) gates: Arc<FeatureGates>,
    pub(super) given: Given,
    /// What to tell the user when the log has started.
    pub(super) warnings: Vec<String>,
}

impl Options {
    /// Checks what was given.
    ///
    /// # Errors
    /// With all that is not allowed.
    pub(super) fn check(given: Given) -> Result<Self, Problems> {
        let read = Reader::new(given);
        let (gates, mut warnings) = FeatureGates::resolve(
            &read.list("emulated-version"),
            &read.list("min-compatibility-version"),
            &read.map("feature-gates"),
        )
        .settle(&read);
        warnings.extend(inert(&gates));
        let serving = ServingOptions::check(&read, &gates);
        warnings.extend(serving.warnings());
        let options = Self {
            file: read.path("config"),
            write_to: read.path("write-config-to"),
            standard: standard(&read, &gates),
            leader: leader(&read),
            master: read.path("master"),
            logging: LoggingOptions::check(&read, &gates),
            metrics: MetricsOptions::check(&read),
            serving,
            pod_max_in_unschedulable_pods: read.duration("pod-max-in-unschedulable-pods-duration"),
            gates,
            given: read.given().clone(),
            warnings,
        };
        let unread = read.unread();
        read.done()?;
        let mut options = options;
        options.warnings.extend(command_line::warnings(&options.given, &unread));
        options.warnings.extend(options.passed_over());
        Ok(options)
    }

    /// Flags that a file goes before.
    fn passed_over(&self) -> Vec<String> {
        let with_file = |flag: &&str| self.file.is_some() && DEPRECATED.contains(flag);
        let given = self.given.names().filter(with_file);
        given.map(|flag| format!("--{flag} is not used beside --config")).collect()
    }

    /// The configuration that the file and the flags ask for, complete and checked.
    ///
    /// # Errors
    /// When the file cannot be read, or something is not allowed.
    pub(super) fn configuration(&self) -> Result<Configuration> {
        let mut config = match &self.file {
            Some(path) => {
                let text = std::fs::read_to_string(path).with_context(|| format!("open {path}"))?;
                Configuration::parse(&text, &self.gates)?
            }
            None => self.standard.clone(),
        };
        for (flag, given) in &self.leader {
            overrule(&mut config.leader_election, flag, given);
        }
        config.check(&self.gates)?;
        config.leave_to_extenders();
        Ok(config)
    }

    /// How to reach the API server.
    pub(super) fn client(&self, config: &Configuration) -> ClientOptions {
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

/// When the program may lead.
pub(super) fn leader_options(election: &LeaderElection) -> LeaderOptions {
    LeaderOptions {
        elect: election.leader_elect.unwrap_or(true),
        lease_duration: election.lease_duration.duration(),
        renew_deadline: election.renew_deadline.duration(),
        retry_period: election.retry_period.duration(),
        name: election.resource_name.clone(),
        namespace: election.resource_namespace.clone(),
    }
}

/// Flags with fields in the configuration that count only without a file.
const DEPRECATED: [&str; 6] = [
    "profiling",
    "contention-profiling",
    "kubeconfig",
    "kube-api-content-type",
    "kube-api-qps",
    "kube-api-burst",
];

/// The configuration without a file. All of these flags are asked for, so that all count as having something behind them.
/// What to tell of plugins that gates have on and that do nothing here.
fn inert(gates: &FeatureGates) -> impl Iterator<Item = String> {
    let on = INERT.iter().filter(|(_, gate)| gates.enabled(gate));
    on.map(|(plugin, gate)| {
        format!("feature gate {gate} is accepted, but the plugin {plugin} has no effect here")
    })
}

fn standard(read: &Reader, gates: &FeatureGates) -> Configuration {
    let mut config = Configuration::standard(gates);
    config.enable_profiling = Some(read.bool("profiling"));
    config.enable_contention_profiling = Some(read.bool("contention-profiling"));
    let client = &mut config.client_connection;
    client.kubeconfig = read.text("kubeconfig");
    client.content_type = read.text("kube-api-content-type");
    client.qps = read.float("kube-api-qps") as f32;
    client.burst = i32::try_from(read.int("kube-api-burst")).unwrap_or_default();
    config
}

fn leader(read: &Reader) -> Vec<(&'static str, LeaderElection)> {
    let span = |flag: &str| Span(i64::try_from(read.duration(flag).as_nanos()).unwrap_or(i64::MAX));
    let all = LeaderElection {
        leader_elect: Some(read.bool("leader-elect")),
        lease_duration: span("leader-elect-lease-duration"),
        renew_deadline: span("leader-elect-renew-deadline"),
        retry_period: span("leader-elect-retry-period"),
        resource_lock: read.text("leader-elect-resource-lock"),
        resource_name: read.text("leader-elect-resource-name"),
        resource_namespace: read.text("leader-elect-resource-namespace"),
    };
    let given = read.given().names().filter(|name| name.starts_with("leader-elect"));
    given.map(|name| (name, all.clone())).collect()
}

fn overrule(to: &mut LeaderElection, flag: &str, given: &LeaderElection) {
    match flag {
        "leader-elect" => to.leader_elect = given.leader_elect,
        "leader-elect-lease-duration" => to.lease_duration = given.lease_duration,
        "leader-elect-renew-deadline" => to.renew_deadline = given.renew_deadline,
        "leader-elect-retry-period" => to.retry_period = given.retry_period,
        "leader-elect-resource-lock" => to.resource_lock.clone_from(&given.resource_lock),
        "leader-elect-resource-name" => to.resource_name.clone_from(&given.resource_name),
        _ => to.resource_namespace.clone_from(&given.resource_namespace),
    }
}
