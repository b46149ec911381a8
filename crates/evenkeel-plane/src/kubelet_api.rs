//! Simulated nodes as kubelets of an embedded API server.

use crate::Plane;
use evenkeel_apiserver::{
    Kubelet, LogLine, Output, PodConnection, PodRef, Server, StreamError, Streams,
};
use evenkeel_nodes::{AttachRequest, Chunk, ContainerRef, ExecError, ExecRequest, Kubelets};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::BoxStream};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Connects the server to the plane's nodes, which return logs, execute commands, and connect to ports.
pub(super) fn connect(server: &Server, plane: &Plane) {
    server.connect_kubelet(Arc::new(SimulatedKubelets(plane.kubelets().clone())));
}

/// Kubelets of the simulated nodes, as the API server calls them.
struct SimulatedKubelets(Kubelets);

impl Kubelet for SimulatedKubelets {
    fn container_log(&self, pod: PodRef<'_>, container: &str, previous: bool) -> Vec<LogLine> {
        let lines = self.0.log(&container_ref(pod, container, previous)).unwrap_or_default();
        lines.into_iter().map(log_line).collect()
    }

    fn follow_log(
        &self,
        pod: PodRef<'_>,
        container: &str,
        previous: bool,
        seen: usize,
    ) -> BoxStream<'static, LogLine> {
        self.0.follow(container_ref(pod, container, previous), seen).map(log_line).boxed()
    }

    fn exec(
        &self,
        pod: PodRef<'_>,
        container: &str,
        command: Vec<String>,
        streams: Streams,
    ) -> BoxFuture<'static, Result<i32, StreamError>> {
        let (kubelets, container) = (self.0.clone(), container_ref(pod, container, false));
        with_output(streams, move |streams, tty| async move {
            kubelets.exec(ExecRequest { container, command, tty, streams }).await
        })
        .boxed()
    }

    fn attach(
        &self,
        pod: PodRef<'_>,
        container: &str,
        streams: Streams,
    ) -> BoxFuture<'static, Result<(), StreamError>> {
        let (kubelets, container) = (self.0.clone(), container_ref(pod, container, false));
        with_output(streams, move |streams, tty| async move {
            kubelets.attach(AttachRequest { container, tty, streams }).await
        })
        .boxed()
    }

    fn connect(&self, pod: PodRef<'_>, port: u16) -> Option<PodConnection> {
        self.0.connect(pod.namespace, pod.name, port).map(pod_connection)
    }

    fn connect_node(&self, node: &str) -> Option<PodConnection> {
        self.0.connect_node(node).map(pod_connection)
    }
}

fn pod_connection(connection: evenkeel_nodes::Connection) -> PodConnection {
    PodConnection { stream: connection.stream, server: connection.server }
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

/// Converts an error to the text of a container runtime.
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
