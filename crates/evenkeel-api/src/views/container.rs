//! Containers and their states.

use crate::decode::{DecodedAs, Field, Reader, Shape, Slot, Wire, WireError, message};
use crate::map::{Map, Unread};
use crate::quantity::Quantity;
use crate::text::Text;
use crate::time::Timestamp;

message! {
    /// Container of a pod, with the fields that scheduling and simulation read.
    pub struct Container("k8s.io.api.core.v1.Container") {
        /// Name, unique among all containers of the pod.
        name: Text = 1 "name",
        /// Reference of the image, such as `registry.k8s.io/pause:3.10`.
        image: Text = 2 "image",
        /// Command that replaces the image's entry point, decoded only to its number of words.
        command: Box<[Unread]> = 3 "command",
        /// Arguments of the command, decoded only to their number.
        args: Box<[Unread]> = 4 "args",
        /// Ports of the container, which are informational except for host ports.
        ports: Box<[ContainerPort]> = 6 "ports",
        /// Requests and limits; absent requests equal the limits.
        resources: ResourceRequirements = 8 "resources",
        /// `Always` makes an init container a sidecar.
        restart_policy: Text = 24 "restartPolicy",
        /// Restart rules by exit code.
        restart_policy_rules: Box<[ContainerRestartRule]> = 25 "restartPolicyRules",
        /// Whether a volume mount has bind mount options.
        bind_mount_options: BindMountOptions = 9 "volumeMounts",
        /// Liveness probe, whose failure restarts the container; if absent, only an exit restarts it.
        liveness_probe: Option<Box<Probe>> = 10 "livenessProbe",
        /// Readiness probe; if absent, a started container is ready.
        readiness_probe: Option<Box<Probe>> = 11 "readinessProbe",
        /// Startup probe; if absent, a running container has started.
        startup_probe: Option<Box<Probe>> = 22 "startupProbe",
    }
}

message! {
    /// Ephemeral container, which a user adds to a running pod for debugging.
    pub struct EphemeralContainer("k8s.io.api.core.v1.EphemeralContainer") {
        => /// Fields that it shares with other containers.
        common: EphemeralContainerCommon = 1
    }
}

message! {
    /// Fields that an ephemeral container shares with other containers.
    pub struct EphemeralContainerCommon("k8s.io.api.core.v1.EphemeralContainerCommon") {
        /// Name, unique among all containers of the pod.
        name: Text = 1 "name",
        /// Reference of the image.
        image: Text = 2 "image",
    }
}

message! {
    /// Restart action for certain exit codes of a container (KEP-5307).
    pub struct ContainerRestartRule("k8s.io.api.core.v1.ContainerRestartRule") {
        /// `Restart` or `RestartAllContainers`.
        action: Text = 1 "action",
    }
}

message! {
    /// Volume mount, decoded only for its bind mount options.
    pub struct VolumeMountOptions("k8s.io.api.core.v1.VolumeMount") {
        /// Bind mount options, decoded only to their number.
        bind_mount_options: Box<[Unread]> = 8 "bindMountOptions",
    }
}

/// Whether one of a container's mounts has bind mount options. The mounts themselves are not decoded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BindMountOptions(bool);

impl BindMountOptions {
    /// Returns whether one of the mounts has bind mount options.
    pub fn are_set(self) -> bool {
        self.0
    }

    fn of(mounts: &[VolumeMountOptions]) -> Self {
        Self(mounts.iter().any(|mount| !mount.bind_mount_options.is_empty()))
    }
}

impl From<Box<[VolumeMountOptions]>> for BindMountOptions {
    fn from(mounts: Box<[VolumeMountOptions]>) -> Self {
        Self::of(&mounts)
    }
}

impl DecodedAs for BindMountOptions {
    type Source = Box<[VolumeMountOptions]>;
}

impl Field for BindMountOptions {
    const SHAPE: Shape = <Box<[VolumeMountOptions]> as Field>::SHAPE;
    type Partial = Self;

    fn absent() -> Self {
        Self::default()
    }

    fn slot(&mut self) -> Slot<'_> {
        Slot::Converted(self)
    }

    fn into_partial(self) -> Self {
        self
    }

    fn merge(partial: &mut Self, wire: Wire, reader: &mut Reader<'_>) -> Result<(), WireError> {
        let mut mount = VolumeMountOptions::default();
        VolumeMountOptions::merge(&mut mount, wire, reader)?;
        partial.0 |= Self::of(&[mount]).0;
        Ok(())
    }

    fn finish(partial: Self) -> Result<Self, WireError> {
        Ok(partial)
    }
}

