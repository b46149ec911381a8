//! Main function of the program: arguments, client, leader election, controllers, secure port and shutdown.

use crate::{
    console,
    controllers::{self, KubeControllers},
    options::{self, Options},
    plan,
};
use anyhow::Result;
use evenkeel_component::{
    command_line,
    connection::RateFactors,
    leading::{ControllerName, Leader, StartIntervals},
    logging::{self, Log},
    process::{Parts, Process},
    worker::Worker,
};
use evenkeel_controllers::{core::serviceaccounttoken, wiring::descriptor::Descriptor};
use evenkeel_runtime::{leaderelection, manager::RunnableGroup};
use std::{process::ExitCode, time::Duration};

/// Name of the program, of its lease, and the first part of its user agents.
pub(crate) const NAME: &str = "kube-controller-manager";

/// Table of upstream's metrics and their stability levels.
pub const METRICS_TABLE: &str = include_str!("../data/metrics.tsv");

/// Interval at which the log names the controllers that have not ended, if the shutdown has no timeout.
const REMINDER: Duration = Duration::from_secs(5);

/// Duration that means no timeout: longer than any shutdown.
const NO_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Runs the program with these arguments, which do not include its name. Returns its exit code.
pub fn main(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    start(arguments.into_iter().collect())
}

/// Runs the program. It is not generic, so that it compiles with this crate instead of each program that calls
/// [`main`].
fn start(arguments: Vec<String>) -> ExitCode {
    let options = match options::from_arguments(arguments) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let log = logging::start(&options.logging);
    command_line::run(&log, Worker::Frugal, async {
        if options.plan {
            return plan::run(options).await;
        }
        run(options, &log).await.map(|()| ExitCode::SUCCESS)
    })
}

/// Runs the controllers until the process ends.
async fn run(options: Options, log: &Log) -> Result<()> {
    command_line::log_flags(&options.parsed_flags, &options.warnings, log);
    let chosen = controllers::enabled_descriptors(&options);
    let election = options.leader.elect.then(|| election(&options)).transpose()?;
    let process = Process::open(Parts {
        name: NAME,
        parsed_flags: &options.parsed_flags,
        log,
        client: &options.client,
        gates: &options.gates,
        election,
        serving: &options.serving,
        metrics: &options.metrics,
        catalog: METRICS_TABLE,
        configz: options::configz(&options),
        min_resync_period: options.min_resync_period,
        profiling: options.profiling,
        grace: grace_period(options.shutdown_timeout),
        own_pages: None,
    })
    .await?;
    console::serve(&process, &options)?;
    let manager = &process.manager;
    let controller_name = |descriptor: &Descriptor| ControllerName {
        name: descriptor.name,
        aliases: descriptor.aliases,
    };
    let leader = Leader {
        client: process.connection.client(RateFactors::ONE),
        clock: process.clock.clone(),
        fence: manager.fence(),
        enabled: chosen.iter().map(controller_name).collect(),
        // Other controllers may authenticate with tokens that only this controller creates.
        first: Some(serviceaccounttoken::DESCRIPTOR.name),
        intervals: start_intervals(&options),
        running_controllers: process.running_controllers.clone(),
        migration_lease: process.migration_lease(options.migration.as_ref())?,
        controllers: KubeControllers {
            connection: process.connection.clone(),
            env: manager.env().clone(),
            chosen,
            options: controllers::options(&options)?,
            gates: controllers::gates(&options),
            registry: process.registry.clone(),
            health: manager.health().clone(),
        },
    };
    manager.add(RunnableGroup::LeaderElection, "controllers", |running| async move {
        Ok(leader.run(&running).await?)
    });
    process.run().await
}

/// Returns the start interval of the controllers, and the interval of reminders at shutdown: a third of the shutdown
/// timeout.
fn start_intervals(options: &Options) -> StartIntervals {
    let third = options.shutdown_timeout / 3;
    StartIntervals {
        start_interval: options.start_interval,
        reminder: if third.is_zero() { REMINDER } else { third },
    }
}

/// Returns the maximum time to wait until controllers stop. As upstream, a timeout of 0 means no limit.
fn grace_period(timeout: Duration) -> Duration {
    if timeout.is_zero() { NO_TIMEOUT } else { timeout }
}

/// Feature gate of releasing the lease at the end.
const RELEASE_GATE: &str = "ControllerManagerReleaseLeaderElectionLockOnExit";

/// Returns the configuration of leader election.
///
/// Upstream's program ends without stopping its controllers, and so leaves its lease to expire, unless the gate is on. Here
/// all controllers have stopped before the lease is released, so that only an explicit `false` keeps it.
fn election(options: &Options) -> Result<leaderelection::Config> {
    let coordinated = options.gates.enabled("CoordinatedLeaderElection");
    let release_on_cancel = options.gates.set_value(RELEASE_GATE).unwrap_or(true);
    Ok(leaderelection::Config { coordinated, release_on_cancel, ..options.leader.election()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_component::flags::Invocation;

    #[test]
    fn the_lease_is_released_unless_the_gate_is_turned_off() {
        let table = [
            ("", true),
            ("--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit=true", true),
            ("--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit=false", false),
            ("--feature-gates=AllAlpha=false", true),
        ];
        for (argument, releases) in table {
            let arguments = (!argument.is_empty()).then(|| argument.to_owned());
            let Ok(Invocation::Run(parsed)) = options::flags().parse(NAME, arguments) else {
                panic!("{argument}")
            };
            let options = Options::check(parsed).expect("valid");
            let config = election(&options).expect("this machine has a uuid");
            assert_eq!(config.release_on_cancel, releases, "{argument}");
        }
    }
}
