//! Runs a webhook server in a manager: certificates, listener and readiness check.

use super::{
    Shared, WebhookServer,
    answer::CONVERT,
    certificates::{Source, Watches},
    listen,
    metrics::Metrics,
};
use crate::{
    clock::Clock,
    controller::Env,
    manager::{Manager, RunContext, RunnableGroup, Setup},
    tasks::Tasks,
};
use std::{error::Error, sync::Arc, time::Duration};

/// Time that the tasks of the certificates have to stop after the listener has stopped.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

impl Manager {
    /// Adds a webhook server. The server runs in every replica, starts before the caches, and stops after all other parts.
    /// The readiness check `webhooks` fails until the server serves. If the [`Setup`] opens no ports, the manager only
    /// maintains the server's certificates, and [`WebhookServer::handle`] handles requests.
    ///
    /// ```no_run
    /// use evenkeel_runtime::{manager::Manager, webhook::{Certificates, WebhookServer}};
    ///
    /// # fn run(manager: &Manager) {
    /// let hooks = WebhookServer::new(9443, Certificates::folder("/certs"));
    /// manager.add_webhooks(hooks);
    /// # }
    /// ```
    pub fn add_webhooks(&self, hooks: WebhookServer) {
        let metrics = Metrics::register(self.registry());
        let WebhookServer { port, address, certificates, shared } = hooks;
        shared.routes.instrument(self.env().clock.clone(), metrics.clone());
        let setup = self.setup();
        let opens_ports = setup.is_none_or(Setup::opens_ports);
        let namespace = match setup {
            Some(setup) => setup.namespace().map(str::to_owned),
            None => Setup::of_process().ok().and_then(|setup| setup.namespace().map(str::to_owned)),
        };
        let source = certificates.source(namespace.as_deref());
        let checked = Arc::clone(&shared);
        self.readiness().add("webhooks", move || {
            if checked.served.is_empty() {
                return Err("there is no certificate yet".to_owned());
            }
            if opens_ports && checked.local_port.get().is_none() {
                return Err("the webhook server has not been started yet".to_owned());
            }
            Ok(())
        });
        // Every replica serves webhooks, so each replica maintains the certificates, even if it is not the leader. The
        // leader fence must not stop these writes.
        let client = self.unfenced_client().clone();
        let env = Env { client, shards: None, ..self.env().clone() };
        self.add(RunnableGroup::HttpServers, "webhooks", move |context| async move {
            let listen_on = opens_ports.then_some((address, port).into());
            run(source?, &env, metrics, listen_on, &shared, context).await
        });
    }
}

/// Maintains the certificates, and serves webhooks on `listen_on` once there is a certificate. Returns when `context` is
/// stopped.
///
/// # Errors
/// Fails if the source of the certificates cannot start, or the port cannot be opened.
async fn run(
    source: Source,
    env: &Env,
    metrics: Metrics,
    listen_on: Option<std::net::SocketAddr>,
    shared: &Arc<Shared>,
    context: RunContext,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (tasks, stop) = (Tasks::new(), context.token());
    let watches = Watches::of_paths(&shared.routes.paths());
    source.start(env, metrics, watches, &shared.served, &tasks)?;
    let ready = stop.run_until_cancelled(shared.served.filled()).await;
    if ready.is_some() {
        match listen_on {
            Some(address) => {
                let tls = listen::tls_config(&shared.served)?;
                let listener = evenkeel_listener::listen(address, false, false)
                    .map_err(|error| format!("cannot listen on {address}: {error}"))?;
                let local_port = listener.local_addr()?.port();
                let _ = shared.local_port.set(local_port);
                context.ready();
                tracing::info!(port = local_port, paths = ?shared.routes.paths(), "serving webhooks");
                let clock: Clock = env.clock.clone();
                listen::serve(listener, tls, Arc::clone(shared), clock, stop).await;
            }
            None => {
                context.ready();
                context.stopped().await;
            }
        }
    }
    tasks.shut_down(SHUTDOWN_TIMEOUT).await;
    Ok(())
}

impl Watches {
    /// Returns the kinds of objects whose `caBundle` must be kept current for these paths. A path from
    /// [`WebhookServer::admits`] counts for both mutating and validating webhooks, because either kind may use it.
    fn of_paths(paths: &[String]) -> Self {
        let is_mutating = |path: &&String| path.starts_with("/mutate-");
        let is_validating = |path: &&String| path.starts_with("/validate-");
        let is_custom =
            |path: &&String| !is_mutating(path) && !is_validating(path) && path.as_str() != CONVERT;
        let custom = paths.iter().any(|path| is_custom(&path));
        Self {
            mutating: custom || paths.iter().any(|path| is_mutating(&path)),
            validating: custom || paths.iter().any(|path| is_validating(&path)),
            conversions: paths.iter().any(|path| path == CONVERT),
        }
    }
}
