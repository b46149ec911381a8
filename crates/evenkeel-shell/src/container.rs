//! Processes of a pod's containers, read from the pod's spec: arguments, environment variables, volume mounts.

use evenkeel_api::{
    Text,
    views::{ContainerCommand, EnvVar, PodCommand, Volume},
};
use std::{collections::BTreeMap, net::Ipv4Addr, time::Duration};

use crate::{
    Environment, Probe, Process,
    exec::reads_commands,
    expand::of_service,
    files::base_name,
    files::{FilePath, Mounts, Scope, normal},
    shell::Variable,
};

/// Images whose entry point is a shell. Without a command such a container exits at once.
const SHELLS: [&str; 5] = ["alpine", "bash", "busybox", "debian", "ubuntu"];

/// Whether the image's entry point is a shell.
pub fn entrypoint_is_shell(image: &str) -> bool {
    SHELLS.contains(&name_of(image))
}

/// Whether the image's entry point is `pause`, which waits for SIGTERM.
pub fn entrypoint_is_pause(image: &str) -> bool {
    name_of(image) == "pause"
}

fn name_of(image: &str) -> &str {
    let name = base_name(image);
    name.split(['@', ':']).next().unwrap_or(name)
}

/// Processes of a pod's containers by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Processes(BTreeMap<Text, Process>);

impl Processes {
    /// Reads the processes of a pod on the node with this name and address. `image` returns a container's image.
    pub fn read<'i>(
        pod: &PodCommand,
        node: (&str, Ipv4Addr),
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

    /// Returns the process of a container; `None` if it is unknown which command the container executes.
    pub fn get(&self, container: &str) -> Option<&Process> {
        self.0.get(container)
    }
}

impl Environment {
    /// Reads the environment of a pod's container on the node with this name and address; `None` if the pod does not have the
    /// container.
    pub fn read(
        pod: &PodCommand,
        container: &str,
        image: &str,
        node: (&str, Ipv4Addr),
    ) -> Option<Self> {
        let containers = pod.spec.init_containers.iter().chain(&*pod.spec.containers);
        let ephemerals = pod.spec.ephemeral_containers.iter().map(ContainerCommand::from);
        let mut containers = containers.cloned().chain(ephemerals);
        let container = containers.find(|own| *own.name == *container)?;
        let (mut environment, listed) = environment(pod, &container, node);
        let words = words(&container, image, &listed).unwrap_or_default();
        if container.stdin && reads_commands(&words) {
            environment.attached_shell = words.into_iter().next();
        }
        Some(environment)
    }
}

fn process(
    pod: &PodCommand,
    container: &ContainerCommand,
    image: &str,
    node: (&str, Ipv4Addr),
) -> Option<Process> {
    let (environment, listed) = environment(pod, container, node);
    let words = words(container, image, &listed)?;
    // A shell with an open standard input waits for it.
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

/// The words of a container's command; none if it is that of an image which is not known.
fn words(container: &ContainerCommand, image: &str, listed: &Listed) -> Option<Vec<String>> {
    let given = container.command.iter().chain(&*container.args);
    let mut words: Vec<String> = given.map(|word| expand(word, listed)).collect::<Option<_>>()?;
    if words.is_empty() && entrypoint_is_shell(image) {
        words.push("sh".into());
    }
    Some(words)
}

/// The environment of a container, and the variables of it that `$(NAME)` can name.
fn environment(
    pod: &PodCommand,
    container: &ContainerCommand,
    node: (&str, Ipv4Addr),
) -> (Environment, Listed) {
    // The kubelet knows the container's list of variables, but not those of the image and of the runtime.
    let mut listed = Listed { variables: BTreeMap::new(), open: !container.env_from.is_empty() };
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
            None => expand(&variable.value, &listed),
            Some(_) => field.and_then(|path| field_value(pod, path, node)),
        };
        listed.variables.insert(variable.name.to_string(), value.clone());
        variables.insert(variable.name.to_string(), Variable { value, exported: true });
    }
    let mounts = container.volume_mounts.iter().filter_map(|mount| {
        let volume = pod.spec.volumes.iter().find(|volume| volume.name == mount.name)?;
        let mut path = volume_root(volume);
        if !mount.sub_path_expr.is_empty() {
            match expand(&mount.sub_path_expr, &listed) {
                Some(sub_path) => path.path = normal(&path.path, &sub_path).into(),
                None => path.scope = Scope::UnknownVolume(volume.name.clone()),
            }
        } else if !mount.sub_path.is_empty() {
            path.path = format!("{}{}", path.path, normal("", &mount.sub_path)).into();
        }
        Some((normal("", &mount.mount_path).into(), path))
    });
    let mounts = Mounts::new(mounts.collect());
    let environment = Environment {
        container: container.name.clone(),
        mounts,
        working_dir: normal("", &container.working_dir),
        env_from: !container.env_from.is_empty(),
        variables,
        address_variables: addresses,
        attached_shell: None,
    };
    (environment, listed)
}