message! {
    /// Resource requests and limits of a container or pod.
    pub struct ResourceRequirements("k8s.io.api.core.v1.ResourceRequirements") {
        /// Limits by resource name.
        limits: Map<Quantity> = 1 "limits",
        /// Requests by resource name.
        requests: Map<Quantity> = 2 "requests",
    }
}

message! {
    /// Port of a container, possibly with a host port on the node.
    pub struct ContainerPort("k8s.io.api.core.v1.ContainerPort") {
        /// Name for Services and probes; empty for none.
        name: Text = 1 "name",
        /// Port on the node; 0 for none.
        host_port: i32 = 2 "hostPort",
        /// Port of the container.
        container_port: i32 = 3 "containerPort",
        /// `TCP` (also when empty), `UDP` or `SCTP`.
        protocol: Text = 4 "protocol",
        /// Address on the node to bind to; empty for all.
        host_ip: Text = 5 "hostIP",
    }
}

message! {
    /// Delays, periods and thresholds of a probe.
    pub struct Probe("k8s.io.api.core.v1.Probe") {
        /// Seconds from the container's start to the first probe.
        initial_delay_seconds: i32 = 2 "initialDelaySeconds",
        /// Seconds after which a probe counts as failed; 1 by default.
        timeout_seconds: i32 = 3 "timeoutSeconds",
        /// Seconds between two probes; 10 by default.
        period_seconds: i32 = 4 "periodSeconds",
        /// Consecutive successes after a failure for the probe to succeed; 1 by default.
        success_threshold: i32 = 5 "successThreshold",
        /// Consecutive failures for the probe to fail; 3 by default.
        failure_threshold: i32 = 6 "failureThreshold",
    }
}

message! {
    /// Observed state of a container.
    pub struct ContainerStatus("k8s.io.api.core.v1.ContainerStatus") {
        /// Name of the container in the pod's spec.
        name: Text = 1 "name",
        /// Current state of the container.
        state: ContainerState = 2 "state",
        /// State at the end of the previous run; empty before the first restart.
        last_state: ContainerState = 3 "lastState",
        /// Whether the container is ready.
        ready: bool = 4 "ready",
        /// Number of restarts.
        restart_count: i32 = 5 "restartCount",
        /// Image of the running container.
        image: Text = 6 "image",
        /// Whether the container has started.
        started: Option<bool> = 9 "started",
        /// Resource requests that the node has allocated to the container.
        allocated_resources: Map<Quantity> = 10 "allocatedResources",
        /// Requests and limits in force, from the kubelet. During a resize, they lag behind the spec.
        resources: Option<Box<ResourceRequirements>> = 11 "resources",
    }
}

message! {
    /// State of a container: waiting, running or terminated.
    pub struct ContainerState("k8s.io.api.core.v1.ContainerState") {
        /// State of a waiting container.
        waiting: Option<Box<ContainerStateWaiting>> = 1 "waiting",
        /// State of a running container.
        running: Option<Box<ContainerStateRunning>> = 2 "running",
        /// State of a terminated container.
        terminated: Option<Box<ContainerStateTerminated>> = 3 "terminated",
    }
}

message! {
    /// Waiting state of a container, such as `CrashLoopBackOff`.
    pub struct ContainerStateWaiting("k8s.io.api.core.v1.ContainerStateWaiting") {
        /// Reason in CamelCase.
        reason: Text = 1 "reason",
        /// Details of the reason, for people.
        message: Text = 2 "message",
    }
}

message! {
    /// Running state of a container.
    pub struct ContainerStateRunning("k8s.io.api.core.v1.ContainerStateRunning") {
        /// Start time of the container.
        started_at: Option<Timestamp> = 1 "startedAt",
    }
}

message! {
    /// Terminated state of a container.
    pub struct ContainerStateTerminated("k8s.io.api.core.v1.ContainerStateTerminated") {
        /// Exit code of the process; 0 is success.
        exit_code: i32 = 1 "exitCode",
        /// Signal that ended the process; 0 for none.
        signal: i32 = 2 "signal",
        /// Reason in CamelCase.
        reason: Text = 3 "reason",
        /// Termination message that the container wrote, or details of the reason.
        message: Text = 4 "message",
        /// Start time of the container.
        started_at: Option<Timestamp> = 5 "startedAt",
        /// Time at which the container terminated.
        finished_at: Option<Timestamp> = 6 "finishedAt",
    }
}
