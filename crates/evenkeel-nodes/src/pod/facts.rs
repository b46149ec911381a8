//! What the decision about a pod may look at.

use evenkeel_api::time::Timestamp;
use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use crate::behaviour::Script;
use evenkeel_shell::{Files, Process, Processes};

/// A pod as its kubelet sees it.
#[derive(Debug, Clone)]
pub(crate) struct Facts<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) generation: i64,
    /// When its grace is over, once deletion was asked for.
    pub(crate) deletion: Option<Timestamp>,
    /// `activeDeadlineSeconds`.
    pub(crate) deadline: Option<Duration>,
    /// `terminationGracePeriodSeconds`.
    pub(crate) grace: Duration,
    pub(crate) host_ip: Ipv4Addr,
    pub(crate) inits: Vec<Container<'a>>,
    pub(crate) mains: Vec<Container<'a>>,
    /// Readiness gates, each with the status of its condition, `None` where there is no such condition.
    pub(crate) gates: Vec<(&'a str, Option<&'a str>)>,
    /// Whether its volumes can be mounted: containers start only then.
    pub(crate) mounted: bool,
    /// Set when the node refuses the pod.
    pub(crate) refused: Option<Refusal>,
    /// What is wrong with its annotations, and a hash of them.
    pub(crate) complaints: (u64, Vec<String>),
    /// Whether to tell of creations, starts and ends.
    pub(crate) everyday_events: bool,
    /// What pods left on the node.
    pub(crate) node_files: Arc<Files>,
}

impl<'a> Facts<'a> {
    /// Adds the containers' processes.
    pub(crate) fn with_processes(
        mut self,
        processes: &'a Processes,
        node_files: Arc<Files>,
    ) -> Self {
        for container in self.inits.iter_mut().chain(&mut self.mains) {
            container.process = processes.get(container.name);
        }
        self.node_files = node_files;
        self
    }
}

/// A container as its kubelet sees it.
#[derive(Debug, Clone)]
pub(crate) struct Container<'a> {
    pub(crate) name: &'a str,
    pub(crate) image: &'a str,
    /// An init container that keeps running beside the others.
    pub(crate) sidecar: bool,
    /// Its own restart policy, or the pod's.
    pub(crate) restart: Restart,
    pub(crate) script: Script,
    /// Its process; `None` when its command is not known.
    pub(crate) process: Option<&'a Process>,
}

/// When a container runs again after its end.
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

/// Why a node does not take a pod (`status.reason` and `status.message`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: Refused,
    pub(crate) message: String,
}

/// What was not to be had.
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
    /// As upstream has it in status and event.
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
