//! The program `cloud-controller-manager`, for the clouds that it is given.
//!
//! A program with a provider of one's own is one line:
//!
//! ```no_run
//! # use std::{process::ExitCode, sync::Arc};
//! # use evenkeel_cloud::{CloudProvider, program::{self, Providers}};
//! # struct Mine;
//! # impl CloudProvider for Mine { fn name(&self) -> &str { "mine" } }
//! fn main() -> ExitCode {
//!     let providers = Providers::builtin().with("mine", |_| Ok(Arc::new(Mine)));
//!     program::main(std::env::args().skip(1), &providers)
//! }
//! ```

mod options;
mod providers;
#[cfg(test)]
mod tests;

use crate::{CloudContext, CloudProvider, Descriptor, context::Started};
use anyhow::{Context, Error, Result, anyhow, bail};
use evenkeel_component::{
    connection::{Connection, Shares, wait_for_server},
    features,
    flags::{About, Asked},
    logging,
    metrics::{self, Exposition, RunningControllers},
    options::{MetricsOptions, TlsOptions},
    serving::{self, Described, Pages},
    version,
};
use evenkeel_runtime::{
    cache::Caches,
    clock::Clock,
    controller::Env,
    manager::{Group, Manager, Running, shutdown_signal},
    serve::Routes,
    tasks::Tasks,
};
use options::{Options, flags};
use prometheus::Registry;
pub use providers::{ProviderOptions, Providers};
use std::{collections::BTreeMap, process::ExitCode, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Name of the program, of its lease, and the first part of its user agents.
const NAME: &str = "cloud-controller-manager";

/// What upstream's programs say of their metrics.
const METRICS: &str = include_str!("../../data/metrics.tsv");

/// How long what runs may take to stop.
const STOP: Duration = Duration::from_secs(10);

/// Runs the program with these arguments (without its name), and says how it ended.
pub fn main(arguments: impl IntoIterator<Item = String>, providers: &Providers) -> ExitCode {
    let given = match flags().parse(NAME, arguments) {
        Ok(Asked::Run(given)) => given,
        Ok(Asked::Help) => return print(&flags().help(&about(), None)),
        Ok(Asked::Version { raw }) => {
            let text = if raw { version::raw() } else { version::short() };
            return print(&format!("{text}\n"));
        }
        Err(error) => return refuse(&format!("{error}\nSee '{NAME} --help' for usage.")),
    };
    let options = match Options::check(given) {
        Ok(options) => options,
        Err(problems) => return refuse(&format!("{:#}", Error::from(problems))),
    };
    logging::start(&options.logging);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let ended = runtime.context("the runtime cannot start").and_then(|runtime| {
        let provider = provider(providers, &options)?;
        runtime.block_on(run(options, provider))
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            refuse(&format!("{error:#}"))
        }
    }
}

/// The flags for what writes man pages and completion scripts.
pub fn command() -> clap::Command {
    evenkeel_component::flags::command(&flags(), &about())
}

fn about() -> About {
    let names: Vec<&str> = crate::descriptors().iter().map(|d| d.name).collect();
    let more = BTreeMap::from([
        ("controllers", format!("All controllers: {}", names.join(", "))),
        ("feature-gates", format!("Options are:\n{}", features::options())),
        ("tls-cipher-suites", TlsOptions::options()),
    ]);
    let what = "Keeps load balancers, routes and nodes in step with a cloud: the controllers of Kubernetes v1.37's cloud\n\
        controller manager on a provider that is built in.";
    About { name: NAME, what, more }
}

#[expect(clippy::print_stdout, reason = "what was asked for goes where it can be piped from")]
fn print(text: &str) -> ExitCode {
    print!("{text}");
    ExitCode::SUCCESS
}

#[expect(
    clippy::print_stderr,
    reason = "the log may not have started yet, and a user must see why it ended"
)]
fn refuse(text: &str) -> ExitCode {
    eprintln!("Error: {text}");
    ExitCode::FAILURE
}

