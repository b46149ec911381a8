//! The file with a program's flags: a static pod's manifest, `/proc/PID/cmdline`, or a command line as text.

use super::Program;
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Environment variables that name proxies, in upper or lower case.
const PROXIES: [&str; 2] = ["HTTP_PROXY", "HTTPS_PROXY"];

/// Arguments of a program, and the file that contains them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Source {
    pub(super) file: PathBuf,
    /// Arguments without the program's name.
    pub(super) arguments: Vec<String>,
    /// The pod of a manifest.
    pub(super) pod: Option<StaticPod>,
}

/// Parts of a static pod that matter to a replacement.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StaticPod {
    /// Image of the program's container.
    pub(super) image: String,
    /// Program that starts the program, such as kOps' `/go-runner`.
    pub(super) wrapper: Option<String>,
    /// Whether the pod or the container sets the user that runs the program.
    pub(super) sets_user: bool,
    /// Proxies in the container's environment: variable and URL.
    pub(super) proxies: Vec<(String, String)>,
}

/// A Pod's manifest: the fields that preflight reads. The decoder of a whole Pod would take longer to compile than this module.
#[derive(Debug, Deserialize)]
struct Manifest {
    kind: String,
    spec: Option<PodSpec>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    #[serde(default)]
    containers: Vec<Container>,
    security_context: Option<SecurityContext>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    name: String,
    image: Option<String>,
    command: Option<Vec<String>>,
    args: Option<Vec<String>>,
    env: Option<Vec<EnvVar>>,
    security_context: Option<SecurityContext>,
}

#[derive(Debug, Deserialize)]
struct EnvVar {
    name: String,
    value: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SecurityContext {
    run_as_user: Option<i64>,
}

impl Source {
    /// Parses the content of a file.
    ///
    /// # Errors
    /// Fails if the content is not a command line, or is a manifest without the program.
    pub(super) fn parse(program: Program, file: &Path, content: &[u8]) -> Result<Self> {
        let file = file.to_owned();
        if content.contains(&0) {
            let parts = content.split(|byte| *byte == 0).filter(|part| !part.is_empty());
            let words = parts.map(|part| String::from_utf8_lossy(part).into_owned()).collect();
            let (_, arguments) = split_at_program(program, words);
            return Ok(Self { file, arguments, pod: None });
        }
        let text = std::str::from_utf8(content).context("the file is not UTF-8 text")?;
        if text.lines().any(|line| line.starts_with("kind:") || line.contains("\"kind\"")) {
            return Self::from_manifest(program, file, text);
        }
        let one_line = text.replace("\\\n", " ");
        let words =
            shlex::split(&one_line).context("the command line has a quote without an end")?;
        let (_, arguments) =
            split_at_program(program, words.into_iter().map(value_of_variable).collect());
        Ok(Self { file, arguments, pod: None })
    }

