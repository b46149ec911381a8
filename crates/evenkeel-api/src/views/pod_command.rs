//! View of a pod with its containers' commands, environment variables and volume mounts, for simulated kubelets.

use super::volume::Volume;
use crate::Meta;
use crate::decode::{message, view};
use crate::map::Unread;
use crate::text::Text;

message! {
    /// Pod with its containers' commands.
    pub struct PodCommand("k8s.io.api.core.v1.Pod") {
        /// Metadata, which the downward API exposes in environment variables and volumes.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: PodCommandSpec = 2 "spec",
    }
}

view!(PodCommand, "", "v1", "Pod", "pods", namespaced);

message! {
    /// Desired state of a [`PodCommand`].
    pub struct PodCommandSpec("k8s.io.api.core.v1.PodSpec") {
        /// Volumes that the containers can mount.
        volumes: Box<[Volume]> = 1 "volumes",
        /// Main containers with their commands.
        containers: Box<[ContainerCommand]> = 2 "containers",
        /// Init containers, including sidecars. The view does not decode `restartPolicy`.
        init_containers: Box<[ContainerCommand]> = 20 "initContainers",
        /// Containers that users have added for debugging.
        ephemeral_containers: Box<[EphemeralContainerCommand]> = 34 "ephemeralContainers",
    }
}

message! {
    /// Command, environment variables and volume mounts of a container.
    pub struct ContainerCommand("k8s.io.api.core.v1.Container") {
        /// Name, unique among all containers of the pod.
        name: Text = 1 "name",
        /// Command that replaces the image's entry point; empty for the entry point.
        command: Box<[Text]> = 3 "command",
        /// Arguments of the command; empty for the image's arguments.
        args: Box<[Text]> = 4 "args",
        /// Working directory; empty for the image's directory.
        working_dir: Text = 5 "workingDir",
        /// Environment variables in order; a variable can reference earlier ones.
        env: Box<[EnvVar]> = 7 "env",
        /// Mounts of the pod's volumes.
        volume_mounts: Box<[VolumeMount]> = 9 "volumeMounts",
        /// Readiness probe; if absent, a started container is ready.
        readiness_probe: Option<Box<CommandProbe>> = 11 "readinessProbe",
        /// Whether the runtime keeps standard input open.
        stdin: bool = 16 "stdin",
        /// ConfigMaps and Secrets whose entries become environment variables.
        env_from: Box<[Unread]> = 19 "envFrom",
    }
}

message! {
    /// Command, environment variables and mounts of an ephemeral container.
    pub struct EphemeralContainerCommand("k8s.io.api.core.v1.EphemeralContainer") {
        => /// Fields that it shares with other containers.
        common: EphemeralCommonCommand = 1
    }
}

message! {
    /// Command, environment variables and mounts of an ephemeral container, as in a [`ContainerCommand`].
    pub struct EphemeralCommonCommand("k8s.io.api.core.v1.EphemeralContainerCommon") {
        /// Name, unique among all containers of the pod.
        name: Text = 1 "name",
        /// Command that replaces the image's entry point; empty for the entry point.
        command: Box<[Text]> = 3 "command",
        /// Arguments of the command; empty for the image's arguments.
        args: Box<[Text]> = 4 "args",
        /// Working directory; empty for the image's directory.
        working_dir: Text = 5 "workingDir",
        /// Environment variables in order; a variable can reference earlier ones.
        env: Box<[EnvVar]> = 7 "env",
        /// Mounts of the pod's volumes.
        volume_mounts: Box<[VolumeMount]> = 9 "volumeMounts",
        /// Whether the runtime keeps standard input open.
        stdin: bool = 16 "stdin",
        /// ConfigMaps and Secrets whose entries become environment variables.
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
        /// Value. `$(NAME)` in it references an earlier variable. Empty if `valueFrom` is set.
        value: Text = 2 "value",
        /// Source of the value.
        value_from: Option<Box<EnvVarSource>> = 3 "valueFrom",
    }
}

message! {
    /// Source of a variable's value. Keys of ConfigMaps and Secrets, and a container's resources, are not decoded.
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
    /// Volume mount: a volume and its path in a container.
    pub struct VolumeMount("k8s.io.api.core.v1.VolumeMount") {
        /// The volume's name.
        name: Text = 1 "name",
        /// Path in the container at which the volume is mounted.
        mount_path: Text = 3 "mountPath",
        /// Subpath of the volume to mount; empty for its root.
        sub_path: Text = 4 "subPath",
        /// Like `subPath`, but expands variables such as `$(NAME)`; mutually exclusive with `subPath`.
        sub_path_expr: Text = 6 "subPathExpr",
    }
}

message! {
    /// Probe, decoded only for its handler and its timeout.
    pub struct CommandProbe("k8s.io.api.core.v1.Probe") {
        /// Seconds after which the probe fails; 0 for the default.
        timeout_seconds: i32 = 3 "timeoutSeconds",
        => /// Handler of the probe.
        handler: ProbeHandler = 1
    }
}

message! {
    /// Handler of a probe; only `exec` is decoded.
    pub struct ProbeHandler("k8s.io.api.core.v1.ProbeHandler") {
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
