//! Drop-in replacement of `kube-scheduler`: command line, configuration file, secure port and leader election for the
//! library `evenkeel-scheduler`.
//!
//! This example is a scheduler with an out-of-tree plugin (upstream: `app.NewSchedulerCommand(app.WithPlugin(…))`):
//!
//! ```no_run
//! use evenkeel_kube_scheduler::Registry;
//! use evenkeel_scheduler::framework::Plugin;
//! use std::{process::ExitCode, sync::Arc};
//!
//! #[derive(Default, serde::Deserialize)]
//! struct Weekdays {
//!     closed: Vec<String>,
//! }
//! impl Plugin for Weekdays {
//!     fn name(&self) -> &'static str {
//!         "Weekdays"
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     // The plugin's arguments come from `pluginConfig` of the profile that enables it.
//!     let plugins = Registry::in_tree().with("Weekdays", |context| Ok(Arc::new(context.parse::<Weekdays>()?)));
//!     evenkeel_kube_scheduler::main(std::env::args().skip(1), &plugins)
//! }
//! ```

mod check;
pub mod config;
mod console;
mod options;
mod plugins;
mod profiles;
mod registry;
mod resources;
#[cfg(test)]
mod tests;

pub use check::{CheckedFlags, Configuration, check};
pub use registry::{PluginContext, PluginResult, Registry};

