//! Processes of a pod's containers, read from the pod's spec: arguments, environment variables, volume mounts.

use evenkeel_api::{
    Text,
    views::{ContainerCommand, EnvVar, PodCommand, Volume},
};
use std::{collections::BTreeMap, net::Ipv4Addr, time::Duration};

use crate::{
    Environment, Probe, Process,
    exec::reads_commands,
    expand::is_service_variable,
    files::base_name,
    files::{FilePath, Mounts, Scope, normalize},
    shell::Variable,
};

/// Images whose entry point is a shell. A container of such an image without a command exits immediately.
const SHELL_IMAGES: [&str; 5] = ["alpine", "bash", "busybox", "debian", "ubuntu"];

/// Fields of the pod's node that a `fieldRef` of a container can select.
#[derive(Debug, Clone, Copy)]
pub struct NodeFields<'a> {
    /// Name of the node, selected by `spec.nodeName`.
    pub name: &'a str,
    /// Address of the node, selected by `status.hostIP` and `status.hostIPs`.
    pub host_ip: Ipv4Addr,
}

/// Returns whether the image's entry point is a shell.
pub fn entrypoint_is_shell(image: &str) -> bool {
    SHELL_IMAGES.contains(&image_name(image))
}

/// Returns whether the image's entry point is `pause`, which waits for SIGTERM.
pub fn entrypoint_is_pause(image: &str) -> bool {
    image_name(image) == "pause"
}

/// Returns the name of an image without registry, tag and digest.
fn image_name(image: &str) -> &str {
    let name = base_name(image);
    name.split(['@', ':']).next().unwrap_or(name)
}

/// Processes of a pod's containers by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Processes(BTreeMap<Text, Process>);

impl Processes {
    /// Reads the processes of a pod on a node. `image` returns a container's image.
    pub fn read<'i>(
        pod: &PodCommand,
        node: NodeFields<'_>,
        image: impl Fn(&str) -> Option<&'i str>,
    ) -> Self {
        let containers = pod.spec.init_containers.iter().chain(&*pod.spec.containers);
        let ephemerals = pod.spec.ephemeral_containers.iter().map(ContainerCommand::from);
        let containers = containers.cloned().chain(ephemerals);
        let processes = containers.filter_map(|container| {
            let image = image(&container.name).unwrap_or_default();
            let process = process(pod, &container, image, node)?;
            Some((container.name, process))
        });
        Self(processes.collect())
    }

    /// Returns the process of a container, or `None` if the container's command is unknown.
    pub fn get(&self, container: &str) -> Option<&Process> {
        self.0.get(container)
    }
}

impl Environment {
    /// Reads the environment of a pod's container on a node. Returns `None` if the pod does not have the container.
    pub fn read(
        pod: &PodCommand,
        container: &str,
        image: &str,
        node: NodeFields<'_>,
    ) -> Option<Self> {
        let containers = pod.spec.init_containers.iter().chain(&*pod.spec.containers);
        let ephemerals = pod.spec.ephemeral_containers.iter().map(ContainerCommand::from);
        let mut containers = containers.cloned().chain(ephemerals);
        let container = containers.find(|candidate| *candidate.name == *container)?;
        let (mut environment, spec_variables) = environment(pod, &container, node);
        let words = words(&container, image, &spec_variables).unwrap_or_default();
        if container.stdin && reads_commands(&words) {
            environment.attached_shell = words.into_iter().next();
        }
        Some(environment)
    }
}

/// Returns the process of a container, or `None` if its command is unknown.
fn process(
    pod: &PodCommand,
    container: &ContainerCommand,
    image: &str,
    node: NodeFields<'_>,
) -> Option<Process> {
    let (environment, spec_variables) = environment(pod, container, node);
    let words = words(container, image, &spec_variables)?;
    // A shell with an open standard input waits for commands from clients.
    if words.is_empty() || container.stdin && words.len() == 1 {
        return None;
    }
    let probe = container.readiness_probe.as_ref().and_then(|probe| {
        let command =
            probe.handler.exec.as_ref()?.command.iter().map(ToString::to_string).collect();
        let timeout = u64::try_from(probe.timeout_seconds).unwrap_or_default().max(1);
        Some(Probe { command, timeout: Duration::from_secs(timeout) })
    });
    Some(Process { readiness_probe: probe, arguments: words, environment })
}

