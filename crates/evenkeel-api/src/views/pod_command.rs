//! View of a pod with its containers' commands, environment variables and volume mounts, for simulated kubelets.

use super::volume::Volume;
use crate::Meta;
use crate::decode::{message, view};
use crate::map::Unread;
use crate::text::Text;

message! {
    /// A pod with its containers' commands.
    pub struct PodCommand("k8s.io.api.core.v1.Pod") {
        /// Metadata; variables and the downward API read it.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: PodCommandSpec = 2 "spec",
    }
}

view!(PodCommand, "", "v1", "Pod", "pods", true);

message! {
    /// The specification of a [`PodCommand`].
    pub struct PodCommandSpec("k8s.io.api.core.v1.PodSpec") {
        /// Volumes that the containers can mount.
        volumes: Box<[Volume]> = 1 "volumes",
        /// Containers with their commands, as in the pod's spec.
        containers: Box<[ContainerCommand]> = 2 "containers",
        /// Containers that run one after the other before `containers`; with `restartPolicy: Always`, sidecars.
        init_containers: Box<[ContainerCommand]> = 20 "initContainers",
        /// Containers that users have added for debugging.
        ephemeral_containers: Box<[EphemeralContainerCommand]> = 34 "ephemeralContainers",
    }
}

message! {
    /// A container's command, environment and mounts.
    pub struct ContainerCommand("k8s.io.api.core.v1.Container") {
        /// Name, unique among all containers of the pod.
        name: Text = 1 "name",
        /// Number of words in the command that replaces the image's entry point, as a list without content.
        command: Box<[Text]> = 3 "command",
        /// Arguments of the command; those of the image where empty.
        args: Box<[Text]> = 4 "args",
        /// Working directory; the image's where empty.
        working_dir: Text = 5 "workingDir",
        /// Environment variables in order; a later one can refer to earlier ones.
        env: Box<[EnvVar]> = 7 "env",
        /// Volumes, and the paths at which the container sees them.
        volume_mounts: Box<[VolumeMount]> = 9 "volumeMounts",
        /// Probe for readiness; absent, a started container is ready.
        readiness_probe: Option<Box<ProbeHandler>> = 11 "readinessProbe",
        /// Whether standard input stays open for attaching clients.
        stdin: bool = 16 "stdin",
        /// ConfigMaps and Secrets whose entries become variables.
        env_from: Box<[Unread]> = 19 "envFrom",
    }
}

message! {
    /// An ephemeral container's command, environment and mounts.
    pub struct EphemeralContainerCommand("k8s.io.api.core.v1.EphemeralContainer") {
        => /// Fields that it shares with other containers.
        common: EphemeralCommonCommand = 1
    }
}

message! {
    /// Command, environment and mounts of an ephemeral container; as in a [`ContainerCommand`].
    pub struct EphemeralCommonCommand("k8s.io.api.core.v1.EphemeralContainerCommon") {
        /// Name, unique among all containers of the pod.
        name: Text = 1 "name",
        /// Words of the command that replaces the image's entry point.
        command: Box<[Text]> = 3 "command",
        /// Arguments of the command; those of the image where empty.
        args: Box<[Text]> = 4 "args",
        /// Working directory; the image's where empty.
        working_dir: Text = 5 "workingDir",
        /// Environment variables in order; a later one can refer to earlier ones.
        env: Box<[EnvVar]> = 7 "env",
        /// Volumes, and the paths at which the container sees them.
        volume_mounts: Box<[VolumeMount]> = 9 "volumeMounts",
        /// Whether standard input stays open for attaching clients.
        stdin: bool = 16 "stdin",
        /// ConfigMaps and Secrets whose entries become variables.
        env_from: Box<[Unread]> = 19 "envFrom",
    }
}

impl From<&EphemeralContainerCommand> for ContainerCommand {
    fn from(container: &EphemeralContainerCommand) -> Self {
        let EphemeralCommonCommand {
            name,
            command,
            args,
            working_dir,
            env,
            volume_mounts,
            stdin,
            env_from,
        } = container.common.clone();
        let readiness_probe = None;
        Self {
            name,
            command,
            args,
            working_dir,
            env,
            volume_mounts,
            readiness_probe,
            stdin,
            env_from,
        }
    }
}

message! {
    /// Environment variable of a container: a value, or its source.
    pub struct EnvVar("k8s.io.api.core.v1.EnvVar") {
        /// Name of the variable.
        name: Text = 1 "name",
        /// Value, in which `$(NAME)` stands for an earlier variable; empty where `valueFrom` is set.
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
    /// Field of the pod as the source of a value.
    pub struct ObjectFieldSelector("k8s.io.api.core.v1.ObjectFieldSelector") {
        /// Path of the field, such as `metadata.name`.
        field_path: Text = 2 "fieldPath",
    }
}

message! {
    /// Volume, and the path at which a container sees it.
    pub struct VolumeMount("k8s.io.api.core.v1.VolumeMount") {
        /// The volume's name.
        name: Text = 1 "name",
        /// Path in the container at which the volume is mounted.
        mount_path: Text = 3 "mountPath",
        /// Path within the volume that is mounted; empty for its root.
        sub_path: Text = 4 "subPath",
        /// The same with variables, as `$(NAME)`; excludes `subPath`.
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
    /// Command of an `exec` probe.
    pub struct ExecAction("k8s.io.api.core.v1.ExecAction") {
        /// The command and its arguments.
        command: Box<[Text]> = 1 "command",
    }
}
