//! Facts of a pod: the pod as its kubelet observes it, the input of its plan.

use evenkeel_api::time::Timestamp;
use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use super::memory::{Group, ShellExit};
use crate::behaviour::Script;
use evenkeel_shell::{Files, Process, Processes};

/// Pod as its kubelet observes it.
#[derive(Debug, Clone)]
pub(crate) struct Facts<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) generation: i64,
    /// End of the grace period once the pod is deleted (`deletionTimestamp`).
    pub(crate) deletion: Option<Timestamp>,
    /// Maximum run time of the pod (`activeDeadlineSeconds`).
    pub(crate) deadline: Option<Duration>,
    /// Grace period: `deletionGracePeriodSeconds`, else `terminationGracePeriodSeconds`, else 30 s.
    pub(crate) grace: Duration,
    /// IP address of the node.
    pub(crate) host_ip: Ipv4Addr,
    /// Init containers, including sidecars, in the order of the spec.
    pub(crate) inits: Vec<Container<'a>>,
    /// Main containers, in the order of the spec.
    pub(crate) mains: Vec<Container<'a>>,
    /// Ephemeral containers, in the order of the spec.
    pub(crate) ephemerals: Vec<Container<'a>>,
    /// Readiness gates, each with the status of its condition; `None` if the pod lacks the condition.
    pub(crate) gates: Vec<(&'a str, Option<&'a str>)>,
    /// Whether the pod's volumes can be mounted. No container starts before.
    pub(crate) mounted: bool,
    /// Rejection by the node; `None` if the node admits the pod.
    pub(crate) rejection: Option<Rejection>,
    /// Hash of the errors in the pod's simulation annotations (0 without errors), and the errors.
    pub(crate) annotation_errors: (u64, Vec<String>),
    /// Whether to record the normal events `Started` and `Killing`.
    pub(crate) normal_events: bool,
    /// Files that pods wrote to the node.
    pub(crate) node_files: Arc<Files>,
    /// Exits of the containers' shells that ended on input of attached clients.
    pub(crate) exits: Vec<ShellExit>,
}

impl<'a> Facts<'a> {
    /// Adds the containers' processes and the node's files.
    pub(crate) fn with_processes(
        mut self,
        processes: &'a Processes,
        node_files: Arc<Files>,
    ) -> Self {
        let containers = self.inits.iter_mut().chain(&mut self.mains);
        for container in containers.chain(&mut self.ephemerals) {
            container.process = processes.get(container.name);
        }
        self.node_files = node_files;
        self
    }

    /// Adds the times when the node has the containers' images.
    pub(crate) fn with_images(mut self, image_at: impl Fn(&str) -> Option<Timestamp>) -> Self {
        let containers = self.inits.iter_mut().chain(&mut self.mains);
        for container in containers.chain(&mut self.ephemerals) {
            container.image_at = image_at(container.image);
        }
        self
    }

    /// Returns the containers of a group, in the order of the spec.
    pub(crate) fn group(&self, group: Group) -> &[Container<'a>] {
        match group {
            Group::Init => &self.inits,
            Group::Main => &self.mains,
            Group::Ephemeral => &self.ephemerals,
        }
    }
}

/// Container as its kubelet observes it.
#[derive(Debug, Clone)]
pub(crate) struct Container<'a> {
    pub(crate) name: &'a str,
    pub(crate) image: &'a str,
    /// Time when the node has the image; in the future while the image is being pulled. `None` without the image.
    pub(crate) image_at: Option<Timestamp>,
    /// Whether the container is a sidecar: an init container that keeps running (`restartPolicy: Always`).
    pub(crate) sidecar: bool,
    /// Restart policy of the container, or of the pod if the container has none.
    pub(crate) restart_policy: RestartPolicy,
    pub(crate) script: Script,
    /// Process of the container; `None` if the interpreter does not understand its command.
    pub(crate) process: Option<&'a Process>,
}

/// Restart policy of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

impl RestartPolicy {
    /// Parses a restart policy; an unknown one is `Always`.
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "OnFailure" => Self::OnFailure,
            "Never" => Self::Never,
            _ => Self::Always,
        }
    }

    /// Returns whether a container with this exit code restarts.
    pub(crate) fn restarts_after(self, exit_code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => exit_code != 0,
            Self::Never => false,
        }
    }
}

/// Rejection of a pod that the node does not admit (`status.reason` and `status.message`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reason: RejectionReason,
    pub(crate) message: String,
}

/// Reason of a rejection: an exhausted resource, or a host port in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RejectionReason {
    Pods,
    Cpu,
    Memory,
    EphemeralStorage,
    /// An extended resource, which the message names.
    Extended,
    Ports,
}

impl RejectionReason {
    /// Returns upstream's reason in status and event.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pods => "OutOfpods",
            Self::Cpu => "OutOfcpu",
            Self::Memory => "OutOfmemory",
            Self::EphemeralStorage => "OutOfephemeral-storage",
            Self::Extended => "UnexpectedAdmissionError",
            Self::Ports => "NodePorts",
        }
    }
}