/// Returns the words of a container's command. They are empty if the entry point of the image is unknown. Returns
/// `None` if a word needs the unknown value of a variable.
fn words(
    container: &ContainerCommand,
    image: &str,
    spec_variables: &SpecVariables,
) -> Option<Vec<String>> {
    let spec_words = container.command.iter().chain(&*container.args);
    let mut words: Vec<String> =
        spec_words.map(|word| expand(word, spec_variables)).collect::<Option<_>>()?;
    if words.is_empty() && entrypoint_is_shell(image) {
        words.push("sh".into());
    }
    Some(words)
}

/// Returns the environment of a container, and the variables of its spec, which `$(NAME)` can refer to.
fn environment(
    pod: &PodCommand,
    container: &ContainerCommand,
    node: NodeFields<'_>,
) -> (Environment, SpecVariables) {
    // The kubelet expands only variables of the spec, not variables of the image or the runtime.
    let mut spec_variables =
        SpecVariables { variables: BTreeMap::new(), env_from: !container.env_from.is_empty() };
    let mut variables = BTreeMap::new();
    for (name, value) in [
        ("HOME", "/root"),
        ("HOSTNAME", &*pod.meta.name),
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ] {
        let value = Some(value.to_owned());
        variables.insert(name.to_owned(), Variable { value, exported: true });
    }
    let mut addresses = Vec::new();
    for variable in &container.env {
        let field = field_path(variable);
        addresses.retain(|name| *name != *variable.name);
        if matches!(field, Some("status.podIP" | "status.podIPs")) {
            addresses.push(variable.name.to_string());
        }
        let value = match &variable.value_from {
            None => expand(&variable.value, &spec_variables),
            Some(_) => field.and_then(|path| field_value(pod, path, node)),
        };
        spec_variables.variables.insert(variable.name.to_string(), value.clone());
        variables.insert(variable.name.to_string(), Variable { value, exported: true });
    }
    let mounts = container.volume_mounts.iter().filter_map(|mount| {
        let volume = pod.spec.volumes.iter().find(|volume| volume.name == mount.name)?;
        let mut path = volume_root(volume);
        if !mount.sub_path_expr.is_empty() {
            match expand(&mount.sub_path_expr, &spec_variables) {
                Some(sub_path) => path.path = normalize(&path.path, &sub_path).into(),
                None => path.scope = Scope::UnknownVolume(volume.name.clone()),
            }
        } else if !mount.sub_path.is_empty() {
            path.path = format!("{}{}", path.path, normalize("", &mount.sub_path)).into();
        }
        Some((normalize("", &mount.mount_path).into(), path))
    });
    let mounts = Mounts::new(mounts.collect());
    let environment = Environment {
        container: container.name.clone(),
        mounts,
        working_dir: normalize("", &container.working_dir),
        env_from: !container.env_from.is_empty(),
        variables,
        address_variables: addresses,
        attached_shell: None,
    };
    (environment, spec_variables)
}

/// Returns the path of the field that a variable refers to (`fieldRef`).
fn field_path(variable: &EnvVar) -> Option<&str> {
    Some(&variable.value_from.as_ref()?.field_ref.as_ref()?.field_path)
}

/// Returns the value of a `fieldRef`, or `None` if it is unknown before the pod runs.
fn field_value(pod: &PodCommand, path: &str, node: NodeFields<'_>) -> Option<String> {
    let entry = |map: &evenkeel_api::StrMap, path: &str| {
        let key = path.strip_prefix("['")?.strip_suffix("']")?;
        Some(map.get(key).unwrap_or_default().to_owned())
    };
    match path {
        "metadata.name" => Some(pod.meta.name.to_string()),
        "metadata.namespace" => Some(pod.meta.namespace.to_string()),
        "metadata.uid" => Some(pod.meta.uid.to_string()),
        "spec.nodeName" => Some(node.name.to_owned()),
        "status.hostIP" | "status.hostIPs" => Some(node.host_ip.to_string()),
        path => {
            let (map, key) = if let Some(key) = path.strip_prefix("metadata.labels") {
                (&pod.meta.labels, key)
            } else {
                (&pod.meta.annotations, path.strip_prefix("metadata.annotations")?)
            };
            entry(map, key)
        }
    }
}

