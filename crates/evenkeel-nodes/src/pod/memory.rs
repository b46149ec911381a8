//! Memory of a pod between two syncs: the state of each container and the last written status.

use evenkeel_api::{Text, time::Timestamp, views::Pod};
use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use evenkeel_shell::{Files, Full, Run, Scope, Write};

/// Memory of one pod.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Memory {
    /// Time of the first sync (`status.startTime`).
    pub(crate) start: Timestamp,
    /// Pod IP address; the node's address with `hostNetwork`.
    pub(crate) ip: Ipv4Addr,
    /// Whether the pod's sandbox and network are up.
    pub(crate) sandbox: bool,
    /// Init containers, including sidecars, in the order of the spec.
    pub(crate) inits: Box<[Slot]>,
    /// Main containers, in the order of the spec.
    pub(crate) mains: Box<[Slot]>,
    /// Ephemeral containers, in the order of the spec.
    pub(crate) ephemerals: Box<[Slot]>,
    /// Files of the pod's containers and volumes.
    pub(crate) files: Arc<Files>,
    /// Set while the containers are being stopped.
    pub(crate) stopping: Option<Stopping>,
    /// Status as last written to the API server.
    pub(crate) written: Written,
    /// Hash of the last reported annotation errors; 0 for none.
    pub(crate) reported_annotation_errors: u64,
    /// Whether the node rejected the pod. Its status then shows only the rejection.
    pub(crate) rejected: bool,
    /// Whether the final deletion (grace period 0) succeeded.
    pub(crate) removed: bool,
    /// resourceVersion of the pod after the last write; 0 before it.
    pub(crate) version: u64,
}

/// Returns the ID of a container's run: `UID/CONTAINER/RESTARTS`. Writes, logs and commands refer to a run by it.
pub(crate) fn run_id(uid: &str, container: &str, restarts: u32) -> String {
    format!("{uid}/{container}/{restarts}")
}

/// Writes of a command that a client executes in a container.
#[derive(Debug, Clone)]
pub(crate) struct CommandWrites {
    /// ID of the command's execution, which marks its writes.
    pub(crate) by: Arc<str>,
    /// Name of the container.
    pub(crate) container: String,
    /// Restart count of the container in the run.
    pub(crate) restarts: u32,
    /// Time at which the command began.
    pub(crate) start: Timestamp,
    /// All writes of the command; they replace those recorded before.
    pub(crate) writes: Vec<Write>,
}

/// Exit of a container's process, a shell whose input comes from attached clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShellExit {
    /// Name of the container.
    pub(crate) container: String,
    /// Restart count of the container in the run.
    pub(crate) restarts: u32,
    pub(crate) at: Timestamp,
    pub(crate) exit_code: i32,
}

/// A group of a pod's containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    /// Init containers and sidecars.
    Init,
    /// Main containers (`spec.containers`).
    Main,
    /// Ephemeral containers, which users add while the pod runs.
    Ephemeral,
}

/// State of a pod whose containers are being stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stopping {
    pub(crate) since: Timestamp,
    pub(crate) reason: StopReason,
}

/// Reason why a pod's containers are being stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// The pod was deleted.
    Deleted,
    /// The pod was active longer than `activeDeadlineSeconds`.
    Deadline,
    /// All main containers have completed, or an init container failed permanently.
    Finished,
}

/// State of one container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) state: State,
    /// End of the previous run (`lastState`).
    pub(crate) last: Option<Ended>,
    pub(crate) restarts: u32,
    /// Delay of the backoff after the next crash, with the end of the last backoff.
    pub(crate) backoff: Option<(Duration, Timestamp)>,
    /// Outcome of the container's command in this run.
    pub(crate) command: CommandState,
    /// Time at which this run received SIGTERM.
    pub(crate) signal: Option<Timestamp>,
    /// Whether the exec readiness probe fails.
    pub(crate) unready: bool,
}

/// Outcome of a container's command in one run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum CommandState {
    /// The interpreter has not evaluated the run yet.
    #[default]
    NotEvaluated,
    /// The interpreter does not understand the command.
    Unknown,
    /// Evaluated run, with the versions of the pod's and the node's files that it read.
    Known(Arc<Run>, (u64, u64)),
}

/// State of a container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// The container has not been created.
    #[default]
    Waiting,
    /// The container is being created until this time.
    Creating {
        until: Timestamp,
    },
    /// The image pull failed (`ErrImagePull`). The kubelet retries at this time.
    PullError {
        until: Timestamp,
    },
    /// The image pull failed again (`ImagePullBackOff`). The kubelet retries it only when the pod changes.
    PullBackOff,
    Running {
        since: Timestamp,
    },
    /// The container crashed, and restarts at this time (`CrashLoopBackOff`).
    BackOff {
        until: Timestamp,
    },
    Ended(Ended),
}

/// End of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Start of the run; `None` if the container never ran.
    pub(crate) started: Option<Timestamp>,
    pub(crate) finished: Timestamp,
    pub(crate) exit_code: i32,
    /// Whether SIGKILL ended it after the grace period.
    pub(crate) killed: bool,
}

