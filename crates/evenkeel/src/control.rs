//! Unix socket beside the kubeconfig that serves the introspection of this process's controllers to `evenkeel explain`.

use anyhow::{Context, Result};
use bytes::Bytes;
use evenkeel_component::secure_serving;
use evenkeel_runtime::{introspect::Introspection, tasks::Tasks};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use std::{
    convert::Infallible,
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::net::UnixListener;

const ROOT: &str = "/debug/controllers";

/// The listening socket; removes its file on drop.
pub(super) struct ControlSocket(PathBuf);

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // The file may have been removed already; a file without a listener does no harm.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Serves introspection at `path`, mode 0600; `url` is the cluster's address.
///
/// # Errors
/// When the socket cannot be made.
pub(super) fn start(
    path: &Path,
    url: &str,
    introspection: Introspection,
    tasks: &Tasks,
) -> Result<ControlSocket> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot replace {}", path.display()));
        }
        _ => {}
    }
    let listener =
        UnixListener::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .with_context(|| format!("cannot set mode 0600 on {}", path.display()))?;
    let state = Arc::new((url.to_owned(), introspection));
    let (listener, connections) = (Arc::new(listener), tasks.clone());
    tasks.spawn_restarting_until_cancelled("control socket", move || {
        accept(Arc::clone(&listener), Arc::clone(&state), connections.clone())
    });
    Ok(ControlSocket(path.to_owned()))
}

async fn accept(listener: Arc<UnixListener>, state: Arc<(String, Introspection)>, tasks: Tasks) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (state, stop) = (Arc::clone(&state), tasks.token());
                tasks.spawn_finite("control connection", async move {
                    let service = service_fn(|request| {
                        let response = handle(&request, &state.0, &state.1);
                        async move { Ok::<_, Infallible>(response) }
                    });
                    let server = auto::Builder::new(TokioExecutor::new());
                    let served = server.serve_connection(TokioIo::new(stream), service);
                    // An error usually means that the client disconnected.
                    drop(stop.run_until_cancelled(served).await);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "control connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn handle(
    request: &Request<Incoming>,
    url: &str,
    introspection: &Introspection,
) -> Response<Full<Bytes>> {
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    let name = path.strip_prefix(ROOT).and_then(|rest| match rest {
        "" => Some(""),
        rest => rest.strip_prefix('/'),
    });
    let response = match (request.method(), path, name) {
        (&Method::GET, "/cluster", _) => {
            secure_serving::answer(StatusCode::OK, "text/plain", url.to_owned())
        }
        (&Method::GET, _, Some(name)) => introspection.answer(name, query),
        _ => secure_serving::plain(StatusCode::NOT_FOUND, "404 page not found"),
    };
    response.map(Full::new)
}