/// Returns the root folder of a volume.
fn volume_root(volume: &Volume) -> FilePath {
    let source = &volume.source;
    if let Some(host) = &source.host_path {
        return FilePath { scope: Scope::Node, path: normalize("", &host.path).into() };
    }
    let name = volume.name.clone();
    let scope =
        if source.empty_dir.is_some() { Scope::Volume(name) } else { Scope::UnknownVolume(name) };
    FilePath { scope, path: "".into() }
}

/// Variables of a container's spec, which `$(NAME)` can refer to.
struct SpecVariables {
    /// Values by name. An unknown value is `None`.
    variables: BTreeMap<String, Option<String>>,
    /// Whether `envFrom` adds variables whose names are unknown.
    env_from: bool,
}

impl SpecVariables {
    /// Returns the value of a variable: `Some(None)` if the spec has no such variable, `None` if the value is
    /// unknown.
    fn value(&self, name: &str) -> Option<Option<&str>> {
        match self.variables.get(name) {
            Some(value) => value.as_deref().map(Some),
            None if self.env_from && is_key(name) || is_service_variable(name) => None,
            None => Some(None),
        }
    }
}

/// Returns whether a ConfigMap or Secret may have an entry of this name.
fn is_key(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._".contains(&c))
}

/// Expands `$(NAME)` in `text`, as a kubelet does for commands, arguments and variables. References to variables
/// that the spec does not list stay unchanged, and `$$` becomes a dollar sign. Returns `None` if the value of a
/// variable is needed but unknown.
///
/// Upstream: `Expand` (k8s.io/kubernetes/third_party/forked/golang/expansion), `makeEnvironmentVariables`.
fn expand(text: &str, spec_variables: &SpecVariables) -> Option<String> {
    let (mut expanded, mut rest) = (String::new(), text);
    while let Some(index) = rest.find('$') {
        expanded.push_str(&rest[..index]);
        rest = &rest[index + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$');
            rest = after;
            continue;
        }
        let name = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        let value = match name {
            Some((name, after)) => spec_variables.value(name)?.map(|value| (value, after)),
            None => None,
        };
        match value {
            Some((value, after)) => {
                expanded.push_str(value);
                rest = after;
            }
            None => expanded.push('$'),
        }
    }
    expanded.push_str(rest);
    Some(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_to_variables_are_expanded_as_by_a_kubelet() {
        let variables =
            [("A".to_owned(), Some("x".to_owned())), ("S".to_owned(), None)].into_iter().collect();
        let spec_variables = SpecVariables { variables, env_from: false };
        for (text, want) in [
            ("a$(A)b", Some("axb")),
            ("$$(A) $(B) $A ${A} $", Some("$(A) $(B) $A ${A} $")),
            ("$(expr 1 + 2)", Some("$(expr 1 + 2)")),
            ("$(S)", None),
            ("$(HOME) $(PATH)", Some("$(HOME) $(PATH)")),
            ("$(KUBERNETES_SERVICE_HOST)", None),
        ] {
            assert_eq!(expand(text, &spec_variables).as_deref(), want, "{text}");
        }
        let spec_variables = SpecVariables { env_from: true, ..spec_variables };
        for (text, want) in
            [("$(A)", Some("x")), ("$(HOME)", None), ("$(echo a)", Some("$(echo a)"))]
        {
            assert_eq!(expand(text, &spec_variables).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn entry_points_are_known_by_the_name_of_the_image() {
        for (image, want) in [
            ("busybox", true),
            ("registry.k8s.io/e2e-test-images/busybox:1.37.0-1", true),
            ("alpine@sha256:00", true),
            ("localhost:5000/nginx", false),
            ("my-busybox", false),
        ] {
            assert_eq!(entrypoint_is_shell(image), want, "{image}");
        }
        assert!(
            entrypoint_is_pause("registry.k8s.io/pause:3.10") && !entrypoint_is_pause("paused")
        );
    }
}
