//! Simulated nodes as kubelets of an embedded API server.

use crate::Plane;
use evenkeel_apiserver::{
    Kubelet, LogLine, Output, PodConnection, PodRef, Server, StreamError, Streams,
};
use evenkeel_nodes::{AttachRequest, Chunk, ContainerRef, ExecError, ExecRequest, Kubelets};
use futures::{
    FutureExt, StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use std::sync::Arc;
use tokio::{runtime::Handle, sync::mpsc};
use tokio_util::context::TokioContext;

/// Connects the server to the plane's nodes, which return logs, execute commands, and connect to ports.
pub(super) fn connect(server: &Server, plane: &Plane) {
    let (kubelets, runtime) = (plane.kubelets().clone(), plane.runtime().clone());
    server.connect_kubelet(Arc::new(SimulatedKubelets { kubelets, runtime }));
}

/// Kubelets of the simulated nodes, as the API server calls them: within the runtime whose time they follow.
struct SimulatedKubelets {
    kubelets: Kubelets,
    runtime: Handle,
}

impl SimulatedKubelets {
    /// Polls a future within the runtime of the kubelets.
    fn within<F: Future + Send + 'static>(&self, future: F) -> BoxFuture<'static, F::Output> {
        TokioContext::new(future, self.runtime.clone()).boxed()
    }

    fn pod_connection(&self, connection: evenkeel_nodes::Connection) -> PodConnection {
        PodConnection { stream: connection.stream, server: self.within(connection.server) }
    }
}

impl Kubelet for SimulatedKubelets {
    fn container_log(&self, pod: PodRef<'_>, container: &str, previous: bool) -> Vec<LogLine> {
        let _context = self.runtime.enter();
        let lines = self.kubelets.log(&container_ref(pod, container, previous));
        lines.unwrap_or_default().into_iter().map(log_line).collect()
    }

    fn follow_log(
        &self,
        pod: PodRef<'_>,
        container: &str,
        previous: bool,
        seen: usize,
    ) -> BoxStream<'static, LogLine> {
        let lines = self.kubelets.follow(container_ref(pod, container, previous), seen);
        let runtime = self.runtime.clone();
        stream::unfold(lines.map(log_line).boxed(), move |mut lines| {
            let next = async move { Some((lines.next().await?, lines)) };
            TokioContext::new(next, runtime.clone())
        })
        .boxed()
    }

    fn exec(
        &self,
        pod: PodRef<'_>,
        container: &str,
        command: Vec<String>,
        streams: Streams,
    ) -> BoxFuture<'static, Result<i32, StreamError>> {
        let (kubelets, container) = (self.kubelets.clone(), container_ref(pod, container, false));
        self.within(with_output(streams, move |streams, tty| async move {
            kubelets.exec(ExecRequest { container, command, tty, streams }).await
        }))
    }

    fn attach(
        &self,
        pod: PodRef<'_>,
        container: &str,
        streams: Streams,
    ) -> BoxFuture<'static, Result<(), StreamError>> {
        let (kubelets, container) = (self.kubelets.clone(), container_ref(pod, container, false));
        self.within(with_output(streams, move |streams, tty| async move {
            kubelets.attach(AttachRequest { container, tty, streams }).await
        }))
    }

    fn connect(&self, pod: PodRef<'_>, port: u16) -> Option<PodConnection> {
        let _context = self.runtime.enter();
        let connection = self.kubelets.connect(pod.namespace, pod.name, port)?;
        Some(self.pod_connection(connection))
    }

    fn connect_node(&self, node: &str) -> Option<PodConnection> {
        let _context = self.runtime.enter();
        Some(self.pod_connection(self.kubelets.connect_node(node)?))
    }
}

/// Runs a process with the streams of the nodes, and forwards its output.
async fn with_output<T, F>(
    streams: Streams,
    start: impl FnOnce(evenkeel_nodes::Streams, bool) -> F,
) -> Result<T, StreamError>
where
    F: Future<Output = Result<T, ExecError>>,
{
    let Streams { stdin, output, tty } = streams;
    let (sender, mut chunks) = mpsc::channel(1);
    let process = start(evenkeel_nodes::Streams { stdin, output: sender }, tty);
    let forward = async {
        while let Some(Chunk { to_stderr, bytes }) = chunks.recv().await {
            if output.send(Output { to_stderr, bytes }).await.is_err() {
                // The client is gone. The process notices it at its next write.
                chunks.close();
            }
        }
    };
    let (ended, ()) = futures::join!(process, forward);
    ended.map_err(stream_error)
}

/// Converts an error to the message of a container runtime.
fn stream_error(error: ExecError) -> StreamError {
    match error {
        ExecError::NoContainer(container) => StreamError::NoContainer(container),
        ExecError::NoProgram(program) => StreamError::Failed(format!(
            "failed to exec in container: OCI runtime exec failed: exec failed: unable to start container process: exec: {program:?}: executable file not found in $PATH"
        )),
        ExecError::Unreadable(why) => StreamError::Failed(why),
    }
}

fn container_ref(pod: PodRef<'_>, container: &str, previous: bool) -> ContainerRef {
    ContainerRef {
        namespace: pod.namespace.to_owned(),
        pod: pod.name.to_owned(),
        name: container.to_owned(),
        previous,
    }
}

fn log_line(line: evenkeel_nodes::LogLine) -> LogLine {
    LogLine { time: line.time, text: line.text }
}
