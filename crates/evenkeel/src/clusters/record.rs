//! Records and states of clusters, and the selection of a command's cluster.

use anyhow::{Result, bail};
use evenkeel_api::forms;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Name of a cluster without `--name` and without a data folder.
pub(crate) const DEFAULT_NAME: &str = "default";

/// State of a cluster, written by its process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    /// Name of the cluster.
    pub(crate) name: String,
    /// Process that runs the cluster.
    pub(crate) pid: u32,
    /// Start of the process (RFC 3339).
    pub(crate) started_at: String,
    /// Current stage of the start. `None` once the cluster is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) starting: Option<String>,
    /// Reason why the process ended with an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
    /// URL of the API server, once it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    /// URL of the console, with its token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) console: Option<String>,
    /// The cluster's own kubeconfig. `None` with a remote API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Control socket of the process.
    pub(crate) socket: PathBuf,
    /// Log of the process.
    pub(crate) log: PathBuf,
    /// Data folder. `None` if the state is in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data_dir: Option<PathBuf>,
    /// The user's kubeconfig, if the cluster was added to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) merged_into: Option<PathBuf>,
    /// File of another cluster that `$KUBECONFIG` names, so that kubectl in the shell of the start does not use this cluster.
    #[serde(skip)]
    pub(crate) shell_kubeconfig: Option<PathBuf>,
    /// Previous current contexts of the user's kubeconfig, the latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) previous_contexts: Vec<String>,
}

/// Returns the context of a cluster in kubeconfigs.
pub(crate) fn context(name: &str) -> String {
    format!("evenkeel-{name}")
}

/// Returns the name of a context's cluster, or `None` if the context belongs to no cluster of `evenkeel up`.
pub(crate) fn cluster_of_context(context: &str) -> Option<&str> {
    context.strip_prefix("evenkeel-").filter(|name| check_name(name).is_ok())
}

/// State of a cluster, from its record and its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum State {
    /// The process runs, and the cluster is not ready yet.
    Starting,
    /// The process runs, and the cluster was ready.
    Running,
    /// The process ended with an error.
    Failed,
    /// The process crashed or was killed, for example by SIGKILL.
    Crashed,
}

impl State {
    /// Returns the state according to the record, and to whether a process holds the lock. `None` means that there is no
    /// cluster.
    pub(crate) fn of(is_locked: bool, record: Option<&Record>) -> Option<Self> {
        match (is_locked, record) {
            (true, Some(Record { starting: None, .. })) => Some(Self::Running),
            (true, _) => Some(Self::Starting),
            (false, Some(Record { failure: Some(_), .. })) => Some(Self::Failed),
            (false, Some(_)) => Some(Self::Crashed),
            (false, None) => None,
        }
    }

    /// Returns whether a process runs the cluster.
    pub(crate) fn is_alive(self) -> bool {
        matches!(self, Self::Starting | Self::Running)
    }

    /// Returns the state as a word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Failed => "failed",
            Self::Crashed => "crashed",
        }
    }
}

/// Cluster that a command has found in the state folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cluster {
    pub(crate) name: String,
    pub(crate) state: State,
    /// Record of the cluster. `None` immediately after the process was started.
    pub(crate) record: Option<Record>,
}

/// Checks that a name is a DNS label (RFC 1123).
///
/// # Errors
/// Fails if the name is not a DNS label.
pub(crate) fn check_name(name: &str) -> Result<String, String> {
    if forms::dns_label(name).is_empty() {
        return Ok(name.to_owned());
    }
    Err("a name has at most 63 lower case letters, digits and '-', and begins and ends with a letter or digit".to_owned())
}

impl Cluster {
    /// Returns whether this is the cluster's data folder.
    pub(super) fn uses(&self, folder: &Path) -> bool {
        let data_dir = self.record.as_ref().and_then(|record| record.data_dir.as_deref());
        let whole = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).ok();
        data_dir.is_some_and(|data_dir| whole(data_dir) == whole(folder))
    }
}

