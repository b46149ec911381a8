//! A listener for clients outside of the test's process, and their kubeconfig.

use evenkeel_apiserver::Server;
use evenkeel_runtime::tasks::Tasks;
use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::net::TcpListener;

/// Maximum time for open requests to complete when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Error of serving clients outside of the test's process.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// No port can be opened.
    #[error("cannot listen on 127.0.0.1: {0}")]
    Listen(io::Error),
    /// The kubeconfig cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
}

/// Listening port of a server. It closes on drop.
#[derive(Debug)]
pub(crate) struct ListeningPort {
    pub(crate) url: String,
    tasks: Tasks,
}

impl ListeningPort {
    /// Serves on a free port of the loopback address.
    pub(crate) async fn start(server: Server) -> Result<Self, KubeconfigError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(KubeconfigError::Listen)?;
        let address = listener.local_addr().map_err(KubeconfigError::Listen)?;
        let tasks = Tasks::new();
        let stop = tasks.token();
        tasks.spawn_finite("API server", async move {
            // Clients notice a listener that fails.
            let _ = server.serve(listener, stop.cancelled_owned()).await;
        });
        Ok(Self { url: format!("https://{address}"), tasks })
    }

    /// Closes the port when open requests have completed, but after [`SHUTDOWN_TIMEOUT`] at the latest.
    pub(crate) async fn stop(self) {
        self.tasks.shut_down(SHUTDOWN_TIMEOUT).await;
    }
}

impl Drop for ListeningPort {
    fn drop(&mut self) {
        self.tasks.abort();
    }
}

/// Writes a kubeconfig that only its owner can read.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), KubeconfigError> {
    let failed = |source| KubeconfigError::Write { path: path.to_owned(), source };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut file =
        tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new("."))).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error)).map(drop)
}
