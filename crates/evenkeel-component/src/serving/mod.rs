//! Secure serving of a component: TLS, delegated authentication and authorization, health checks, and debug endpoints
//! (`/configz`, `/flagz`, `/statusz`, `/debug/pprof`).

mod guard;
mod health;
mod pages;
mod tls;
mod zpages;

pub use health::{Checks, leader_election, supervised_tasks};
pub use pages::Pages;
pub use tls::{browser_tls, identity};
pub use zpages::ComponentInfo;

use crate::options::ServingOptions;
use crate::secure_serving::{self, Identity, Routes, ServerOptions, Trust};
use anyhow::{Context, Result};
use evenkeel_runtime::{
    clock::Clock,
    manager::{Manager, RunnableGroup},
    tasks::Tasks,
};
use std::{net::SocketAddr, sync::Arc};

/// Adds the secure port to a manager, with the certificate of [`identity`], `routes`, the program's `pages` and its health
/// `checks`. Returns its address. The port is bound immediately, so that a port in use is reported at the start. It serves
/// before this instance becomes the leader.
///
/// # Errors
/// Fails if a certificate or a kubeconfig cannot be read, or the port cannot be bound. Also fails if the ConfigMap
/// `extension-apiserver-authentication` cannot be read or is invalid, `--requestheader-client-ca-file` is not set, and
/// `--authentication-tolerate-lookup-failure` is false.
pub async fn add(
    manager: &Manager,
    options: &ServingOptions,
    identity: Identity,
    routes: Routes,
    pages: Pages,
    checks: Checks,
    clock: &Clock,
) -> Result<SocketAddr> {
    let (program, trust) = (manager.component(), Trust::default());
    let queues = &manager.env().metrics.queues;
    let tls = Arc::new(tls::tls(identity, options, &trust)?.with_metrics(queues));
    let guard::AuthStack { guard, ca_controller, kubeconfig_reloaders } =
        guard::build(manager, program, options, &trust, clock).await?;
    let routes = pages.add_to(checks.add_to(routes), program);
    let address = SocketAddr::new(options.address, options.port);
    let listener = secure_serving::listen(address, options.share_address, options.share_port)
        .with_context(|| format!("failed to listen on {address}"))?;
    let address = listener.local_addr()?;
    tracing::info!(%address, "Serving securely");
    let server_options = ServerOptions { http2_streams: options.http2_streams.unwrap_or_default() };
    let clock = clock.clone();
    manager.add(RunnableGroup::HttpServers, "secure port", move |running| async move {
        let tasks = Tasks::under(running.token());
        if let Some(ca_controller) = &ca_controller {
            ca_controller.follow(&trust, &tasks);
        }
        for reloader in kubeconfig_reloaders {
            tasks.spawn_until_cancelled("credentials for reviews", reloader.run());
        }
        running.ready();
        secure_serving::serve(listener, tls, routes, guard, server_options, clock, running.token())
            .await;
        tasks.join().await;
        Ok(())
    });
    Ok(address)
}