/// Returns the cluster of a command, by its name or its data folder. Without these, returns the only cluster, the
/// cluster of the kubeconfig's current context, or `default`.
///
/// # Errors
/// Fails if the cluster does not exist, or several clusters match.
pub(crate) fn choose<'a>(
    clusters: &'a [Cluster],
    name: Option<&str>,
    current: Option<&str>,
) -> Result<&'a Cluster> {
    let find = |name: &str| clusters.iter().find(|cluster| cluster.name == name);
    let names = || clusters.iter().map(|cluster| &*cluster.name).collect::<Vec<_>>().join(", ");
    match (name, clusters) {
        (_, []) => bail!("there is no cluster; start one with: evenkeel up"),
        (Some(name), _) => match find(name) {
            Some(cluster) => Ok(cluster),
            None => match clusters.iter().find(|cluster| cluster.uses(Path::new(name))) {
                Some(cluster) => Ok(cluster),
                None => bail!("there is no cluster {name}; there are: {}", names()),
            },
        },
        (None, [only]) => Ok(only),
        (None, [first, ..]) => match current.and_then(find).or_else(|| find(DEFAULT_NAME)) {
            Some(cluster) => Ok(cluster),
            None => {
                bail!("which cluster? There are: {}; name it: --name {}", names(), first.name)
            }
        },
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::clusters) fn record(name: &str) -> Record {
        Record {
            name: name.to_owned(),
            pid: 7,
            started_at: "2026-01-02T03:04:05Z".to_owned(),
            starting: None,
            failure: None,
            url: Some("https://127.0.0.1:6443".to_owned()),
            console: Some("http://127.0.0.1:7070/?token=t".to_owned()),
            kubeconfig: Some("/s/kubeconfig".into()),
            socket: "/s/controllers.sock".into(),
            log: "/s/log".into(),
            data_dir: None,
            merged_into: None,
            shell_kubeconfig: None,
            previous_contexts: Vec::new(),
        }
    }

    pub(in crate::clusters) fn cluster(name: &str, state: State) -> Cluster {
        Cluster { name: name.to_owned(), state, record: Some(record(name)) }
    }

    #[test]
    fn a_folder_means_a_state() {
        let ready = record("a");
        let starting = Record { starting: Some("API server".to_owned()), ..ready.clone() };
        let failed = Record { failure: Some("why".to_owned()), ..ready.clone() };
        for (is_locked, record, want) in [
            (true, Some(&ready), Some(State::Running)),
            (true, Some(&starting), Some(State::Starting)),
            (true, None, Some(State::Starting)),
            (false, Some(&ready), Some(State::Crashed)),
            (false, Some(&starting), Some(State::Crashed)),
            (false, Some(&failed), Some(State::Failed)),
            (false, None, None),
        ] {
            assert_eq!(State::of(is_locked, record), want, "{is_locked} {record:?}");
        }
    }

    #[test]
    fn names_are_dns_labels() {
        for name in ["a", "default", "a-1", "0", &"x".repeat(63)] {
            assert_eq!(check_name(name).as_deref(), Ok(name));
        }
        for name in ["", "A", "a.b", "../a", "a/b", "-a", "a-", "ä", &"x".repeat(64)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn contexts_lead_to_clusters() {
        for (context, want) in
            [("evenkeel-a", Some("a")), ("evenkeel-", None), ("evenkeel-A", None), ("work", None)]
        {
            assert_eq!(cluster_of_context(context), want, "{context}");
        }
        assert_eq!(cluster_of_context(&context("b-1")), Some("b-1"));
    }

    #[test]
    fn a_data_folder_names_its_cluster() {
        let data = tempfile::tempdir().expect("a folder");
        let with = |name: &str, data_dir: Option<PathBuf>| Cluster {
            record: Some(Record { data_dir, ..record(name) }),
            ..cluster(name, State::Running)
        };
        let clusters = [with("a", None), with("data-1", Some(data.path().to_owned()))];
        let folder = data.path().join("../").join(data.path().file_name().expect("a name"));
        for name in [data.path(), &folder] {
            let chosen = choose(&clusters, name.to_str(), None).expect("found");
            assert_eq!(chosen.name, "data-1");
        }
        let other = choose(&clusters, Some("/nonexistent"), None).expect_err("no cluster's");
        assert!(other.to_string().starts_with("there is no cluster /nonexistent"), "{other}");
    }

    #[test]
    fn a_command_without_a_name_finds_its_cluster() {
        let cluster = |name: &str| cluster(name, State::Running);
        let table = [
            (&[][..], None, None, Err("there is no cluster; start one with: evenkeel up")),
            (&[], Some("a"), None, Err("there is no cluster; start one with: evenkeel up")),
            (&["a"], None, None, Ok("a")),
            (&["a"], None, Some("gone"), Ok("a")),
            (&["a", "b"], None, None, Err("which cluster? There are: a, b; name it: --name a")),
            (
                &["a", "b"],
                None,
                Some("gone"),
                Err("which cluster? There are: a, b; name it: --name a"),
            ),
            (&["a", "b"], None, Some("b"), Ok("b")),
            (&["a", "default"], None, None, Ok("default")),
            (&["a", "default"], None, Some("a"), Ok("a")),
            (&["a", "default"], Some("default"), Some("a"), Ok("default")),
            (&["a", "b"], Some("c"), Some("a"), Err("there is no cluster c; there are: a, b")),
        ];
        for (names, name, current, want) in table {
            let clusters: Vec<Cluster> = names.iter().map(|name| cluster(name)).collect();
            let chosen = choose(&clusters, name, current).map(|cluster| cluster.name.clone());
            let chosen = chosen.map_err(|error| error.to_string());
            let chosen = chosen.as_deref().map_err(|error| &**error);
            assert_eq!(chosen, want, "{names:?} {name:?} {current:?}");
        }
    }
}
