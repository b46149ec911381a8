//! Unix socket beside the kubeconfig, for the user who runs this process. It serves the controllers'
//! introspection for `evenkeel explain`, saves snapshots of the API server for `evenkeel snapshot save`, and takes the
//! requests of `evenkeel down`, `status`, `reset` and `time`.

use anyhow::{Context, Result};
use bytes::Bytes;
use evenkeel::schedulers::{self, Schedulers};
use evenkeel_apiserver::Server;
use evenkeel_component::secure_serving;
use evenkeel_runtime::{
    clock::Clock,
    introspect::Introspection,
    tasks::{Tasks, watch},
};
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use std::{
    convert::Infallible,
    ffi::OsString,
    fs::Permissions,
    io,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::PermissionsExt as _,
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{net::UnixListener, runtime::Handle};

use crate::time::{self, ClusterTime, TimeReport};

const ROOT: &str = "/debug/controllers";
const SNAPSHOT: &str = "/snapshot";

/// Request of a socket's client that ends the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LifecycleRequest {
    /// Stop the cluster gracefully.
    Stop,
    /// Discard all objects and start again.
    Reset,
}

/// Returns the state of the cluster as JSON.
pub(crate) type ReportStatus = Box<dyn Fn() -> BoxFuture<'static, String> + Send + Sync>;

/// Channel from the socket to the part of the process that starts and stops the cluster.
pub(crate) struct Lifecycle {
    /// Receives the first request.
    pub(crate) requests: watch::Sender<Option<LifecycleRequest>>,
    /// Answers requests for `/status`.
    pub(crate) status: ReportStatus,
    /// Whether this process stores the objects, so that it can discard them.
    pub(crate) is_resettable: bool,
}

/// Delay after a connection that could not be accepted.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Listening socket. Its file is removed on drop.
pub(crate) struct ControlSocket(PathBuf);

/// State that the socket serves.
pub(crate) struct Served {
    /// URL of the cluster's API server.
    pub(crate) url: String,
    /// Introspection of the controllers, and the runtime whose time it follows.
    pub(crate) introspection: Option<(Introspection, Handle)>,
    /// The schedulers of the process; `None` if the process runs no components.
    pub(crate) schedulers: Option<Schedulers>,
    /// The cluster's time, if it is not the system's.
    pub(crate) time: Option<ClusterTime>,
    /// The API server, if it runs in this process.
    pub(crate) server: Option<Server>,
    pub(crate) lifecycle: Option<Lifecycle>,
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // Another process may have removed the file. A file without a listener has no effect.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Listens on a socket at `path`, with mode 0600. Replaces an existing file.
///
/// # Errors
/// Fails if the socket cannot be created.
pub(crate) fn start(path: &Path, served: Served, tasks: &Tasks) -> Result<ControlSocket> {
    let listener = bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
    let served = Arc::new(served);
    let (listener, connections) = (Arc::new(listener), tasks.clone());
    tasks.spawn_restarting_until_cancelled("control socket", move || {
        accept(Arc::clone(&listener), Arc::clone(&served), connections.clone())
    });
    Ok(ControlSocket(path.to_owned()))
}

/// Binds a socket at `path` with mode 0600. Binds it in a folder that only the user can enter and moves it afterwards,
/// because the mode of a new socket depends on the umask.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let private = tempfile::Builder::new()
        .prefix(".s")
        .rand_bytes(4)
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(folder.unwrap_or(Path::new(".")))?;
    let private_path = private.path().join("s");
    let listener = UnixListener::bind(&private_path)?;
    std::fs::set_permissions(&private_path, Permissions::from_mode(0o600))?;
    std::fs::rename(&private_path, path)?;
    Ok(listener)
}

async fn accept(listener: Arc<UnixListener>, served: Arc<Served>, tasks: Tasks) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (served, stop) = (Arc::clone(&served), tasks.token());
                tasks.spawn_finite("control connection", async move {
                    let service = service_fn(|request| {
                        let served = Arc::clone(&served);
                        async move { Ok::<_, Infallible>(handle(&request, &served).await) }
                    });
                    let server = auto::Builder::new(TokioExecutor::new());
                    let connection = server.serve_connection(TokioIo::new(stream), service);
                    // An error usually means that the client disconnected.
                    drop(stop.run_until_cancelled(connection).await);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "control connection could not be accepted");
                // Without free file descriptors, the next attempt would fail immediately.
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}

