//! The console of the cluster in the browser.

use super::{
    config::{ConsolePort, NoConsole},
    options::{self, Args},
    plane,
    what_if::Simulator,
};
use crate::{
    server::listen,
    time::{self, ClusterTime},
};
use anyhow::{Context, Result};
use evenkeel_console::{Console, ConsoleOptions, TimeControl};
use evenkeel_controller_manager::preview::Previews;
use evenkeel_plane::Plane;
use evenkeel_runtime::{clock::Clock, tasks::Tasks};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

/// Clocks of a console.
#[derive(Clone, Copy)]
pub(super) struct Clocks<'a> {
    /// Clock of the process.
    pub(super) process: &'a Clock,
    /// Clock of the cluster.
    pub(super) cluster: &'a Clock,
    /// The cluster's time, if it is not the system's.
    pub(super) time: Option<&'a ClusterTime>,
}

impl TimeControl for ClusterTime {
    fn speed(&self) -> f64 {
        self.settings().speed
    }

    fn remaining_jump(&self) -> Duration {
        Self::remaining_jump(self)
    }

    fn set_speed(&self, speed: &str) -> Result<(), String> {
        change(self, &format!("speed={speed}"))
    }

    fn jump(&self, by: Duration) -> Result<(), String> {
        change(self, &format!("jump={}", by.as_secs_f64()))
    }
}

/// Changes the time in the same way as the requests of `evenkeel time`.
fn change(time: &ClusterTime, query: &str) -> Result<(), String> {
    time::change(time, query).map_err(|error| format!("{error:#}"))
}

/// Clients of the cluster's API server.
pub(super) struct Clients {
    /// Client of this process.
    pub(super) own: kube::Client,
    /// Client without credentials, for users of the console.
    pub(super) anonymous: kube::Client,
}

/// Serves the console on 127.0.0.1. Returns its URL, or `None` without a console.
///
/// # Errors
/// Fails if the port of the flag is in use. Without the flag, the error is logged, and the cluster runs without a console.
pub(super) async fn start(
    args: &Args,
    plane: &Plane,
    clients: &Clients,
    clocks: Clocks<'_>,
    tasks: &Tasks,
) -> Result<Option<String>> {
    let port = match args.console {
        Some(ConsolePort::Word(NoConsole::None)) => return Ok(None),
        Some(ConsolePort::Port(port)) => port,
        None => 0,
    };
    match serve(args, port, plane, clients, clocks, tasks).await {
        Err(error) if args.console.is_none() => {
            tracing::warn!("the console cannot be served: {error:#}");
            Ok(None)
        }
        served => served.map(Some),
    }
}

async fn serve(
    args: &Args,
    port: u16,
    plane: &Plane,
    clients: &Clients,
    clocks: Clocks<'_>,
    tasks: &Tasks,
) -> Result<String> {
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let listener = listen(address, "console").await?;
    let address = listener.local_addr().context("the console's listener has no address")?;
    let of_schedulers = args.clone();
    let of_simulator = args.clone();
    let time = clocks.time.cloned();
    let simulator = Simulator {
        schedulers: Box::new(move || {
            plane::schedulers(&of_simulator).options().unwrap_or_default()
        }),
    };
    let console = Console::new(ConsoleOptions {
        cluster: options::cluster_name(args.name.as_deref(), args.data_dir.as_deref()),
        kube: clients.own.clone(),
        anonymous: clients.anonymous.clone(),
        clock: clocks.process.clone(),
        cluster_clock: clocks.cluster.clone(),
        runtime: plane.runtime().clone(),
        caches: plane.caches().clone(),
        introspection: plane.introspection().clone(),
        registries: [&[plane.registry().clone()], plane.scheduler_registries()].concat(),
        node_faults: plane.node_faults().clone(),
        // The control plane has started with the same options, so they are valid.
        scheduler: Box::new(move || {
            plane::schedulers(&of_schedulers).options().unwrap_or_default()
        }),
        planners: Some(Arc::new(Previews)),
        what_if: Some(Arc::new(simulator)),
        time_control: time.map(|time| Arc::new(time) as Arc<dyn TimeControl>),
        allows_writes: args.console_writes,
    })?;
    let url = console.url(address);
    // The cluster continues without its console.
    tasks.spawn_finite("console", console.serve(listener, tasks.token()));
    Ok(url)
}
