//! Options of the kube-controller-manager.

mod about;
mod choice;
mod configz;
mod limits;

pub use about::{command_line, from_arguments};
pub use choice::{Choice, KnownController, known_controllers};
pub use configz::configz;

use crate::console;
use evenkeel_component::{
    command_line,
    features::{FeatureGates, Program},
    flags::{Flags, InvalidFlags, ParsedFlags, Reader},
    migration::Migration,
    options::{
        ClientOptions, LeaderElectionOptions, LoggingOptions, MetricsOptions, ServingOptions,
    },
};
use evenkeel_controllers::options as controllers;
use std::{net::SocketAddr, sync::Arc, time::Duration};

/// Name of the program.
const NAME: &str = "kube-controller-manager";

/// Returns the flags: those of upstream's kube-controller-manager v1.37, and this program's own.
pub fn flags() -> Flags {
    let words = include_str!("../../data/words.tsv");
    let flags = Flags::from_table(include_str!("../../data/flags.tsv"), words)
        .with_own(include_str!("../../data/own.tsv"), words);
    console::with_flags(flags).with_deprecated(include_str!("../../data/retired.tsv"))
}

/// Flags without an effect in upstream's program either: it has no cloud controllers any more. Their values are checked.
const INERT: [&str; 7] = [
    "cidr-allocator-type",
    "cloud-config",
    "cloud-provider",
    "cluster-name",
    "configure-cloud-routes",
    "external-cloud-volume-plugin",
    "route-reconciliation-period",
];

/// Validated options of the program.
#[derive(Debug, Clone)]
pub struct Options {
    /// Options of the connection to the API server.
    pub client: ClientOptions,
    /// Address of the console (`--console-bind-address`). `None` serves none.
    pub(crate) console: Option<SocketAddr>,
    /// Controllers that `--controllers` enables.
    pub choice: Choice,
    /// Options of each controller.
    pub controllers: controllers::Options,
    /// Feature gates of the program.
    pub gates: Arc<FeatureGates>,
    /// Options of leader election.
    pub leader: LeaderElectionOptions,
    /// Leader migration. `None` if it is disabled.
    pub(crate) migration: Option<Migration>,
    /// Options of the log.
    pub logging: LoggingOptions,
    /// Options of metrics: hidden metrics, disabled metrics, and allowed label values.
    pub metrics: MetricsOptions,
    /// Least period after which caches send all objects to their handlers again (`--min-resync-period`).
    pub(crate) min_resync_period: Duration,
    /// Whether to print the planned writes and exit (`--plan`).
    pub plan: bool,
    /// Whether profiles are served (`--profiling`).
    pub profiling: bool,
    /// Path of the PEM file for `kube-root-ca.crt`. With `None`, it is the CA of the program's own connection.
    pub root_ca: Option<String>,
    /// Options of the secure port.
    pub serving: ServingOptions,
    /// Maximum time to wait until controllers stop (`--controller-shutdown-timeout`). Zero means no limit.
    pub shutdown_timeout: Duration,
    /// Start interval (`--controller-start-interval`): each controller starts between one and two intervals after its
    /// lease is acquired.
    pub start_interval: Duration,
    /// Warnings to log at the start.
    pub warnings: Vec<String>,
    /// Flags on the command line that are accepted without an effect. `warnings` has a sentence about each.
    pub without_effect: Vec<&'static str>,
    /// The parsed command line, for `/flagz`.
    pub(crate) parsed_flags: ParsedFlags,
}

impl Options {
    /// Reads and validates the flags.
    ///
    /// # Errors
    /// Returns the errors of all invalid values.
    pub fn check(parsed: ParsedFlags) -> Result<Self, InvalidFlags> {
        let read = Reader::new(parsed);
        let (gates, mut warnings) = FeatureGates::resolve(
            &read.list("emulated-version"),
            &read.list("min-compatibility-version"),
            &read.map("feature-gates"),
        )
        .record_errors(&read);
        warnings.extend(gates.warnings(Program::KubeControllerManager));
        let choice = Choice::from_flags(&read);
        limits::check(&read);
        read.mark_inert(&INERT);
        let serving = ServingOptions::from_flags(&read, &gates);
        warnings.extend(serving.warnings());
        warnings.extend(
            choice.old_names.iter().map(|(old, name)| format!("{old} is an old name of {name}")),
        );
        let leader = LeaderElectionOptions::from_flags(&read);
        let console = console::address(&read);
        let mut options = Self {
            client: ClientOptions {
                for_users: console.is_some(),
                ..ClientOptions::from_flags(&read)
            },
            console,
            choice,
            controllers: controllers::Options::read(&Source { read: &read, gates: &gates }),
            migration: Migration::from_flags(&read, NAME).filter(|_| leader.elect),
            leader,
            logging: LoggingOptions::from_flags(&read, &gates),
            metrics: MetricsOptions::from_flags(&read),
            min_resync_period: read.duration("min-resync-period"),
            plan: read.bool("plan"),
            profiling: read.bool("profiling"),
            root_ca: read.non_empty_text("root-ca-file"),
            serving,
            shutdown_timeout: read.duration("controller-shutdown-timeout"),
            start_interval: read.duration("controller-start-interval"),
            warnings,
            without_effect: without_effect(&read),
            gates,
            parsed_flags: read.parsed().clone(),
        };
        options
            .warnings
            .extend(command_line::warnings(&options.parsed_flags, &read.unimplemented_flags()));
        read.done()?;
        Ok(options)
    }
}

/// Returns the flags on the command line that have no effect. Deprecated ones are not among them.
fn without_effect(read: &Reader) -> Vec<&'static str> {
    let is_deprecated = |flag: &str| read.parsed().deprecated().any(|(name, _)| name == flag);
    read.unimplemented_flags().into_iter().filter(|flag| !is_deprecated(flag)).collect()
}

/// Source of the controllers' options: the flags and feature gates.
struct Source<'a> {
    read: &'a Reader,
    gates: &'a FeatureGates,
}

impl controllers::Flags for Source<'_> {
    fn bool(&self, flag: &str) -> bool {
        self.read.bool(flag)
    }
    fn int(&self, flag: &str) -> i64 {
        self.read.int(flag)
    }
    fn float(&self, flag: &str) -> f64 {
        self.read.float(flag)
    }
    fn duration(&self, flag: &str) -> Duration {
        self.read.duration(flag)
    }
    fn text(&self, flag: &str) -> String {
        self.read.text(flag)
    }
    fn list(&self, flag: &str) -> Vec<String> {
        self.read.list(flag)
    }
    fn positive(&self, flag: &str) -> usize {
        self.read.positive(flag)
    }
    fn enabled(&self, gate: &str) -> bool {
        self.gates.enabled(gate)
    }
    fn record_invalid(&self, flag: &str, message: String) {
        self.read.record_invalid(flag, message);
    }
}

#[cfg(test)]
mod tests;