/// Status fields as the kubelet last wrote them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Written {
    pub(crate) phase: Phase,
    /// Value of `observedGeneration`.
    pub(crate) generation: i64,
    /// Whether `startTime`, `hostIP` and `hostIPs` are written.
    pub(crate) start: bool,
    /// Whether `podIP` and `podIPs` are written.
    pub(crate) address: bool,
    /// Hash of `initContainerStatuses`; 0 for none.
    pub(crate) inits: u64,
    /// Hash of `containerStatuses`; 0 for none.
    pub(crate) mains: u64,
    /// Hash of `ephemeralContainerStatuses`; 0 for none.
    pub(crate) ephemerals: u64,
    /// Conditions, in the order of [`ConditionType::ALL`]; `None` if not written yet.
    pub(crate) conditions: [Option<Condition>; 4],
}

/// Phase of a pod.
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

    /// Parses a phase; an unknown one is `Pending`.
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            _ => Self::Pending,
        }
    }

    /// Returns whether the pod has ended.
    pub(crate) fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// Type of a condition that the kubelet owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConditionType {
    ReadyToStartContainers,
    Initialized,
    Ready,
    ContainersReady,
}

impl ConditionType {
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

/// Last written state of one condition.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Condition {
    pub(crate) status: bool,
    pub(crate) reason: Text,
    pub(crate) message: Text,
    pub(crate) since: Timestamp,
    pub(crate) generation: i64,
}

impl Memory {
    /// Returns the memory of a pod that no kubelet has synced yet, with a slot for each container.
    pub(crate) fn fresh(inits: usize, mains: usize, ip: Ipv4Addr, now: Timestamp) -> Self {
        Self {
            start: now,
            ip,
            sandbox: false,
            inits: vec![Slot::default(); inits].into(),
            mains: vec![Slot::default(); mains].into(),
            ephemerals: Box::default(),
            files: Arc::default(),
            stopping: None,
            written: Written::default(),
            reported_annotation_errors: 0,
            rejected: false,
            removed: false,
            version: 0,
        }
    }

    /// Returns the slot of the container with this name.
    pub(crate) fn slot(&self, pod: &Pod, name: &str) -> Option<&Slot> {
        let mut inits = pod.spec.init_containers.iter();
        let mut mains = pod.spec.containers.iter();
        if let Some(index) = inits.position(|container| *container.name == *name) {
            return self.inits.get(index);
        }
        if let Some(index) = mains.position(|container| *container.name == *name) {
            return self.mains.get(index);
        }
        let mut ephemerals = pod.spec.ephemeral_containers.iter();
        self.ephemerals.get(ephemerals.position(|container| *container.common.name == *name)?)
    }

    /// Records the writes of a command to the pod's files. The next sync evaluates all runs again, because they may
    /// read these files. Writes to a container's own files are dropped once the run of the command has ended.
    ///
    /// # Errors
    /// Fails if the pod's files have no space left.
    pub(crate) fn record(&mut self, pod: &Pod, command: &CommandWrites) -> Result<(), Full> {
        let slot = self.slot(pod, &command.container);
        let still_runs =
            slot.is_some_and(|slot| slot.running().is_some() && slot.restarts == command.restarts);
        let is_kept = |write: &&Write| match write.path.scope {
            Scope::Node => false,
            Scope::Container(_) => still_runs,
            Scope::Volume(_) | Scope::UnknownVolume(_) => true,
        };
        let kept_writes: Vec<&Write> = command.writes.iter().filter(is_kept).collect();
        Arc::make_mut(&mut self.files).record(&command.by, command.start, &kept_writes)?;
        for slot in self.inits.iter_mut().chain(&mut self.mains).chain(&mut self.ephemerals) {
            if matches!(slot.command, CommandState::Known(..)) {
                slot.command = CommandState::NotEvaluated;
            }
        }
        Ok(())
    }

    /// Returns whether any container runs.
    pub(crate) fn is_running(&self) -> bool {
        self.slots().any(|slot| slot.running().is_some())
    }

    /// Iterates over the slots of all containers.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.inits.iter().chain(&*self.mains).chain(&*self.ephemerals)
    }

    /// Returns the slots of a group of containers.
    pub(crate) fn group(&self, group: Group) -> &[Slot] {
        match group {
            Group::Init => &self.inits,
            Group::Main => &self.mains,
            Group::Ephemeral => &self.ephemerals,
        }
    }

    /// Returns the slots of a group of containers, to change them.
    pub(crate) fn group_mut(&mut self, group: Group) -> &mut [Slot] {
        match group {
            Group::Init => &mut self.inits,
            Group::Main => &mut self.mains,
            Group::Ephemeral => &mut self.ephemerals,
        }
    }

    /// Adds slots for ephemeral containers, which users add while the pod runs.
    pub(crate) fn add_ephemerals(&mut self, count: usize) {
        if self.ephemerals.len() < count {
            let mut slots = std::mem::take(&mut self.ephemerals).into_vec();
            slots.resize_with(count, Slot::default);
            self.ephemerals = slots.into();
        }
    }
}

impl Slot {
    /// Returns the end of the run if the container has ended.
    pub(crate) fn ended(&self) -> Option<Ended> {
        match self.state {
            State::Ended(ended) => Some(ended),
            _ => None,
        }
    }

    /// Returns the start of the run if the container runs.
    pub(crate) fn running(&self) -> Option<Timestamp> {
        match self.state {
            State::Running { since } => Some(since),
            _ => None,
        }
    }
}
