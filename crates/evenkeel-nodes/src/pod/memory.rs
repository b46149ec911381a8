//! What a kubelet remembers of a pod between two looks at it: how each container stands and what was last written.

use evenkeel_api::{Text, time::Timestamp};
use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use evenkeel_shell::{Files, Run};

/// Everything remembered of one pod.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Memory {
    /// When the kubelet first saw it.
    pub(crate) start: Timestamp,
    /// Its address; the node's for a pod on the host's network.
    pub(crate) ip: Ipv4Addr,
    /// Whether sandbox and network are up.
    pub(crate) sandbox: bool,
    /// Init containers and sidecars, in the spec's order.
    pub(crate) inits: Box<[Slot]>,
    /// The other containers, in the spec's order.
    pub(crate) mains: Box<[Slot]>,
    /// Files of its containers and volumes.
    pub(crate) files: Arc<Files>,
    /// Set once the containers are being stopped.
    pub(crate) stopping: Option<Stopping>,
    /// What the API server has.
    pub(crate) written: Written,
    /// Hash of the annotations last complained about, 0 for none.
    pub(crate) complained: u64,
    /// Whether the node did not take it; then nothing but that is ever written.
    pub(crate) refused: bool,
    /// Whether the final deletion was sent and answered.
    pub(crate) removed: bool,
    /// Version of the object that the last write gave.
    pub(crate) version: u64,
}

/// Why and since when a pod's containers are being stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stopping {
    pub(crate) since: Timestamp,
    pub(crate) why: Why,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// Somebody deleted the pod.
    Deleted,
    /// It ran longer than `activeDeadlineSeconds`.
    Deadline,
    /// Its work is over: every main container, or an init container for good.
    Finished,
}

/// One container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) state: State,
    /// The run before this one.
    pub(crate) last: Option<Ended>,
    pub(crate) restarts: u32,
    /// How long the next restart must wait after the end of the last run, and when that was decided.
    pub(crate) backoff: Option<(Duration, Timestamp)>,
    /// What its command does in this run.
    pub(crate) doing: Doing,
    /// When this run was asked to stop.
    pub(crate) signal: Option<Timestamp>,
    /// Whether its readiness probe fails.
    pub(crate) unready: bool,
}

/// What is known of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Nobody asked yet.
    #[default]
    Unasked,
    /// Its command is not understood.
    Unknown,
    /// What it does, as far as could be told when files of pod and node had changed so often.
    Known(Arc<Run>, (u64, u64)),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// Waits for its turn.
    #[default]
    Waiting,
    /// Is being created until the given time.
    Creating {
        until: Timestamp,
    },
    /// The image could not be pulled; tried again at the given time.
    PullError {
        until: Timestamp,
    },
    /// Gave up on the image until the pod changes.
    PullBackOff,
    Running {
        since: Timestamp,
    },
    /// Crashed and will run again at the given time.
    BackOff {
        until: Timestamp,
    },
    Ended(Ended),
}

/// A run that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    /// `None` when it never ran.
    pub(crate) started: Option<Timestamp>,
    pub(crate) finished: Timestamp,
    pub(crate) exit_code: i32,
    /// Whether it was killed for outliving its grace.
    pub(crate) killed: bool,
}

/// What the API server has of what the kubelet writes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Written {
    pub(crate) phase: Phase,
    pub(crate) generation: i64,
    /// `startTime`, `hostIP` and `hostIPs`.
    pub(crate) begun: bool,
    /// `podIP` and `podIPs`.
    pub(crate) address: bool,
    /// Hash of `initContainerStatuses`, 0 for none.
    pub(crate) inits: u64,
    /// Hash of `containerStatuses`, 0 for none.
    pub(crate) mains: u64,
    /// In the order of [`Kind::ALL`].
    pub(crate) conditions: [Option<Condition>; 4],
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl Phase {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            _ => Self::Pending,
        }
    }

    pub(crate) fn terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// The conditions a kubelet owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    ReadyToStartContainers,
    Initialized,
    Ready,
    ContainersReady,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] =
        [Self::ReadyToStartContainers, Self::Initialized, Self::Ready, Self::ContainersReady];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::ReadyToStartContainers => "PodReadyToStartContainers",
            Self::Initialized => "Initialized",
            Self::Ready => "Ready",
            Self::ContainersReady => "ContainersReady",
        }
    }
}

/// One condition.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Condition {
    pub(crate) status: bool,
    pub(crate) reason: Text,
    pub(crate) message: Text,
    pub(crate) since: Timestamp,
    pub(crate) generation: i64,
}

impl Memory {
    /// Of a pod that no kubelet has touched.
    pub(crate) fn fresh(n_inits: usize, n_mains: usize, ip: Ipv4Addr, now: Timestamp) -> Self {
        Self {
            start: now,
            ip,
            sandbox: false,
            inits: vec![Slot::default(); n_inits].into(),
            mains: vec![Slot::default(); n_mains].into(),
            files: Arc::default(),
            stopping: None,
            written: Written::default(),
            complained: 0,
            refused: false,
            removed: false,
            version: 0,
        }
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.inits.iter().chain(&*self.mains)
    }
}

impl Slot {
    pub(crate) fn ended(&self) -> Option<Ended> {
        match self.state {
            State::Ended(ended) => Some(ended),
            _ => None,
        }
    }

    pub(crate) fn running(&self) -> Option<Timestamp> {
        match self.state {
            State::Running { since } => Some(since),
            _ => None,
        }
    }
}
