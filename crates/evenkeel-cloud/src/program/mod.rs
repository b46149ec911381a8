//! The program `cloud-controller-manager`, with a registry of cloud providers.
//!
//! A program with its own provider needs one line:
//!
//! ```no_run
//! # use std::{process::ExitCode, sync::Arc};
//! # use evenkeel_cloud::{CloudProvider, program::{self, ProviderRegistry}};
//! # struct Mine;
//! # impl CloudProvider for Mine { fn name(&self) -> &str { "mine" } }
//! fn main() -> ExitCode {
//!     let providers = ProviderRegistry::builtin().register("mine", |_| Ok(Arc::new(Mine)));
//!     program::main(std::env::args().skip(1), &providers)
//! }
//! ```

mod controllers;
mod options;
mod providers;
#[cfg(test)]
mod tests;

use crate::{CloudProvider, Descriptor};
use anyhow::{Context, Result, anyhow, bail};
use controllers::CloudControllers;
use evenkeel_component::{
    command_line::{self, CommandLine},
    connection::RateFactors,
    features,
    flags::About,
    leading::{ControllerName, Leader, StartIntervals},
    logging::{self, Log},
    options::{MetricsOptions, TlsOptions},
    process::{Parts, Process},
    worker::Worker,
};
use evenkeel_runtime::manager::RunnableGroup;
use options::{Options, flags};
pub use providers::{ProviderOptions, ProviderRegistry};
use std::{
    collections::BTreeMap,
    process::ExitCode,
    sync::{Arc, OnceLock},
    time::Duration,
};

/// Name of the program and of its lease, and the first part of its user agents.
const NAME: &str = "cloud-controller-manager";

/// Table of upstream's metrics and their stability levels.
pub const METRICS_TABLE: &str = include_str!("../../data/metrics.tsv");

/// Maximum duration of an orderly stop.
const GRACE_PERIOD: Duration = Duration::from_secs(10);

/// Interval at which the log names the controllers that have not ended.
const UNFINISHED_LOG_INTERVAL: Duration = Duration::from_secs(3);

/// Runs the program with these arguments, without its name. Returns its exit code.
pub fn main(arguments: impl IntoIterator<Item = String>, providers: &ProviderRegistry) -> ExitCode {
    start(arguments.into_iter().collect(), providers)
}

/// Runs the program. It is not generic, so it is compiled with this crate and not again in each program that
/// calls [`main`].
fn start(arguments: Vec<String>, providers: &ProviderRegistry) -> ExitCode {
    let parsed = match command_line().read(arguments) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    let options = match Options::check(parsed) {
        Ok(options) => options,
        Err(invalid) => return command_line::report_invalid_flags(invalid),
    };
    let log = logging::start(&options.logging);
    command_line::run(&log, Worker::Frugal, async {
        let provider = init_provider(providers, &options)?;
        run(options, provider, &log).await.map(|()| ExitCode::SUCCESS)
    })
}

/// Returns the program's command line.
pub fn command_line() -> CommandLine {
    let names: Vec<&str> = crate::descriptors().iter().map(|descriptor| descriptor.name).collect();
    let notes = BTreeMap::from([
        ("controllers", format!("All controllers: {}", names.join(", "))),
        ("feature-gates", format!("Options are:\n{}", features::options())),
        ("tls-cipher-suites", TlsOptions::options()),
    ]);
    let description = "Keeps load balancers, routes and nodes in step with a cloud: the controllers of Kubernetes v1.37's cloud\n\
        controller manager on a provider that is built in.";
    CommandLine { flags: flags(), about: About { name: NAME, description, notes } }
}

/// Builds the provider of `--cloud-provider`, and checks that it has a cluster id.
fn init_provider(
    providers: &ProviderRegistry,
    options: &Options,
) -> Result<Arc<dyn CloudProvider>> {
    let provider = providers
        .init_provider(&options.provider, &options.provider_options)
        .map_err(|error| anyhow!(error))
        .context("--cloud-provider")?;
    if !provider.has_cluster_id() {
        let problem = "no ClusterID found. A ClusterID is required for the cloud provider to function properly";
        if !options.allow_untagged {
            bail!("{problem}. Set --allow-untagged-cloud to do without");
        }
        tracing::warn!("detected a cluster without a ClusterID. {problem}");
    }
    Ok(provider)
}

async fn run(options: Options, provider: Arc<dyn CloudProvider>, log: &Log) -> Result<()> {
    command_line::log_flags(&options.parsed_flags, &options.warnings, log);
    let process = Process::open(Parts {
        name: NAME,
        parsed_flags: &options.parsed_flags,
        log,
        client: &options.client,
        gates: &options.gates,
        election: options.leader.elect.then(|| options.leader.election()).transpose()?,
        serving: &options.serving,
        metrics: &MetricsOptions::default(),
        catalog: METRICS_TABLE,
        configz: options.configz(),
        min_resync_period: options.min_resync_period,
        profiling: options.profiling,
        grace: GRACE_PERIOD,
        own_pages: None,
    })
    .await?;
    let (manager, registry) = (&process.manager, process.registry.clone());
    let controller_name = |descriptor: &Descriptor| ControllerName {
        name: descriptor.name,
        aliases: descriptor.aliases,
    };
    let leader = Leader {
        client: process.connection.client(RateFactors::ONE),
        clock: process.clock.clone(),
        fence: manager.fence(),
        enabled: options.enabled.iter().map(controller_name).collect(),
        first: None,
        intervals: StartIntervals {
            start_interval: options.start_interval,
            reminder: UNFINISHED_LOG_INTERVAL,
        },
        running_controllers: process.running_controllers.clone(),
        migration_lease: process.migration_lease(options.migration.as_ref())?,
        controllers: CloudControllers {
            connection: process.connection.clone(),
            env: manager.env().clone(),
            enabled: options.enabled,
            registry,
            health: manager.health().clone(),
            provider,
            initialized: OnceLock::new(),
            options: Arc::new(options.cloud),
        },
    };
    manager.add(RunnableGroup::LeaderElection, "controllers", |running| async move {
        Ok(leader.run(&running).await?)
    });
    process.run().await
}