    fn from_manifest(program: Program, file: PathBuf, text: &str) -> Result<Self> {
        let manifest: Value = serde_saphyr::from_str(text).context("the manifest is no YAML")?;
        let manifest: Manifest =
            serde_path_to_error::deserialize(manifest).context("the manifest is no Pod")?;
        if manifest.kind != "Pod" {
            bail!("kind: {}, where a static pod has Pod", manifest.kind);
        }
        let spec = manifest.spec.context("spec: the Pod has none")?;
        let Some(container) = container_of(program, &spec.containers) else {
            bail!("spec.containers: none runs {}", program.name());
        };
        let words = [&container.command, &container.args].into_iter().flatten().flatten();
        let (wrapper, arguments) = split_at_program(program, words.cloned().collect());
        let sets_user = [
            spec.security_context.as_ref().and_then(|context| context.run_as_user),
            container.security_context.as_ref().and_then(|context| context.run_as_user),
        ];
        let is_proxy = |name: &str| PROXIES.iter().any(|proxy| proxy.eq_ignore_ascii_case(name));
        let env = container.env.iter().flatten().filter(|env| is_proxy(&env.name));
        let proxies = env.filter_map(|env| Some((env.name.clone(), env.value.clone()?))).collect();
        let pod = StaticPod {
            image: container.image.clone().unwrap_or_default(),
            wrapper,
            sets_user: sets_user.into_iter().flatten().next().is_some(),
            proxies,
        };
        Ok(Self { file, arguments, pod: Some(pod) })
    }
}

/// Returns the container that runs the program, found by its command or else by its name.
fn container_of(program: Program, containers: &[Container]) -> Option<&Container> {
    let runs = |container: &&Container| {
        let mut words = [&container.command, &container.args].into_iter().flatten().flatten();
        words.any(|word| is_program(program, word))
    };
    let by_command = containers.iter().find(runs);
    by_command.or_else(|| containers.iter().find(|container| container.name == program.name()))
}

fn is_program(program: Program, word: &str) -> bool {
    Path::new(word).file_name().is_some_and(|name| name == program.name())
}

/// Splits a command after the program's name. Returns the wrapper that starts the program, if there is one, and the program's
/// arguments. A command without the program's name has only arguments.
fn split_at_program(program: Program, words: Vec<String>) -> (Option<String>, Vec<String>) {
    match words.iter().position(|word| is_program(program, word)) {
        Some(at) => (words[..at].first().cloned(), words[at + 1..].to_vec()),
        None => (None, words),
    }
}

/// Returns the value of `NAME=VALUE`, which occurs in systemd's unit files; the flags after it are separate words. Other words
/// stay unchanged.
fn value_of_variable(word: String) -> String {
    match word.split_once('=') {
        Some((name, value))
            if !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_') =>
        {
            value.to_owned()
        }
        _ => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(program: Program, content: &str) -> Source {
        Source::parse(program, Path::new("/f"), content.as_bytes()).expect("a source")
    }

    #[test]
    fn command_lines_have_several_forms() {
        for content in [
            "/usr/local/bin/kube-scheduler\0--v=2\0--config=/a b\0",
            "kube-scheduler --v=2 '--config=/a b'\n",
            "--v=2 \\\n  \"--config=/a b\"\n",
            "KUBE_SCHEDULER_ARGS=--v=2 '--config=/a b'\n",
        ] {
            let source = parse(Program::KubeScheduler, content);
            assert_eq!(source.arguments, ["--v=2", "--config=/a b"], "{content:?}");
            assert_eq!(source.pod, None);
        }
        assert!(Source::parse(Program::KubeScheduler, Path::new("/f"), b"'--v=2").is_err());
    }

    #[test]
    fn manifest_of_kubeadm_has_arguments_and_a_user() {
        let text = include_str!("../../../../deploy/static-pod/kube-scheduler.yaml");
        let source = parse(Program::KubeScheduler, text);
        assert_eq!(source.arguments.len(), 5);
        assert!(source.arguments.contains(&"--leader-elect=true".to_owned()));
        let pod = source.pod.expect("a pod");
        assert!(pod.sets_user && pod.wrapper.is_none() && pod.proxies.is_empty(), "{pod:?}");
        let other = Source::parse(Program::KubeControllerManager, Path::new("/f"), text.as_bytes());
        assert!(format!("{:#}", other.expect_err("another program")).contains("spec.containers"));
    }

    #[test]
    fn wrapper_and_proxies_of_a_manifest_are_found() {
        let text = "kind: Pod\nspec:\n  containers:\n  - name: a\n    image: i\n    command: [/go-runner]\n    \
            args: [--log-file=/l, /usr/local/bin/kube-scheduler, --v=2]\n    \
            env: [{name: https_proxy, value: 'socks5://p'}, {name: NO_PROXY, value: x}]\n";
        let source = parse(Program::KubeScheduler, text);
        assert_eq!(source.arguments, ["--v=2"]);
        let pod = source.pod.expect("a pod");
        assert_eq!(pod.wrapper.as_deref(), Some("/go-runner"));
        assert_eq!(pod.proxies, [("https_proxy".to_owned(), "socks5://p".to_owned())]);
        assert!(!pod.sets_user);
    }
}
