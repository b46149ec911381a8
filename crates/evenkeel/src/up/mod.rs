//! `evenkeel up`: a control plane in one process.

mod messages;
mod options;
mod remote;
mod server;

use crate::{
    control::{self, Served},
    kubeconfig::{self, Home},
    limits,
    server::{listen, local_url},
};
use anyhow::{Context, Result, bail};
use evenkeel::explain;
use evenkeel_cloud::ip_pool::{Config, IpPool};
use evenkeel_component::options::LoggingOptions;
use evenkeel_plane::{Plane, PlaneOptions};
use evenkeel_runtime::{clock::Clock, manager::shutdown_signal, tasks::Tasks};
use messages::Messages;
pub(crate) use options::Args;
use std::{net::SocketAddr, process::ExitCode, sync::Arc, time::Duration};

/// Time that open requests have to complete when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs `evenkeel up`, and returns its exit code.
pub(crate) fn main(args: Args) -> ExitCode {
    // klog's verbosities of `info`, `debug` and `trace` events.
    let verbosity = match args.verbose {
        0 => 0,
        1 => 4,
        _ => 6,
    };
    evenkeel_component::logging::start(&LoggingOptions { verbosity, ..LoggingOptions::default() });
    limits::raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ended =
        runtime.context("the runtime cannot start").and_then(|runtime| runtime.block_on(run(args)));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            messages::error(&error);
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<()> {
    // Install the signal handler first, so that a signal during the start also stops the program gracefully.
    let shutdown = shutdown_signal();
    let clock = Clock::system();
    let messages = Messages::start(clock.clone());
    if args.is_remote() {
        run_on_remote(&args, clock, &messages, shutdown).await
    } else {
        run_embedded(&args, clock, &messages, shutdown).await
    }
}

/// Runs the API server in this process, with controllers, scheduler and nodes.
async fn run_embedded(
    args: &Args,
    clock: Clock,
    messages: &Messages,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let home = Home::from_env();
    let bind = SocketAddr::new(args.bind_address, args.port);
    let listener = listen(bind, "port").await?;
    let address = listener.local_addr().context("the listener has no address")?;
    let url = local_url(address);
    let server = server::build(args, address).await?;
    let serving = Tasks::new();
    let (listening_server, stop) = (server.clone(), serving.token());
    serving.spawn("API server", async move {
        if let Err(error) = listening_server.serve(listener, stop.cancelled_owned()).await {
            tracing::error!(%error, "API server stopped");
        }
    });
    let path = home.cluster_kubeconfig(args.data_dir.as_deref(), address.port());
    let user_path = if args.write_kubeconfig { Some(home.user_kubeconfig()?) } else { None };
    kubeconfig::write(&server.kubeconfig(&url), &path, user_path.as_deref())?;
    messages.served(&url, args.data_dir.as_deref());
    if let Some(user_path) = &user_path {
        messages.merged(user_path);
    }
    let (renewed, kubeconfigs) = (server.clone(), (url.clone(), path.clone(), user_path));
    serving.spawn_restarting_until_cancelled("kubeconfigs", move || {
        let (url, path, user_path) = kubeconfigs.clone();
        kubeconfig::keep_renewed(renewed.clone(), url, path, user_path)
    });

    let kube = kube::Client::new(server.service(), "default");
    let plane = Plane::start(&kube, &clock, plane_options(args)?.of_server(&server))?;
    plane.connect(&server).await.context("the metrics API cannot be served")?;
    let served = Served {
        url: url.clone(),
        introspection: Some(plane.introspection().clone()),
        server: Some(server.clone()),
    };
    let control_socket = control::start(&explain::socket_beside(&path), served, &serving);
    let _control = or_warn(control_socket);
    let ready = async {
        plane.synced().await;
        messages.ready(&path, args);
        std::future::pending::<()>().await;
    };
    let ended: Result<()> = tokio::select! {
        () = ready => Ok(()),
        () = shutdown => Ok(()),
        failure = plane.failed() => Err(failure.into()),
        failure = serving.supervisor().failed() => Err(failure.into()),
        failure = server.failed() => Err(failure.into()),
    };
    messages.stopping();
    let mut late = plane.stop().await;
    late.extend(serving.shut_down(SHUTDOWN_TIMEOUT).await.into_iter().map(String::from));
    ended.and_then(|()| require_stopped(&late))
}

/// Runs controllers, scheduler and nodes for another API server.
async fn run_on_remote(
    args: &Args,
    clock: Clock,
    messages: &Messages,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let remote = remote::connect(args, &clock).await?;
    messages.connected(&remote.url, &remote.version);
    let mut options = plane_options(args)?;
    if let Some(ca) = &remote.ca {
        options = options.with_ca(ca);
    }
    let plane = Plane::start(&remote.kube, &clock, options)?;
    let listening = Tasks::new();
    let path = explain::socket_beside(&Home::from_env().cluster_kubeconfig(None, remote.port));
    let control_socket =
        kubeconfig::make_private_folder(path.parent().unwrap_or(&path)).and_then(|()| {
            let introspection = Some(plane.introspection().clone());
            let served = Served { url: remote.url.clone(), introspection, server: None };
            control::start(&path, served, &listening)
        });
    let _control = or_warn(control_socket);
    let ready = async {
        plane.synced().await;
        messages.running(args);
        std::future::pending::<()>().await;
    };
    let ended: Result<()> = tokio::select! {
        () = ready => Ok(()),
        () = shutdown => Ok(()),
        failure = plane.failed() => Err(failure.into()),
        failure = listening.supervisor().failed() => Err(failure.into()),
    };
    messages.stopping();
    let mut late = plane.stop().await;
    late.extend(listening.shut_down(SHUTDOWN_TIMEOUT).await.into_iter().map(String::from));
    ended.and_then(|()| require_stopped(&late))
}

/// Logs an error of the control socket. `up` continues without it, because only `evenkeel explain` and `evenkeel
/// snapshot save` need it.
fn or_warn(control: Result<control::ControlSocket>) -> Option<control::ControlSocket> {
    control.inspect_err(|error| tracing::warn!("the control socket cannot be opened, so evenkeel explain cannot ask this process: {error:#}")).ok()
}

fn plane_options(args: &Args) -> Result<PlaneOptions> {
    let mut options = PlaneOptions::all(args.nodes);
    if args.no_controllers {
        options.controllers.clear();
    }
    if args.no_scheduler {
        options.scheduler = None;
    }
    if let Some(pool) = args.pool().filter(|_| !args.no_controllers) {
        let pool = IpPool::new(&Config::of_addresses(pool)).context("--load-balancer-pool")?;
        options.cloud = Some(Arc::new(pool));
    }
    Ok(options)
}

/// Fails if tasks had to be aborted. `late` are their names.
fn require_stopped(late: &[String]) -> Result<()> {
    if late.is_empty() { Ok(()) } else { bail!("did not stop in time: {}", late.join(", ")) }
}