fn field_path(variable: &EnvVar) -> Option<&str> {
    Some(&variable.value_from.as_ref()?.field_ref.as_ref()?.field_path)
}

/// Returns the value of a `fieldRef`; `None` if it is unknown before the pod runs.
fn field_value(pod: &PodCommand, path: &str, node: (&str, Ipv4Addr)) -> Option<String> {
    let entry = |map: &evenkeel_api::StrMap, path: &str| {
        let key = path.strip_prefix("['")?.strip_suffix("']")?;
        Some(map.get(key).unwrap_or_default().to_owned())
    };
    match path {
        "metadata.name" => Some(pod.meta.name.to_string()),
        "metadata.namespace" => Some(pod.meta.namespace.to_string()),
        "metadata.uid" => Some(pod.meta.uid.to_string()),
        "spec.nodeName" => Some(node.0.to_owned()),
        "status.hostIP" | "status.hostIPs" => Some(node.1.to_string()),
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
        return FilePath { scope: Scope::Node, path: normal("", &host.path).into() };
    }
    let name = volume.name.clone();
    let scope =
        if source.empty_dir.is_some() { Scope::Volume(name) } else { Scope::UnknownVolume(name) };
    FilePath { scope, path: "".into() }
}

/// Variables of a container's spec, which `$(NAME)` can name.
struct Listed {
    /// Values by name; `None` if a value is unknown.
    variables: BTreeMap<String, Option<String>>,
    /// Whether `envFrom` adds variables whose names are unknown.
    open: bool,
}

impl Listed {
    /// Returns the value that a name stands for: `Some(None)` if it stands for itself, `None` if that is unknown.
    fn value(&self, name: &str) -> Option<Option<&str>> {
        match self.variables.get(name) {
            Some(value) => value.as_deref().map(Some),
            None if self.open && is_key(name) || of_service(name) => None,
            None => Some(None),
        }
    }
}

/// Whether a ConfigMap or Secret may have an entry of this name.
fn is_key(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._".contains(&c))
}

/// Expands `$(NAME)` in `text`, as a kubelet does for commands, arguments and variables. Names that the spec does not
/// list stay as they are, and `$$` is a dollar sign. `None` if the value of a variable is needed but unknown.
///
/// Upstream: `Expand` (k8s.io/kubernetes/third_party/forked/golang/expansion), `makeEnvironmentVariables`.
fn expand(text: &str, listed: &Listed) -> Option<String> {
    let (mut all, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('$') {
        all.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            all.push('$');
            rest = after;
            continue;
        }
        let name = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        let value = match name {
            Some((name, after)) => listed.value(name)?.map(|value| (value, after)),
            None => None,
        };
        match value {
            Some((value, after)) => {
                all.push_str(value);
                rest = after;
            }
            None => all.push('$'),
        }
    }
    all.push_str(rest);
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_words_are_replaced_as_a_kubelet_does() {
        let variables =
            [("A".to_owned(), Some("x".to_owned())), ("S".to_owned(), None)].into_iter().collect();
        let listed = Listed { variables, open: false };
        for (text, want) in [
            ("a$(A)b", Some("axb")),
            ("$$(A) $(B) $A ${A} $", Some("$(A) $(B) $A ${A} $")),
            ("$(expr 1 + 2)", Some("$(expr 1 + 2)")),
            ("$(S)", None),
            ("$(HOME) $(PATH)", Some("$(HOME) $(PATH)")),
            ("$(KUBERNETES_SERVICE_HOST)", None),
        ] {
            assert_eq!(expand(text, &listed).as_deref(), want, "{text}");
        }
        let listed = Listed { open: true, ..listed };
        for (text, want) in
            [("$(A)", Some("x")), ("$(HOME)", None), ("$(echo a)", Some("$(echo a)"))]
        {
            assert_eq!(expand(text, &listed).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn images_of_shells_are_known_by_name() {
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