use anyhow::{Context as _, Result, bail};
use config::KubeSchedulerConfiguration;
use evenkeel_component::{
    command_line::{self, CommandLine},
    connection::RateFactors,
    features::{self, FeatureGates, Versions},
    flags::About,
    logging::{self, Log},
    options::TlsOptions,
    process::{Parts, Process, configure_caches},
    serving::{Checks, leader_election, supervised_tasks},
    worker::Worker,
};
use evenkeel_runtime::{
    cache::Caches,
    client::Client,
    clock::Clock,
    health::Health,
    leaderelection,
    manager::{Manager, RunnableGroup},
    tasks::{Supervisor, Tasks},
};
use evenkeel_scheduler::{
    METRICS_TABLE, SchedulerOptions, StandbyScheduler, extender,
    framework::{Extender, Profile},
};
use options::{Options, flags, leader_options};
use serde_json::json;
use std::{
    collections::BTreeMap,
    process::ExitCode,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Name of the program and of its lease, and the first part of its user agents.
const NAME: &str = "kube-scheduler";

/// Maximum time to wait until tasks stop when the program ends.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// Runs the program with these arguments, which do not include its name. Returns its exit code.
pub fn main(arguments: impl IntoIterator<Item = String>, plugins: &Registry) -> ExitCode {
    run_program(arguments.into_iter().collect(), plugins)
}

/// Runs the program. It is not generic, so that it compiles with this crate instead of each program that calls
/// [`main`].
fn run_program(arguments: Vec<String>, plugins: &Registry) -> ExitCode {
    let parsed = match command_line().read(arguments) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    let options = match Options::check(parsed) {
        Ok(options) => options,
        Err(invalid) => return command_line::report_invalid_flags(invalid),
    };
    let log = logging::start(&options.logging);
    command_line::run(&log, Worker::Eager, async {
        command_line::log_flags(&options.parsed_flags, &options.warnings, &log);
        let config = options.configuration()?;
        let profiles = profiles::build_profiles(&config, plugins, &options.gates)?;
        if log_or_write_config(&options, &config, &log)? {
            return Ok(ExitCode::SUCCESS);
        }
        run(&options, &config, plugins, profiles, &log).await
    })
}

/// Returns the program's command line: its flags and help.
pub fn command_line() -> CommandLine {
    let mut flag_values = BTreeMap::from(Versions::options());
    flag_values.insert("feature-gates", format!("Options are:\n{}", features::options()));
    flag_values.insert("tls-cipher-suites", TlsOptions::options());
    let description = "Finds a node for each pod that waits for one: the scheduler of Kubernetes v1.37, in the place of upstream's.";
    CommandLine { flags: flags(), about: About { name: NAME, description, notes: flag_values } }
}

/// Builds the profiles of a configuration with the default feature gates.
///
/// Upstream: `profile.NewMap`.
///
/// # Errors
/// Fails if the configuration is invalid.
pub fn profiles(text: &str, plugins: &Registry) -> Result<Vec<Profile>> {
    let gates = FeatureGates::default();
    let config = KubeSchedulerConfiguration::parse(text, &gates)?;
    config.validate(&gates)?;
    profiles::build_profiles(&config, plugins, &gates)
}

/// Builds the library's options of a configuration, for a scheduler without a program of its own. The configuration may have
/// no extenders.
///
/// # Errors
/// Fails if the configuration is invalid or has extenders.
pub fn library_options(
    text: &str,
    plugins: &Registry,
    gates: &FeatureGates,
) -> Result<SchedulerOptions> {
    let config = KubeSchedulerConfiguration::parse(text, gates)?;
    config.validate(gates)?;
    if !config.extenders.is_empty() {
        bail!("extenders: only the program kube-scheduler calls them");
    }
    let profiles = profiles::build_profiles(&config, plugins, gates)?;
    Ok(configured_options(&config, gates, profiles))
}

/// Returns the library's options of a configuration and of the feature gates.
fn configured_options(
    config: &KubeSchedulerConfiguration,
    gates: &FeatureGates,
    profiles: Vec<Profile>,
) -> SchedulerOptions {
    let duration = |seconds: Option<i64>| {
        Duration::from_secs(seconds.and_then(|n| u64::try_from(n).ok()).unwrap_or_default())
    };
    SchedulerOptions {
        pod_initial_backoff: duration(config.pod_initial_backoff_seconds),
        pod_max_backoff: duration(config.pod_max_backoff_seconds),
        pop_from_backoff_q: gates.enabled("SchedulerPopFromBackoffQ"),
        nominated_node_name_for_expectation: gates.enabled("NominatedNodeNameForExpectation"),
        pod_level_resources: gates.enabled("PodLevelResources"),
        pod_level_resize: gates.enabled("InPlacePodLevelResourcesVerticalScaling"),
        parallelism: config.parallelism.and_then(|n| usize::try_from(n).ok()).unwrap_or(1),
        profiles,
        ..SchedulerOptions::default()
    }
}

/// Logs the configuration at verbosity 2, and writes it to the file of `--write-config-to`. Returns whether the program
/// should end.
///
/// Upstream: `LogOrWriteConfig`.
fn log_or_write_config(
    options: &Options,
    config: &KubeSchedulerConfiguration,
    log: &Log,
) -> Result<bool> {
    if options.write_config_to.is_none() && log.verbosity() < 2 {
        return Ok(false);
    }
    let text = config.with_used_args().to_yaml();
    if log.verbosity() >= 2 {
        tracing::info!(config = text, "Using component config");
    }
    let Some(path) = &options.write_config_to else { return Ok(false) };
    std::fs::write(path, text).with_context(|| format!("--write-config-to: {path}"))?;
    tracing::info!(file = path, "Wrote configuration");
    Ok(true)
}

/// Runs the scheduler until the process ends.
async fn run(
    options: &Options,
    config: &KubeSchedulerConfiguration,
    plugins: &Registry,
    profiles: Vec<Profile>,
    log: &Log,
) -> Result<ExitCode> {
    let leader = leader_options(&config.leader_election);
    let coordinated = options.gates.enabled("CoordinatedLeaderElection");
    let election = leader.elect.then(|| leader.election()).transpose()?;
    // The secure port serves before the caches exist. Its health checks read `caches_to_sync`, and `/metrics/resources`
    // reads `leader_caches`, which are set when this process becomes the leader.
    let (caches_to_sync, leader_caches) = (Arc::new(OnceLock::new()), Arc::new(OnceLock::new()));
    let process = Process::open(Parts {
        name: NAME,
        parsed_flags: &options.parsed_flags,
        log,
        client: &options.client(config),
        gates: &options.gates,
        election: election.map(|election| leaderelection::Config { coordinated, ..election }),
        serving: &options.serving,
        metrics: &options.metrics,
        catalog: METRICS_TABLE,
        configz: json!({ "componentconfig": config.to_json() }),
        // Upstream's informers do not resync.
        min_resync_period: Duration::ZERO,
        profiling: config.enable_profiling.unwrap_or_default(),
        grace: SHUTDOWN_GRACE,
        own_pages: Some(Box::new(|manager, stopping, routes| {
            let checks = health_checks(manager, stopping, Arc::clone(&caches_to_sync));
            (resources::add_endpoint(routes, Arc::clone(&leader_caches)), checks)
        })),
    })
    .await?;
    let env = process.manager.env().clone();
    let delays_caches = config.delay_cache_until_active && leader.elect;
    let caches =
        if delays_caches { delayed_caches(&process, &options.gates) } else { env.caches.clone() };
    let client = env.client.with_user_agent("scheduler");
    console::serve(&process, options, config, plugins, &caches)?;
    // Scheduling waits for each call of an extender, so the reads for these calls have no rate limit.
    let unlimited_client = process.connection.unlimited().with_user_agent("extenders");
    let extenders = extender::set_up(&config.extenders, &unlimited_client, &caches)
        .context("couldn't build extenders")?;
    let extenders = extenders.into_iter().map(|extender| extender as Arc<dyn Extender>).collect();
    let inputs = SchedulerInputs {
        client,
        caches: caches.clone(),
        clock: env.clock,
        registry: process.registry.clone(),
        options: scheduler_options(options, config, profiles, extenders, &process),
        supervisor: process.manager.supervisor().clone(),
    };
    if delays_caches {
        process.manager.add(RunnableGroup::LeaderElection, "scheduler", |context| async move {
            let tasks = Tasks::under(context.token());
            let scheduler = inputs.create_scheduler();
            caches.start(&tasks);
            caches_to_sync.get_or_init(|| caches.clone());
            leader_caches.get_or_init(|| caches);
            scheduler.run(context.token()).await;
            tasks.join().await;
            Ok(())
        });
    } else {
        caches_to_sync.get_or_init(|| caches.clone());
        let scheduler = inputs.create_scheduler();
        stand_by(&process.manager, scheduler, move || drop(leader_caches.set(caches)));
    }
    process.run().await?;
    // Like upstream, only a scheduler with leader election may end without an error.
    if leader.elect { Ok(ExitCode::SUCCESS) } else { bail!("finished without leader elect") }
}

/// Adds a scheduler that handles events on standby, and schedules pods once it is the leader. `on_elected` runs just
/// before it schedules pods.
fn stand_by(
    manager: &Manager,
    scheduler: StandbyScheduler,
    on_elected: impl FnOnce() + Send + 'static,
) {
    let elected = CancellationToken::new();
    // Passes the scheduler from the runnable of the standby to the runnable of the leader.
    let (sender, receiver) = oneshot::channel();
    let until_elected = elected.clone();
    manager.add(RunnableGroup::Others, "scheduler stands by", |context| async move {
        let standby =
            context.token().run_until_cancelled_owned(scheduler.stand_by(&until_elected)).await;
        // The receiver is dropped when the program ends.
        if let Some(scheduler) = standby {
            drop(sender.send(scheduler));
        }
        Ok(())
    });
    manager.add(RunnableGroup::LeaderElection, "scheduler", |context| async move {
        elected.cancel();
        // The sender is dropped when the program ends.
        if let Ok(scheduler) = receiver.await {
            on_elected();
            scheduler.run(context.token()).await;
        }
        Ok(())
    });
}

/// Returns caches that only the leader starts (`delayCacheUntilActive`).
fn delayed_caches(process: &Process, gates: &FeatureGates) -> Caches {
    let client = process.connection.client(RateFactors::ONE).with_user_agent("shared-informers");
    let caches = Caches::new(client, process.clock.clone(), &process.registry);
    configure_caches(&caches, gates);
    caches
}

/// Returns the health checks. Unlike upstream's, `/livez` fails if a task has failed.
///
/// Upstream: `newEndpointsHandler`.
fn health_checks(
    manager: &Manager,
    stopping: &CancellationToken,
    caches_to_sync: Arc<OnceLock<Caches>>,
) -> Checks {
    let (healthz, livez, readyz) = (Health::new(), Health::new(), Health::new());
    supervised_tasks(manager, &healthz);
    supervised_tasks(manager, &livez);
    leader_election(manager, &healthz);
    leader_election(manager, &readyz);
    let stopping = stopping.clone();
    readyz.add("shutdown", move || {
        if stopping.is_cancelled() { Err("process is shutting down".to_owned()) } else { Ok(()) }
    });
    readyz.add("sched-handler-sync", move || match caches_to_sync.get() {
        Some(caches) if caches.has_synced() => Ok(()),
        _ => Err("handlers are not fully synchronized".to_owned()),
    });
    Checks { healthz, livez, readyz }
}

/// Returns the options of the library's scheduler from the configuration, the feature gates and the flags.
fn scheduler_options(
    options: &Options,
    config: &KubeSchedulerConfiguration,
    profiles: Vec<Profile>,
    extenders: Vec<Arc<dyn Extender>>,
    process: &Process,
) -> SchedulerOptions {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    SchedulerOptions {
        pod_max_in_unschedulable_pods: options.pod_max_in_unschedulable_pods,
        // Every start has a new seed, so that two schedulers break ties differently.
        seed: (process.clock.draw(&"ties") * u64::MAX as f64) as u64,
        host: host.trim().to_owned(),
        extenders,
        ..configured_options(config, &options.gates, profiles)
    }
}

/// Arguments of [`StandbyScheduler::new`].
struct SchedulerInputs {
    client: Client,
    caches: Caches,
    clock: Clock,
    registry: prometheus::Registry,
    options: SchedulerOptions,
    supervisor: Supervisor,
}

impl SchedulerInputs {
    /// Creates the scheduler, which does not schedule pods yet.
    fn create_scheduler(self) -> StandbyScheduler {
        let Self { client, caches, clock, registry, options, supervisor } = self;
        StandbyScheduler::new(client, caches, clock, &registry, &options, &supervisor)
    }
}