async fn handle(request: &Request<Incoming>, served: &Served) -> Response<Full<Bytes>> {
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    // Name of the controller below `ROOT`. Empty for all controllers.
    let name = path.strip_prefix(ROOT).and_then(|rest| match rest {
        "" => Some(""),
        rest => rest.strip_prefix('/'),
    });
    let lifecycle = served.lifecycle.as_ref();
    let ask = |lifecycle: &Lifecycle, request| {
        lifecycle.requests.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(request);
            is_first
        });
        secure_serving::plain(StatusCode::OK, "ok")
    };
    let response = match (request.method(), path, name) {
        (&Method::GET, "/cluster", _) => {
            secure_serving::answer(StatusCode::OK, "text/plain", served.url.clone())
        }
        (&Method::GET, _, Some(name))
            if let Some((introspection, runtime)) = &served.introspection =>
        {
            let _context = runtime.enter();
            introspection.answer(name, query)
        }
        (&Method::GET, schedulers::PATH, _) if let Some(schedulers) = &served.schedulers => {
            let schedulers = serde_json::to_string(schedulers).unwrap_or_default();
            secure_serving::answer(StatusCode::OK, "application/json", schedulers)
        }
        (&Method::POST, SNAPSHOT, _) if let Some(server) = &served.server => {
            save_snapshot(server.clone(), query).await
        }
        (&Method::GET, "/status", _) if let Some(lifecycle) = lifecycle => {
            secure_serving::answer(StatusCode::OK, "application/json", (lifecycle.status)().await)
        }
        (&Method::GET, time::PATH, _) => {
            let report = TimeReport::of(served.time.as_ref(), &Clock::system());
            let report = serde_json::to_string(&report).unwrap_or_default();
            secure_serving::answer(StatusCode::OK, "application/json", report)
        }
        (&Method::POST, time::PATH, _) => match &served.time {
            Some(time) => match time::change(time, query) {
                Ok(()) => secure_serving::plain(StatusCode::OK, "ok"),
                Err(error) => secure_serving::plain(StatusCode::BAD_REQUEST, &error.to_string()),
            },
            None => secure_serving::plain(StatusCode::CONFLICT, "the time is the system's"),
        },
        (&Method::POST, "/stop", _) if let Some(lifecycle) = lifecycle => {
            ask(lifecycle, LifecycleRequest::Stop)
        }
        (&Method::POST, "/reset", _) if let Some(lifecycle) = lifecycle => {
            if lifecycle.is_resettable {
                ask(lifecycle, LifecycleRequest::Reset)
            } else {
                let why = "its objects are another API server's and are not discarded here; delete them with kubectl";
                secure_serving::plain(StatusCode::CONFLICT, why)
            }
        }
        _ => secure_serving::plain(StatusCode::NOT_FOUND, "404 page not found"),
    };
    response.map(Full::new)
}

/// Returns the request target for saving a snapshot to a file.
pub(crate) fn snapshot_target(file: &Path) -> String {
    let file = percent_encode(file.as_os_str().as_bytes(), NON_ALPHANUMERIC);
    format!("{SNAPSHOT}?file={file}")
}

/// Saves a snapshot to the file in the query, which must be an absolute path.
async fn save_snapshot(server: Server, query: &str) -> Response<Bytes> {
    let respond = |code, why: String| secure_serving::answer(code, "text/plain", why);
    let file = query.strip_prefix("file=").map(|file| {
        let bytes: Vec<u8> = percent_decode_str(file).collect();
        PathBuf::from(OsString::from_vec(bytes))
    });
    let Some(file) = file.filter(|file| file.is_absolute()) else {
        return respond(
            StatusCode::BAD_REQUEST,
            "the file of a snapshot is not an absolute path".to_owned(),
        );
    };
    #[expect(clippy::disallowed_methods, reason = "its panic is answered")]
    let result = tokio::task::spawn_blocking(move || server.snapshot(&file)).await;
    match result {
        Ok(Ok(())) => secure_serving::plain(StatusCode::OK, "ok"),
        Ok(Err(error)) => respond(StatusCode::CONFLICT, error.to_string()),
        Err(error) => respond(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixStream;

    #[tokio::test]
    async fn the_socket_has_mode_0600_and_replaces_an_old_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("controllers.sock");
        for _ in 0..2 {
            let listener = bind(&path).expect("bound");
            let mode = path.metadata().expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let (connected, accepted) = tokio::join!(UnixStream::connect(&path), listener.accept());
            assert!(connected.is_ok() && accepted.is_ok());
        }
        let left = std::fs::read_dir(folder.path()).expect("there");
        let names: Vec<_> = left.map(|entry| entry.expect("an entry").file_name()).collect();
        assert_eq!(names, ["controllers.sock"]);
    }
}
