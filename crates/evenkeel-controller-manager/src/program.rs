//! The program's life: arguments, client, election, controllers, serving, stop.

use crate::{
    controllers,
    leading::{Leader, Pace, Second},
    migration::Migration,
    options::{self, Options},
    plan,
};
use anyhow::Result;
use evenkeel_component::{
    connection::Connection,
    features,
    logging::{self, Log},
    metrics::{self, Exposition, RunningControllers},
    serving::{self, Described, Pages},
    version,
};
use evenkeel_controllers::needs::Gates;
use evenkeel_runtime::{
    cache::Caches,
    clock::Clock,
    lease::{self, Candidacy, Candidate},
    manager::{Group, Manager, shutdown_signal},
    serve::Routes,
    tasks::Tasks,
};
use prometheus::Registry;
use std::{collections::BTreeSet, process::ExitCode, sync::Arc, time::Duration};

/// Name of the program, of its lease, and the first part of its user agents.
const NAME: &str = "kube-controller-manager";

/// What upstream's program says of its metrics.
const METRICS: &str = include_str!("../data/metrics.tsv");

/// Threads that do the work. One is enough for several thousand writes a second, and saves what waking others costs: a
/// sixth of the CPU in `bench/`'s creation of pods.
const WORKERS: usize = 1;

/// How often it is told which controllers have not ended, where they have all the time they want.
const REMINDER: Duration = Duration::from_secs(5);

/// Longer than anybody waits.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Runs the program with these arguments (without its name), and says how it ended.
pub fn main(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    let options = match options::from_arguments(arguments) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let log = logging::start(&options.logging);
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            return failed(&anyhow::Error::from(error).context("the runtime cannot start"));
        }
    };
    if options.plan {
        return runtime.block_on(plan::run(options)).unwrap_or_else(|error| failed(&error));
    }
    let ended = runtime.block_on(run(options, &log));
    if let Err(error) = &ended {
        failed(error);
    }
    log.flush();
    if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    tracing::error!(error = format!("{error:#}"), "command failed");
    ExitCode::FAILURE
}

async fn run(options: Options, log: &Log) -> Result<()> {
    options::tell(&options, log);
    let chosen = controllers::chosen(&options);
    let (clock, registry) = (Clock::system(), Registry::new());
    let around = Tasks::new();
    log.keep_flushed(&around, &clock);
    metrics::register_process(&registry)?;
    metrics::register_build(&registry, options.gates.versions());
    options.gates.register(&registry)?;
    let (connection, reload) = Connection::open(NAME, &options.client, &clock, &registry).await?;
    let client = connection.client((1.0, 1));
    let caches = Caches::new(client.with_user_agent("shared-informers"), clock.clone(), &registry);
    let mut builder = Manager::builder(connection.kube.clone())
        .component(NAME)
        .client(client)
        .caches(caches)
        .clock(clock.clone())
        .registry(registry.clone())
        .grace_period(grace(options.shutdown_timeout));
    let election = options.leader.elect.then(|| election(&options)).transpose()?;
    if let Some(election) = &election {
        builder = builder.election(election.clone());
    }
    let manager = builder.build()?;
    if options.serving.port != 0 {
        let exposition = Exposition::new(&registry, METRICS, &options.metrics);
        exposition.follow(manager.health());
        let routes = exposition.routes(Routes::new());
        let pages = pages(&options, &manager, log, &clock);
        serving::add(&manager, NAME, &options.serving, routes, pages, &clock).await?;
    }
    if let Some(election) = election.as_ref().filter(|election| election.coordinated) {
        stand(&manager, election, &options);
    }
    manager.add(Group::Others, "credentials", |running| async move {
        running.token().run_until_cancelled_owned(reload.run()).await;
        Ok(())
    });
    let shown = RunningControllers::register(&registry, NAME);
    let leader = Leader {
        connection,
        env: manager.env().clone(),
        gate: manager.gate(),
        chosen,
        options: controllers::options(&options)?,
        gates: gates(&options),
        registry,
        health: manager.health().clone(),
        pace: pace(&options),
        shown,
        second: second(&manager, election.as_ref(), options.migration.as_ref())?,
    };
    manager.add(
        Group::Leader,
        "controllers",
        |running| async move { Ok(leader.run(&running).await?) },
    );
    manager.run(shutdown_signal()).await?;
    around.token().cancel();
    around.join().await;
    Ok(())
}

/// A gate that v1.37 does not know is one that became general: it is on.
fn gates(options: &Options) -> Gates {
    let (gates, known) = (options.gates.clone(), options.gates.clone());
    let known: BTreeSet<&'static str> = known.iter().map(|(name, ..)| name).collect();
    Gates::new(move |gate| !known.contains(gate) || gates.enabled(gate))
}

/// What the program tells of itself on its secure port.
fn pages(options: &Options, manager: &Manager, log: &Log, clock: &Clock) -> Pages {
    let log = log.clone();
    let on = |gate: &str| options.gates.enabled(gate);
    Pages {
        described: Described {
            version: version::GIT_VERSION.trim_start_matches('v').to_owned(),
            emulated: options.gates.versions().emulated.to_string(),
            started: clock.now(),
            clock: clock.clone(),
        },
        configz: options::configz(options),
        flagz: on("ComponentFlagz").then(|| options::flagz(options).into_iter().collect()),
        statusz: on("ComponentStatusz"),
        profiling: options.profiling,
        set_verbosity: Some(Arc::new(move |verbosity| log.set_verbosity(verbosity))),
        controllers: Some(manager.env().introspection.clone()),
    }
}

fn pace(options: &Options) -> Pace {
    let third = options.shutdown_timeout / 3;
    Pace {
        start_interval: options.start_interval,
        reminder: if third.is_zero() { REMINDER } else { third },
    }
}

/// No timeout is written as 0, as upstream has it.
fn grace(timeout: Duration) -> Duration {
    if timeout.is_zero() { FOR_EVER } else { timeout }
}

/// The election that `options` ask for.
fn election(options: &Options) -> Result<lease::Config> {
    let coordinated = options.gates.enabled("CoordinatedLeaderElection");
    Ok(lease::Config { coordinated, ..options.leader.election()? })
}

/// In a coordinated election each replica stands for it with what it is; the oldest emulated version leads.
fn stand(manager: &Manager, election: &lease::Config, options: &Options) {
    let versions = options.gates.versions();
    let candidate = Candidate::new(
        manager.ungated(),
        Candidacy {
            // Upstream's place for it, wherever the lease is.
            namespace: "kube-system".to_owned(),
            identity: election.identity.clone(),
            lease: NAME.to_owned(),
            binary_version: format!("{}.0", features::BINARY),
            emulation_version: format!("{}.0", versions.emulated),
            strategy: "OldestEmulationVersion".to_owned(),
        },
    );
    manager.add(Group::Others, "lease candidate", |running| async move {
        running.token().run_until_cancelled_owned(candidate.run()).await;
        Ok(())
    });
}

/// The second lease, of the controllers that move. The server has no part in it.
fn second(
    manager: &Manager,
    election: Option<&lease::Config>,
    migration: Option<&Migration>,
) -> Result<Option<Second>> {
    let Some((election, migration)) = election.zip(migration) else { return Ok(None) };
    let name = migration.lease.clone();
    let config = lease::Config { name, coordinated: false, ..election.clone() };
    let election = manager.contender(config, "leaderMigration")?;
    Ok(Some(Second { migration: migration.clone(), election }))
}
