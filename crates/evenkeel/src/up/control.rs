//! A socket beside the kubeconfig at which this process can be asked what its controllers are at (`evenkeel explain`).

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

/// The socket; its file goes when this is dropped.
pub(super) struct Control(PathBuf);

impl Drop for Control {
    fn drop(&mut self) {
        // It may have been taken away already; a file without a listener does no harm.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Listens at `path`, which only this user may connect to, for questions about the cluster at `url`.
///
/// # Errors
/// When the socket cannot be made.
pub(super) fn start(
    path: &Path,
    url: &str,
    introspection: Introspection,
    tasks: &Tasks,
) -> Result<Control> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot replace {}", path.display()));
        }
        _ => {}
    }
    let listener =
        UnixListener::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .with_context(|| format!("cannot keep {} to its owner", path.display()))?;
    let asked = Arc::new((url.to_owned(), introspection));
    let connections = tasks.clone();
    tasks.spawn_until_cancelled("control socket", async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let asked = Arc::clone(&asked);
                    connections.spawn_until_cancelled("control connection", async move {
                        let answer = service_fn(|request| {
                            let answer = answer(&request, &asked.0, &asked.1);
                            async move { Ok::<_, Infallible>(answer) }
                        });
                        let server = auto::Builder::new(TokioExecutor::new());
                        // Who asked has gone, most likely; nobody is left to be told.
                        let _ = server.serve_connection(TokioIo::new(stream), answer).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "control connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    });
    Ok(Control(path.to_owned()))
}

fn answer(
    request: &Request<Incoming>,
    url: &str,
    introspection: &Introspection,
) -> Response<Full<Bytes>> {
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    let name = path.strip_prefix(ROOT).and_then(|rest| match rest {
        "" => Some(""),
        rest => rest.strip_prefix('/'),
    });
    let answer = match (request.method(), path, name) {
        (&Method::GET, "/cluster", _) => {
            secure_serving::answer(StatusCode::OK, "text/plain", url.to_owned())
        }
        (&Method::GET, _, Some(name)) => introspection.answer(name, query),
        _ => secure_serving::plain(StatusCode::NOT_FOUND, "404 page not found"),
    };
    answer.map(Full::new)
}
