//! Interface to the kubelets, which serve containers' logs, execute commands in containers, and connect to their ports.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use evenkeel_api::time::Timestamp;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::io::DuplexStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinError;

/// Line of a container's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Time at which the container printed the line.
    pub time: Timestamp,
    /// Text of the line with its newline. Only the last line may lack the newline.
    pub text: String,
}

/// Standard streams of a process in a container, at the server's end.
#[derive(Debug)]
pub struct Streams {
    /// Standard input from the client, closed at its end. `None` if the client sends no input.
    pub stdin: Option<mpsc::Receiver<Bytes>>,
    /// Output to the client, closed when the client disconnects.
    pub output: mpsc::Sender<Output>,
    /// Whether the process has a terminal.
    pub tty: bool,
}

/// Connection to a server in a pod or of a kubelet, which runs in the same process.
pub struct PodConnection {
    /// Client's end. The server closes it when it ends.
    pub stream: DuplexStream,
    /// Future that runs the server. The caller must poll it while it uses the stream.
    pub server: BoxFuture<'static, ()>,
}

impl fmt::Debug for PodConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PodConnection").finish_non_exhaustive()
    }
}

/// Chunk of a process's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Whether the process wrote the chunk to standard error instead of standard output.
    pub to_stderr: bool,
    /// Bytes of the chunk.
    pub bytes: Bytes,
}

/// Error of a command or an attachment that did not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The container does not run.
    #[error("container not found ({})", evenkeel_apimachinery::status::quote(.0))]
    NoContainer(String),
    /// The container runtime failed with this message.
    #[error("{0}")]
    Failed(String),
}

/// Interface to the kubelets of all nodes of a cluster.
///
/// Upstream: `ConnectionInfoGetter`, and the kubelet's `containerLogs`, `getExec`.
pub trait Kubelet: Send + Sync {
    /// Returns the lines that a container has printed so far, or with `previous` the lines of its run before the last
    /// restart. Returns no lines if the container had no such run. The call may block.
    fn container_log(&self, pod: PodRef<'_>, container: &str, previous: bool) -> Vec<LogLine>;

    /// Streams the lines after the first `n_skipped` ones as the container prints them, until the container ends.
    fn follow_log(
        &self,
        pod: PodRef<'_>,
        container: &str,
        previous: bool,
        n_skipped: usize,
    ) -> BoxStream<'static, LogLine>;

    /// Executes a command in a running container until it ends, and returns its exit code. Dropping the future kills
    /// the command.
    fn exec(
        &self,
        pod: PodRef<'_>,
        container: &str,
        command: Vec<String>,
        streams: Streams,
    ) -> BoxFuture<'static, Result<i32, StreamError>>;

    /// Connects the streams to a container's process until the process ends.
    fn attach(
        &self,
        pod: PodRef<'_>,
        container: &str,
        streams: Streams,
    ) -> BoxFuture<'static, Result<(), StreamError>>;

    /// Connects to a TCP port of a pod; `None` if no process listens on it.
    fn connect(&self, pod: PodRef<'_>, port: u16) -> Option<PodConnection>;

    /// Connects to the server of a node's kubelet; `None` if the node does not exist.
    fn connect_node(&self, node: &str) -> Option<PodConnection>;
}

/// Reference to a pod by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodRef<'a> {
    /// `metadata.namespace` of the pod.
    pub namespace: &'a str,
    /// `metadata.name` of the pod.
    pub name: &'a str,
}

/// Maximum number of concurrent log reads. Further requests wait.
const MAX_LOG_READS: usize = 2;

/// Connected kubelets; a new server has none.
pub(crate) struct Kubelets {
    connected: RwLock<Option<Arc<dyn Kubelet>>>,
    log_reads: Arc<Semaphore>,
}

impl Default for Kubelets {
    fn default() -> Self {
        Self { connected: RwLock::default(), log_reads: Arc::new(Semaphore::new(MAX_LOG_READS)) }
    }
}

impl Kubelets {
    pub(crate) fn connect(&self, kubelet: Arc<dyn Kubelet>) {
        *self.connected.write().unwrap_or_else(PoisonError::into_inner) = Some(kubelet);
    }

