//! Observed facts of a pod, the input of its plan.

use evenkeel_api::time::Timestamp;
use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use super::memory::{Group, ShellExit};
use crate::behaviour::Script;
use evenkeel_shell::{Files, Process, Processes};

/// A pod as its kubelet observes it.
#[derive(Debug, Clone)]
pub(crate) struct Facts<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) generation: i64,
    /// End of the grace period once the pod is deleted (`deletionTimestamp`).
    pub(crate) deletion: Option<Timestamp>,
    /// Longest run time of the pod, `activeDeadlineSeconds`.
    pub(crate) deadline: Option<Duration>,
    /// Grace period: `deletionGracePeriodSeconds`, else `terminationGracePeriodSeconds`, else 30 s.
    pub(crate) grace: Duration,
    pub(crate) host_ip: Ipv4Addr,
    pub(crate) inits: Vec<Container<'a>>,
    pub(crate) mains: Vec<Container<'a>>,
    /// Ephemeral containers in the order of the spec.
    pub(crate) ephemerals: Vec<Container<'a>>,
    /// Readiness gates, each with the status of its condition, `None` where there is no such condition.
    pub(crate) gates: Vec<(&'a str, Option<&'a str>)>,
    /// Whether the pod's volumes can be mounted. Until then, no container starts.
    pub(crate) mounted: bool,
    /// Why the node rejects the pod; `None` if it admits the pod.
    pub(crate) refused: Option<Refusal>,
    /// Errors in the pod's annotations, with a hash of them.
    pub(crate) annotation_errors: (u64, Vec<String>),
    /// Whether to record the normal events of starts and stops.
    pub(crate) everyday_events: bool,
    /// Files that pods wrote to the node.
    pub(crate) node_files: Arc<Files>,
    /// Ends of shells to which somebody was attached.
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

    /// The containers of a group, in the spec's order.
    pub(crate) fn group(&self, group: Group) -> &[Container<'a>] {
        match group {
            Group::Init => &self.inits,
            Group::Main => &self.mains,
            Group::Ephemeral => &self.ephemerals,
        }
    }
}

/// A container as its kubelet observes it.
#[derive(Debug, Clone)]
pub(crate) struct Container<'a> {
    pub(crate) name: &'a str,
    pub(crate) image: &'a str,
    /// Whether it is a sidecar: an init container that keeps running (`restartPolicy: Always`).
    pub(crate) sidecar: bool,
    /// Restart policy of the container, else of the pod.
    pub(crate) restart: Restart,
    pub(crate) script: Script,
    /// Process of the container; `None` if the interpreter does not understand its command.
    pub(crate) process: Option<&'a Process>,
}

/// Restart policy of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restart {
    Always,
    OnFailure,
    Never,
}

impl Restart {
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "OnFailure" => Self::OnFailure,
            "Never" => Self::Never,
            _ => Self::Always,
        }
    }

    pub(crate) fn after(self, exit_code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => exit_code != 0,
            Self::Never => false,
        }
    }
}

/// Why a node does not admit a pod (`status.reason` and `status.message`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: Refused,
    pub(crate) message: String,
}

/// Cause of a rejection: a missing resource, or a host port in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Pods,
    Cpu,
    Memory,
    EphemeralStorage,
    /// An extended resource, which the message names.
    Extended,
    Ports,
}

impl Refused {
    /// Returns upstream's reason, as in status and event.
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
