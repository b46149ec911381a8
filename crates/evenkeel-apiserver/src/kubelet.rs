//! The kubelets that the server asks for containers' logs.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use evenkeel_api::time::Timestamp;
use futures::stream::BoxStream;

/// A line in a container's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// When the container printed it.
    pub time: Timestamp,
    /// With its newline, which only the last line may lack.
    pub text: String,
}

/// The kubelets of all nodes of a cluster.
///
/// Upstream: `ConnectionInfoGetter`, and the kubelet's `containerLogs`.
pub trait Kubelet: Send + Sync {
    /// Returns what a container of a pod has printed by now; with `previous`, its run before the last restart. Empty if there is
    /// no such run.
    fn container_log(&self, pod: PodRef<'_>, container: &str, previous: bool) -> Vec<LogLine>;

    /// Returns the lines after the first `seen` ones as they are printed, until the container ends.
    fn follow_log(
        &self,
        pod: PodRef<'_>,
        container: &str,
        previous: bool,
        seen: usize,
    ) -> BoxStream<'static, LogLine>;
}

/// A pod by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodRef<'a> {
    /// `metadata.namespace` of the pod.
    pub namespace: &'a str,
    /// `metadata.name` of the pod.
    pub name: &'a str,
}

/// The kubelets that are connected; none at first.
#[derive(Default)]
pub(crate) struct Kubelets(RwLock<Option<Arc<dyn Kubelet>>>);

impl Kubelets {
    pub(crate) fn connect(&self, kubelet: Arc<dyn Kubelet>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(kubelet);
    }

    pub(crate) fn get(&self) -> Option<Arc<dyn Kubelet>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Kubelets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubelets").field("connected", &self.get().is_some()).finish()
    }
}