    pub(crate) fn get(&self) -> Option<Arc<dyn Kubelet>> {
        self.connected.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads a container's log on a thread for blocking work, because the read may take long.
    pub(crate) async fn container_log(
        &self,
        kubelet: &Arc<dyn Kubelet>,
        pod: PodRef<'_>,
        container: &str,
        previous: bool,
    ) -> Vec<LogLine> {
        // This never fails, because no code closes the semaphore.
        let permit = self.log_reads.clone().acquire_owned().await.ok();
        let (kubelet, container) = (kubelet.clone(), container.to_owned());
        let (namespace, name) = (pod.namespace.to_owned(), pod.name.to_owned());
        #[expect(clippy::disallowed_methods, reason = "the request resumes its panic")]
        let read = tokio::task::spawn_blocking(move || {
            // The read occupies its permit until it ends, even if the request has ended.
            let _permit = permit;
            let pod = PodRef { namespace: &namespace, name: &name };
            kubelet.container_log(pod, &container, previous)
        });
        match read.await.map_err(JoinError::try_into_panic) {
            Ok(lines) => lines,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            // The runtime shuts down.
            Err(Err(_)) => Vec::new(),
        }
    }
}

impl fmt::Debug for Kubelets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubelets").field("connected", &self.get().is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Kubelet whose log reads end only when [`MAX_LOG_READS`] of them run concurrently.
    struct Slow {
        together: Barrier,
        reading: AtomicUsize,
        max_reading: AtomicUsize,
    }

    impl Kubelet for Slow {
        fn container_log(&self, pod: PodRef<'_>, container: &str, _: bool) -> Vec<LogLine> {
            assert_ne!(pod.name, "panics");
            let reading = self.reading.fetch_add(1, Ordering::SeqCst) + 1;
            self.max_reading.fetch_max(reading, Ordering::SeqCst);
            self.together.wait();
            self.reading.fetch_sub(1, Ordering::SeqCst);
            let text = format!("{}/{} {container}\n", pod.namespace, pod.name);
            vec![LogLine { time: Timestamp::UNIX_EPOCH, text }]
        }

        fn follow_log(
            &self,
            _: PodRef<'_>,
            _: &str,
            _: bool,
            _: usize,
        ) -> BoxStream<'static, LogLine> {
            Box::pin(futures::stream::empty())
        }

        fn exec(
            &self,
            _: PodRef<'_>,
            container: &str,
            _: Vec<String>,
            _: Streams,
        ) -> BoxFuture<'static, Result<i32, StreamError>> {
            Box::pin(std::future::ready(Err(StreamError::NoContainer(container.to_owned()))))
        }

        fn attach(
            &self,
            _: PodRef<'_>,
            _: &str,
            _: Streams,
        ) -> BoxFuture<'static, Result<(), StreamError>> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn connect(&self, _: PodRef<'_>, _: u16) -> Option<PodConnection> {
            None
        }

        fn connect_node(&self, _: &str) -> Option<PodConnection> {
            None
        }
    }

    #[tokio::test]
    async fn concurrent_log_reads_are_limited_and_do_not_block_the_worker() {
        let slow = Arc::new(Slow {
            together: Barrier::new(MAX_LOG_READS),
            reading: AtomicUsize::new(0),
            max_reading: AtomicUsize::new(0),
        });
        let (kubelets, kubelet) = (Kubelets::default(), slow.clone() as Arc<dyn Kubelet>);
        let names: Vec<String> = (0..MAX_LOG_READS * 5).map(|n| format!("p{n}")).collect();
        let read = |name: &'static str| {
            kubelets.container_log(&kubelet, PodRef { namespace: "ns", name }, "c", false)
        };
        let reads = names.iter().map(|name| {
            kubelets.container_log(&kubelet, PodRef { namespace: "ns", name }, "c", false)
        });
        let logs = futures::future::join_all(reads).await;
        for (name, log) in names.iter().zip(logs) {
            assert_eq!(log[0].text, format!("ns/{name} c\n"));
        }
        assert_eq!(slow.max_reading.load(Ordering::SeqCst), MAX_LOG_READS);
        let panicked = evenkeel_tasks::catch_panic(read("panics")).await;
        assert!(panicked.is_err());
    }
}
