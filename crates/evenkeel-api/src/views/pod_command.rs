//! View of a pod with its containers' commands, environment variables and volume mounts, for simulated kubelets.

use super::volume::Volume;
use crate::Meta;
use crate::decode::{message, view};
use crate::map::Unread;
use crate::text::Text;

message! {
    /// A pod with its containers' commands.
    pub struct PodCommand("k8s.io.api.core.v1.Pod") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: PodCommandSpec = 2 "spec",
    }
}

view!(PodCommand, "", "v1", "Pod", "pods", true);

message! {
    /// The specification of a [`PodCommand`].
    pub struct PodCommandSpec("k8s.io.api.core.v1.PodSpec") {
        /// Volumes.
        volumes: Box<[Volume]> = 1 "volumes",
        /// Containers.
        containers: Box<[ContainerCommand]> = 2 "containers",
        /// Run before the containers, in order.
        init_containers: Box<[ContainerCommand]> = 20 "initContainers",
    }
}

message! {
    /// A container's command, environment and mounts.
    pub struct ContainerCommand("k8s.io.api.core.v1.Container") {
        /// Name.
        name: Text = 1 "name",
        /// Command that replaces the image's entry point.
        command: Box<[Text]> = 3 "command",
        /// Its arguments.
        args: Box<[Text]> = 4 "args",
        /// Working directory; the image's where empty.
        working_dir: Text = 5 "workingDir",
        /// Environment variables.
        env: Box<[EnvVar]> = 7 "env",
        /// Where volumes are found.
        volume_mounts: Box<[VolumeMount]> = 9 "volumeMounts",
        /// When it is ready.
        readiness_probe: Option<Box<ProbeHandler>> = 11 "readinessProbe",
        /// Whether somebody may type into it.
        stdin: bool = 16 "stdin",
        /// ConfigMaps and Secrets whose entries become variables.
        env_from: Box<[Unread]> = 19 "envFrom",
    }
}

message! {
    /// Environment variable of a container: a value, or its source.
    pub struct EnvVar("k8s.io.api.core.v1.EnvVar") {
        /// Name.
        name: Text = 1 "name",
        /// Value of the taint.
        value: Text = 2 "value",
        /// Source of the value.
        value_from: Option<Box<EnvVarSource>> = 3 "valueFrom",
    }
}

message! {
    /// Source of a variable's value; all are empty for a source that is not listed.
    pub struct EnvVarSource("k8s.io.api.core.v1.EnvVarSource") {
        /// A field of the pod.
        field_ref: Option<Box<ObjectFieldSelector>> = 1 "fieldRef",
    }
}

message! {
    /// A field of the pod.
    pub struct ObjectFieldSelector("k8s.io.api.core.v1.ObjectFieldSelector") {
        /// Such as `metadata.name`.
        field_path: Text = 2 "fieldPath",
    }
}

message! {
    /// Where a volume is found in a container.
    pub struct VolumeMount("k8s.io.api.core.v1.VolumeMount") {
        /// The volume's name.
        name: Text = 1 "name",
        /// Path in the container.
        mount_path: Text = 3 "mountPath",
        /// Which part of the volume.
        sub_path: Text = 4 "subPath",
        /// Which part of the volume, with variables in it.
        sub_path_expr: Text = 6 "subPathExpr",
    }
}

message! {
    /// Handler of a probe.
    pub struct ProbeHandler("k8s.io.api.core.v1.Probe") {
        => /// Handler of the probe.
        handler: ExecHandler = 1
    }
}

message! {
    /// Handler of a probe; only `exec` is decoded.
    pub struct ExecHandler("k8s.io.api.core.v1.ProbeHandler") {
        /// Command that the probe executes.
        exec: Option<Box<ExecAction>> = 1 "exec",
    }
}

message! {
    /// Something to execute.
    pub struct ExecAction("k8s.io.api.core.v1.ExecAction") {
        /// The command and its arguments.
        command: Box<[Text]> = 1 "command",
    }
}
