//! The program's life: arguments, client, election, controllers, serving, stop.

use crate::{
    controllers,
    credentials::Credentials,
    options::{self, Options},
    plan,
};
use anyhow::{Context, Result};
use evenkeel_component::{logging, options::ClientOptions, process, serving};
use evenkeel_controllers::{
    descriptor::{Clients, ControllerContext},
    needs::Gates,
};
use evenkeel_runtime::{
    cache::Caches,
    client::{self, Client, ConnectOptions, RestMetrics},
    clock::Clock,
    lease,
    manager::{Group, Manager, shutdown_signal},
    tasks::Tasks,
};
use kube::config::AuthInfo;
use prometheus::Registry;
use std::{process::ExitCode, sync::Arc, time::Duration};

/// Name of the program, of its lease, and the first part of its user agents.
const NAME: &str = "kube-controller-manager";

/// Threads that do the work. One is enough for several thousand writes a second, and saves what waking others costs: a
/// sixth of the CPU in `bench/`'s creation of pods.
const WORKERS: usize = 1;

/// How long the API server may take to become healthy before the program gives up.
const WAIT_FOR_SERVER: Duration = Duration::from_secs(10);

/// Runs the program with these arguments (without its name), and says how it ended.
pub fn main(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    let (planned, arguments) = plan::asked(arguments);
    let options = match options::from_arguments(arguments) {
        Ok(options) => options,
        Err(code) => return code,
    };
    logging::start(&options.logging);
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
    if planned {
        return runtime.block_on(plan::run(options)).unwrap_or_else(|error| failed(&error));
    }
    match runtime.block_on(run(options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    tracing::error!("{error:#}");
    #[expect(
        clippy::print_stderr,
        reason = "the log may not have started yet, and a user must see why it ended"
    )]
    {
        eprintln!("Error: {error:#}");
    }
    ExitCode::FAILURE
}

async fn run(options: Options) -> Result<()> {
    for warning in &options.warnings {
        tracing::warn!("{warning}");
    }
    let chosen = controllers::chosen(&options);
    let (clock, registry) = (Clock::system(), Registry::new());
    process::register(&registry)?;
    options.gates.register(&registry)?;
    let connection = Connection::open(&options, &clock, &registry).await?;
    let client = connection.client(&options.client, (1.0, 1));
    wait_for_server(&client, &clock).await?;

    let caches = Caches::new(client.with_user_agent("shared-informers"), clock.clone(), &registry);
    let mut builder = Manager::builder(connection.kube.clone())
        .component(NAME)
        .client(client)
        .caches(caches)
        .clock(clock.clone())
        .registry(registry.clone())
        .grace_period(options.shutdown_timeout);
    if options.leader.elect {
        builder = builder.election(election(&options)?);
    }
    let manager = builder.build()?;
    if options.serving.port != 0 {
        serving::add(&manager, NAME, &options.serving, &clock).await?;
    }

    let controllers_options = controllers::options(&options)?;
    for descriptor in &chosen {
        manager.health().add(descriptor.name, || Ok(()));
    }
    let env = manager.env().clone();
    let interval = options.start_interval;
    manager.add(Group::Leader, "controllers", move |running| async move {
        let tasks = Tasks::under(running.token());
        let clients = connection.clients(&options.client, &tasks);
        let mut context =
            ControllerContext::new(env, clients, tasks.clone(), registry, controllers_options);
        context.gates = Gates::new(move |gate| options.gates.enabled(gate));
        controllers::start(&chosen, &context, interval, &running.token()).await?;
        running.stopped().await;
        tasks.join().await;
        Ok(())
    });
    manager.run(shutdown_signal()).await?;
    Ok(())
}

/// What all clients of the program share.
#[derive(Clone)]
struct Connection {
    kube: kube::Client,
    /// The same without credentials, where each controller has its own.
    anonymous: Option<kube::Client>,
    host: String,
    clock: Clock,
    metrics: RestMetrics,
}

impl Connection {
    async fn open(options: &Options, clock: &Clock, registry: &Registry) -> Result<Self> {
        let connect = ConnectOptions {
            kubeconfig: options.client.kubeconfig.clone().map(Into::into),
            server: options.client.master.clone(),
            ..ConnectOptions::default()
        };
        let config = client::config(&connect).await?;
        let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
        let mut anonymous = config.clone();
        anonymous.auth_info = AuthInfo::default();
        let anonymous =
            options.client.own_credentials.then(|| client::transport(anonymous)).transpose()?;
        let (kube, metrics) = (client::transport(config)?, RestMetrics::new(registry));
        Ok(Self { kube, anonymous, host, clock: clock.clone(), metrics })
    }

    /// A client with this many times `--kube-api-qps` and `--kube-api-burst`; each has a limit of its own.
    fn client(&self, options: &ClientOptions, share: (f32, u32)) -> Client {
        self.client_over(self.kube.clone(), options, share)
    }

    /// Makes the clients of controllers: with one credential for all, or each with its own.
    fn clients(self, options: &ClientOptions, tasks: &Tasks) -> Clients {
        let root = self.client(options, (1.0, 1)).with_user_agent("token-requests");
        let own = self
            .anonymous
            .clone()
            .map(|anonymous| Credentials::new(root, anonymous, self.clock.clone(), tasks.clone()));
        let options = options.clone();
        Arc::new(move |name: &str| {
            let kube = own.as_ref().map_or_else(|| self.kube.clone(), |own| own.connect(name));
            self.client_over(kube, &options, controllers::share(name))
        })
    }

    fn client_over(
        &self,
        kube: kube::Client,
        options: &ClientOptions,
        (qps, burst): (f32, u32),
    ) -> Client {
        Client::builder(kube, self.clock.clone())
            .qps(options.qps * qps)
            .burst(options.burst.saturating_mul(burst))
            .user_agent(NAME)
            .host(&self.host)
            .metrics(self.metrics.clone())
            .build()
    }
}

async fn wait_for_server(client: &Client, clock: &Clock) -> Result<()> {
    let deadline = clock.now() + WAIT_FOR_SERVER;
    loop {
        let request = http::Request::get("/healthz").body(bytes::Bytes::new())?;
        match client.raw(request).await {
            Ok(_) => return Ok(()),
            Err(error) if clock.now() >= deadline => {
                return Err(anyhow::Error::from(error)
                    .context("the API server did not become healthy within 10s"));
            }
            Err(error) => {
                tracing::debug!(%error, "API server is not healthy yet");
                clock.sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

fn election(options: &Options) -> Result<lease::Config> {
    let leader = &options.leader;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let id = std::fs::read_to_string("/proc/sys/kernel/random/uuid")
        .context("no identity for the election")?;
    let identity = format!("{}_{}", host.trim(), id.trim());
    Ok(lease::Config {
        lease_duration: leader.lease_duration,
        renew_deadline: leader.renew_deadline,
        retry_period: leader.retry_period,
        ..lease::Config::new(&leader.namespace, &leader.name, &identity)
    })
}
