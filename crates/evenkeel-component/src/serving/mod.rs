//! Secure port of a program: options, TLS, authentication, authorization, pages.

mod guard;
mod health;
mod pages;
mod pprof;
mod tls;
mod zpages;

pub use health::{Checks, leader_election, supervised_tasks};
pub use pages::Pages;
pub use zpages::Described;

use crate::options::ServingOptions;
use crate::secure_serving::{self, Routes, ServerOptions, Trust};
use anyhow::{Context, Result};
use evenkeel_runtime::{
    clock::Clock,
    manager::{Manager, RunnableGroup},
    tasks::Tasks,
};
use std::{net::SocketAddr, sync::Arc};

/// Adds the secure port to a manager, with `routes`, the program's `pages` and its health `checks`. Returns its
/// address. The port is bound at once, so that a port in use is reported at the start. Standbys serve it too.
///
/// # Errors
/// Fails if a certificate or a kubeconfig cannot be read, or the port cannot be bound. Also fails if the ConfigMap
/// with the CAs cannot be read, unless the options tolerate that.
pub async fn add(
    manager: &Manager,
    program: &str,
    options: &ServingOptions,
    routes: Routes,
    pages: Pages,
    checks: Checks,
    clock: &Clock,
) -> Result<SocketAddr> {
    let trust = Trust::default();
    let queues = &manager.env().metrics.queues;
    let tls = Arc::new(tls::tls(program, options, &trust)?.counting(queues));
    let guard::Guarded { guard, lookup, reloads } =
        guard::of(manager, program, options, &trust, clock).await?;
    let routes = pages.add_to(checks.add_to(routes), program);
    let address = SocketAddr::new(options.address, options.port);
    let listener = secure_serving::listen(address, options.share_address, options.share_port)
        .with_context(|| format!("failed to listen on {address}"))?;
    let address = listener.local_addr()?;
    tracing::info!(%address, "Serving securely");
    let streams = ServerOptions { http2_streams: options.http2_streams.unwrap_or_default() };
    let clock = clock.clone();
    manager.add(RunnableGroup::HttpServers, "secure port", move |running| async move {
        let tasks = Tasks::under(running.token());
        if let Some(lookup) = &lookup {
            lookup.follow(&trust, &tasks);
        }
        for reload in reloads {
            tasks.spawn_until_cancelled("credentials for reviews", reload.run());
        }
        running.ready();
        secure_serving::serve(listener, tls, routes, guard, streams, clock, running.token()).await;
        tasks.join().await;
        Ok(())
    });
    Ok(address)
}
