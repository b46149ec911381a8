//! The simulated nodes as kubelets of an embedded API server.

use crate::plane::Plane;
use evenkeel_apiserver::{Kubelet, LogLine, PodRef, Server};
use evenkeel_nodes::{ContainerRef, Kubelets};
use futures::{StreamExt, stream::BoxStream};
use std::sync::Arc;

/// Connects the server to the plane's nodes, from which it reads logs.
pub fn connect(server: &Server, plane: &Plane) {
    server.connect_kubelet(Arc::new(Simulated(plane.kubelets().clone())));
}

struct Simulated(Kubelets);

impl Kubelet for Simulated {
    fn container_log(&self, pod: PodRef<'_>, container: &str, previous: bool) -> Vec<LogLine> {
        let lines = self.0.log(&container_ref(pod, container, previous)).unwrap_or_default();
        lines.into_iter().map(line).collect()
    }

    fn follow_log(
        &self,
        pod: PodRef<'_>,
        container: &str,
        previous: bool,
        seen: usize,
    ) -> BoxStream<'static, LogLine> {
        self.0.follow(container_ref(pod, container, previous), seen).map(line).boxed()
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

fn line(line: evenkeel_nodes::LogLine) -> LogLine {
    LogLine { time: line.time, text: line.text }
}