fn provider(providers: &Providers, options: &Options) -> Result<Arc<dyn CloudProvider>> {
    let provider = providers
        .make(&options.provider, &options.provider_options)
        .map_err(|error| anyhow!(error))
        .context("--cloud-provider")?;
    if !provider.has_cluster_id() {
        let why = "no ClusterID found. A ClusterID is required for the cloud provider to function properly";
        if !options.allow_untagged {
            bail!("{why}. Set --allow-untagged-cloud to do without");
        }
        tracing::warn!("detected a cluster without a ClusterID. {why}");
    }
    Ok(provider)
}

async fn run(options: Options, provider: Arc<dyn CloudProvider>) -> Result<()> {
    for warning in &options.warnings {
        tracing::warn!("{warning}");
    }
    let (clock, registry) = (Clock::system(), Registry::new());
    metrics::register_process(&registry)?;
    metrics::register_build(&registry, options.gates.versions());
    let (connection, reload) = Connection::open(NAME, &options.client, &clock, &registry).await?;
    let client = connection.client((1.0, 1));
    let caches = Caches::new(client.with_user_agent("shared-informers"), clock.clone(), &registry);
    let mut builder = Manager::builder(connection.kube.clone())
        .component(NAME)
        .client(client)
        .caches(caches)
        .clock(clock.clone())
        .registry(registry.clone())
        .grace_period(STOP);
    if options.leader.elect {
        builder = builder.election(options.leader.election()?);
    }
    let manager = builder.build()?;
    if options.serving.port != 0 {
        let exposition = Exposition::new(&registry, METRICS, &MetricsOptions::default());
        exposition.follow(manager.health());
        let routes = exposition.routes(Routes::new());
        let pages = pages(&options, &manager, &clock);
        serving::add(&manager, NAME, &options.serving, routes, pages, &clock).await?;
    }
    for descriptor in &options.chosen {
        manager.health().add(descriptor.name, || Ok(()));
    }
    manager.add(Group::Others, "credentials", |running| async move {
        running.token().run_until_cancelled_owned(reload.run()).await;
        Ok(())
    });
    let shown = RunningControllers::register(&registry, NAME);
    let (env, gate) = (manager.env().clone(), manager.gate());
    manager.add(Group::Leader, "controllers", move |running: Running| async move {
        wait_for_server(&connection.client((1.0, 1)), &env.clock).await?;
        let tasks = Tasks::under(running.token());
        let context = CloudContext {
            env: Env { client: env.client.gated(&gate), ..env },
            clients: connection.clients(&gate, &tasks, Shares::default()),
            tasks: tasks.clone(),
            registry,
            provider,
            options: Arc::new(options.cloud),
        };
        context.initialize();
        let stop = running.token();
        start(&options.chosen, &context, options.start_interval, &shown, &stop).await?;
        running.stopped().await;
        tasks.join().await;
        shown.stopped(options.chosen.iter().map(|descriptor| descriptor.name));
        Ok(())
    });
    manager.run(shutdown_signal()).await?;
    Ok(())
}

/// What the secure port tells of the program.
fn pages(options: &Options, manager: &Manager, clock: &Clock) -> Pages {
    Pages {
        described: Described {
            version: version::GIT_VERSION.trim_start_matches('v').to_owned(),
            emulated: options.gates.versions().emulated.to_string(),
            started: clock.now(),
            clock: clock.clone(),
        },
        configz: options.configz(),
        flagz: options.gates.enabled("ComponentFlagz").then(|| options.flagz()),
        statusz: options.gates.enabled("ComponentStatusz"),
        profiling: options.profiling,
        set_verbosity: None,
        controllers: Some(manager.env().introspection.clone()),
    }
}

/// Starts the controllers, up to twice `interval` apart.
async fn start(
    chosen: &[Descriptor],
    context: &CloudContext,
    interval: Duration,
    shown: &RunningControllers,
    stop: &CancellationToken,
) -> Result<()> {
    for descriptor in chosen {
        match (descriptor.start)(context)? {
            Started::Yes => {
                shown.started(descriptor.name);
                tracing::info!(controller = descriptor.name, "Started controller");
            }
            Started::No => tracing::info!(controller = descriptor.name, "Controller is not needed"),
        }
        if !interval.is_zero() {
            let pause = interval.mul_f64(1.0 + context.env.clock.draw(&descriptor.name));
            if stop.run_until_cancelled(context.env.clock.sleep(pause)).await.is_none() {
                break;
            }
        }
    }
    Ok(())
}
