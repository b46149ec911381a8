//! What the secure port serves.

use crate::{metrics::Exposition, options::ServingOptions};
use anyhow::{Context, Result};
use evenkeel_runtime::{
    client::{self, ConnectOptions},
    clock::Clock,
    manager::{Group, Manager},
    serve::{self, Certificate, Guard, ReviewTimes, Reviews, Routes},
};
use std::{net::SocketAddr, path::Path};
use tokio::net::TcpListener;

/// Adds the secure port to a manager. The port is taken at once, so that a port in use is told at the start.
///
/// # Errors
/// When a certificate or a kubeconfig cannot be read, or the port cannot be listened on.
pub async fn add(
    manager: &Manager,
    program: &str,
    serving: &ServingOptions,
    exposition: &Exposition,
    clock: &Clock,
) -> Result<()> {
    let certificate = match (&serving.certificate, &serving.cert_dir) {
        (Some((certificate, key)), _) => {
            Certificate::from_files(Path::new(certificate), Path::new(key))?
        }
        (None, folder) => {
            let names =
                ["localhost".to_owned(), "127.0.0.1".to_owned(), serving.address.to_string()];
            Certificate::self_signed(
                &names,
                folder.as_deref().map(|folder| (Path::new(folder), program)),
            )?
        }
    };
    let tls = serve::server_config(certificate, serving.client_ca.as_deref().map(Path::new))?;
    let times = ReviewTimes {
        token: serving.token_ttl,
        granted: serving.granted_ttl,
        denied: serving.denied_ttl,
    };
    let authentication =
        reviews(program, serving.authentication_kubeconfig.as_deref(), clock, times)
            .await
            .context("--authentication-kubeconfig")?;
    let authorization = reviews(program, serving.authorization_kubeconfig.as_deref(), clock, times)
        .await
        .context("--authorization-kubeconfig")?;
    let guard = Guard::new(serving.always_allow.clone(), authentication, authorization)
        .counting(&serve::Metrics::register(manager.registry()));
    let health = manager.health().clone();
    exposition.follow(&health);
    let routes = Routes::new().get("/healthz", move |request| {
        health.answer("healthz", request.uri().query().unwrap_or_default()).map(bytes::Bytes::from)
    });
    let routes = exposition.routes(routes);
    let address = SocketAddr::new(serving.address, serving.port);
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    manager.add(Group::Serving, "secure port", move |running| async move {
        running.ready();
        serve::serve(listener, tls, routes, guard, running.token()).await;
        Ok(())
    });
    Ok(())
}

async fn reviews(
    program: &str,
    kubeconfig: Option<&str>,
    clock: &Clock,
    times: ReviewTimes,
) -> Result<Option<Reviews>> {
    let Some(path) = kubeconfig else { return Ok(None) };
    let options = ConnectOptions {
        kubeconfig: Some(path.into()),
        user_agent: program.to_owned(),
        qps: -1.0,
        ..ConnectOptions::default()
    };
    Ok(Some(Reviews::new(client::connect(options, clock.clone()).await?, clock.clone(), times)))
}
