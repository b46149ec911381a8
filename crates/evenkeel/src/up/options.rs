//! Options of `evenkeel up`.

use super::config::{Components, ConsolePort, NoConsole};
use crate::{
    clusters::{DEFAULT_NAME, Record, check_name, context},
    server::ServerArgs,
};
use anyhow::{Result, bail};
use evenkeel_component::features::FeatureGates;
use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

/// Flags of `evenkeel up`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Configuration file (YAML): a Cluster of evenkeel.dev/v1alpha1. Flags win over it.
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,

    /// Print the JSON schema of the configuration file.
    #[arg(long)]
    pub(super) print_config_schema: bool,

    /// What the configuration file says of the components.
    #[arg(skip)]
    pub(super) components: Components,

    /// Name of the cluster, a DNS label. Default: `default`, or a name made of the data folder's.
    #[arg(long, value_parser = check_name)]
    pub(super) name: Option<String>,

    /// Run in the background: return when the cluster is ready, so that pods can be created. `evenkeel down` stops it.
    #[arg(short, long)]
    pub(super) detach: bool,

    /// Also wait this long (such as 60s) until all nodes are Ready. The start fails if that takes longer.
    #[arg(long, value_name = "DURATION", value_parser = crate::durations::parse)]
    pub(super) wait: Option<Duration>,

    /// Apply the manifests of this file or folder once the cluster is ready. Repeatable.
    #[arg(long, value_name = "PATH")]
    pub(super) load: Vec<PathBuf>,

    /// Folder for the cluster's state. Without it, the state is lost when the program stops.
    #[arg(long, value_name = "DIR")]
    pub(super) data_dir: Option<PathBuf>,

    /// Port of the API server. 0 chooses a free one. Default: 6443 if it is free, or else a free one.
    #[arg(long)]
    pub(super) port: Option<u16>,

    /// Address on which the API server listens. Default: 127.0.0.1.
    #[arg(long, value_name = "IP")]
    pub(super) bind_address: Option<IpAddr>,

    /// Port of the console in the browser, on 127.0.0.1; `none` serves none. 0 chooses a free port. Default: a free one.
    #[arg(long, value_name = "PORT", value_parser = console_port)]
    pub(super) console: Option<ConsolePort>,

    /// Let the console's pages set the annotations of the simulation. Otherwise they only read.
    #[arg(long)]
    pub(super) console_writes: bool,

    /// Number of simulated nodes. Default: 3; with a data folder of `evenkeel clone`, none besides the folder's own, which
    /// always run.
    #[arg(long, value_name = "N")]
    pub(super) nodes: Option<u32>,

    /// Do not schedule pods.
    #[arg(long)]
    pub(super) no_scheduler: bool,

    /// Do not run controllers.
    #[arg(long)]
    pub(super) no_controllers: bool,

    /// Give the cluster a time of its own, which passes this many times as fast as the system's, such as 60x. With 1x, it is as
    /// fast, and `evenkeel time` can change it. The state is in memory.
    #[arg(long, value_name = "FACTOR", value_parser = crate::time::parse_start_speed,
        conflicts_with_all = ["data_dir", "apiserver", "kubeconfig"])]
    pub(super) speed: Option<f64>,

    /// Use the API server at this address instead of an embedded one.
    #[arg(long, value_name = "URL", conflicts_with_all = ["data_dir", "port", "bind_address"])]
    pub(super) apiserver: Option<String>,

    /// Use the cluster of this kubeconfig instead of an embedded API server.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["data_dir", "port", "bind_address"])]
    pub(super) kubeconfig: Option<PathBuf>,

    /// Addresses for Services of type LoadBalancer: CIDRs, ranges (first-last) or single addresses, separated by
    /// commas; `none` assigns no addresses. Default: 198.18.0.0/24 for the embedded API server, none for another one.
    #[arg(long, value_name = "ADDRESSES")]
    pub(super) load_balancer_pool: Option<String>,

    /// Add the cluster to your kubeconfig ($KUBECONFIG, else ~/.kube/config) as the current context evenkeel-NAME, until it
    /// stops. Default: true with --detach, false without.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) write_kubeconfig: Option<bool>,

    /// Feature gates of controllers, scheduler and API server, as Name=true or Name=false, separated by commas. Of the API
    /// server's, ShardedListAndWatch has an effect. AllAlpha and AllBeta stand for all of a stage.
    #[arg(long, value_name = "GATES", value_delimiter = ',', value_parser = feature_gate)]
    pub(super) feature_gates: Vec<(String, bool)>,

    #[command(flatten)]
    pub(super) server: ServerArgs,

    /// Log to this file instead of one in the cluster's state folder, which `evenkeel logs` prints.
    #[arg(long, value_name = "FILE")]
    pub(super) log_file: Option<PathBuf>,

    /// Print the log too, not only warnings, and log more: once for actions, twice for every request.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,

    /// Output: text, or json for an event on each line.
    #[arg(short, long, default_value = "text", value_parser = ["text", "json"])]
    pub(super) output: String,

    /// Whether `evenkeel clone` made the data folder.
    #[arg(skip)]
    pub(super) is_copy: bool,

    /// This is the process in the background.
    #[arg(long, hide = true)]
    pub(super) background: bool,

    /// The process starts again without the objects of its cluster, on this port.
    #[arg(long, hide = true)]
    pub(super) restarted_on: Option<u16>,
}

/// Parses the value of `--console`.
fn console_port(text: &str) -> Result<ConsolePort, String> {
    match text {
        "none" => Ok(ConsolePort::Word(NoConsole::None)),
        port => port.parse().map(ConsolePort::Port).map_err(|_| "use a port, or none".to_owned()),
    }
}

/// Parses a pair of `--feature-gates`.
fn feature_gate(pair: &str) -> Result<(String, bool), String> {
    let (name, value) =
        pair.split_once('=').ok_or_else(|| format!("missing bool value for {pair}"))?;
    let (name, value) = (name.trim(), value.trim());
    let on = value.parse().map_err(|_| format!("invalid value of {name}: use true or false"))?;
    Ok((name.to_owned(), on))
}

/// Number of nodes without a flag and a configuration.
const DEFAULT_NODES: u32 = 3;

/// Name of the hidden flag [`Args::restarted_on`].
pub(super) const RESTARTED_ON: &str = "--restarted-on=";

/// Default pool of the embedded API server: addresses that are reserved for benchmarks (RFC 2544) and not routed.
const DEFAULT_POOL: &str = "198.18.0.0/24";

/// Maximum length of the data folder's name within a cluster's name.
const MAX_FOLDER_PART: usize = 40;

impl Args {
    /// Returns the pool of load balancer addresses, or `None` if Services get none.
    pub(super) fn pool(&self) -> Option<&str> {
        let default = (!self.is_remote()).then_some(DEFAULT_POOL);
        self.load_balancer_pool.as_deref().or(default).filter(|pool| *pool != "none")
    }

    /// Returns whether the cluster uses a remote API server instead of the embedded one.
    pub(super) fn is_remote(&self) -> bool {
        self.apiserver.is_some() || self.kubeconfig.is_some()
    }

    /// Returns the number of simulated nodes.
    pub(super) fn node_count(&self) -> u32 {
        let groups = self.components.nodes.as_ref();
        let configured = groups
            .map(|groups| groups.iter().map(|group| group.count).fold(0, u32::saturating_add));
        self.nodes.or(configured).unwrap_or(DEFAULT_NODES)
    }

    /// Returns whether the cluster is added to the user's kubeconfig. By default, a cluster in the background is added, because
    /// it is used from any shell, like a cluster of kind. A cluster in the foreground is not added, because it is usually part
    /// of a script.
    pub(super) fn merges_kubeconfig(&self) -> bool {
        !self.is_remote() && self.write_kubeconfig.unwrap_or(self.detach)
    }

    /// Returns whether a feature gate of the API server is enabled, by its name or by AllAlpha or AllBeta.
    ///
    /// # Errors
    /// Fails if the gates are invalid.
    pub(super) fn has_feature(&self, gate: &str) -> Result<bool> {
        let gates = &self.components.feature_gates;
        let pairs: Vec<_> =
            gates.iter().map(|(name, on)| (String::new(), format!("{name}={on}"))).collect();
        let resolved = FeatureGates::resolve(&[], &[], &pairs);
        match resolved.errors.first() {
            Some(error) => bail!("--feature-gates: {error}"),
            None => Ok(resolved.gates.enabled(gate)),
        }
    }

    /// Returns whether events are printed as JSON. In the background, they always are, because the process that started this
    /// one parses them.
    pub(super) fn prints_json(&self) -> bool {
        self.background || self.output == "json"
    }
}

/// Returns the name of a cluster: that of `--name`, a name derived from the absolute path of its data folder, or `default`.
pub(super) fn cluster_name(name: Option<&str>, data_dir: Option<&Path>) -> String {
    match (name, data_dir) {
        (Some(name), _) => name.to_owned(),
        (None, None) => DEFAULT_NAME.to_owned(),
        (None, Some(folder)) => name_of_folder(folder),
    }
}

/// Returns a name for the cluster of a data folder: the folder's name, and a hash of its path, so that folders with the same
/// name in different places get different names.
fn name_of_folder(folder: &Path) -> String {
    let base = folder.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let part: String = base
        .chars()
        .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' })
        .take(MAX_FOLDER_PART)
        .collect();
    let mut hasher = DefaultHasher::new();
    folder.hash(&mut hasher);
    let part = match part.trim_matches('-') {
        "" => "data",
        part => part,
    };
    format!("{part}-{:08x}", hasher.finish() & 0xffff_ffff)
}

/// Returns the contexts that can become current again in the user's kubeconfig when the cluster stops, the latest first: the
/// current one and, if it belongs to another cluster, the previous contexts of that cluster. With these, a context is restored
/// even if the other cluster stops first. The result has no duplicates, and does not contain `own`, the cluster's context.
pub(super) fn previous_contexts<'a>(
    own: &str,
    current: Option<&str>,
    mut others: impl Iterator<Item = &'a Record>,
) -> Vec<String> {
    let Some(current) = current else { return Vec::new() };
    let other = others.find(|other| context(&other.name) == current);
    let further = other.map_or(&[][..], |other| &other.previous_contexts);
    let mut contexts: Vec<String> = Vec::new();
    for context in std::iter::once(current).chain(further.iter().map(String::as_str)) {
        if context != own && !contexts.iter().any(|known| known == context) {
            contexts.push(context.to_owned());
        }
    }
    contexts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_gates_are_pairs() {
        assert_eq!(feature_gate("A=true"), Ok(("A".to_owned(), true)));
        assert_eq!(feature_gate("A=false"), Ok(("A".to_owned(), false)));
        assert_eq!(feature_gate("A"), Err("missing bool value for A".to_owned()));
        let error = "invalid value of A: use true or false";
        assert_eq!(feature_gate("A=1"), Err(error.to_owned()));
    }

    #[test]
    fn gates_of_the_api_server_follow_the_groups() {
        #[derive(clap::Parser)]
        struct Up {
            #[command(flatten)]
            args: Args,
        }
        let sharded = |gates: &[(&str, bool)]| {
            let mut args = <Up as clap::Parser>::parse_from(["up"]).args;
            let gates = gates.iter().map(|(name, on)| ((*name).to_owned(), *on));
            args.components.feature_gates = gates.collect();
            args.has_feature(crate::server::SHARDED_LIST_AND_WATCH)
                .map_err(|error| error.to_string())
        };
        let (all_alpha, all_beta) = (("AllAlpha", true), ("AllBeta", true));
        for (gates, want) in [
            (&[][..], Ok(false)),
            (&[("ShardedListAndWatch", true)], Ok(true)),
            (&[all_alpha, all_beta], Ok(true)),
            (&[all_alpha, all_beta, ("ShardedListAndWatch", false)], Ok(false)),
            (&[("AllBeta", false)], Ok(false)),
        ] {
            assert_eq!(sharded(gates), want, "{gates:?}");
        }
        let error = sharded(&[("Nothing", true)]).expect_err("no gate");
        assert_eq!(error, "--feature-gates: unrecognized feature gate: Nothing");
    }

    #[test]
    fn the_console_has_a_port_or_is_none() {
        assert_eq!(console_port("none"), Ok(ConsolePort::Word(NoConsole::None)));
        assert_eq!(console_port("0"), Ok(ConsolePort::Port(0)));
        for wrong in ["", "off", "-1", "65536"] {
            assert!(console_port(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn names_come_from_the_flag_or_the_folder() {
        let name = |name, folder: Option<&str>| cluster_name(name, folder.map(Path::new));
        assert_eq!(name(Some("a"), Some("/d")), "a");
        assert_eq!(name(None, None), "default");
        assert_ne!(name(None, Some("/a/data")), name(None, Some("/b/data")));
        assert_eq!(name(None, Some("/a/data")), name(None, Some("/a/data")));
        for (folder, part) in [
            ("/a/data", "data-"),
            ("/tmp/tmp.Ab_1", "tmp-ab-1-"),
            ("/", "data-"),
            ("/x/___", "data-"),
            (&format!("/{}", "n".repeat(200)), "nnn"),
        ] {
            let name = name(None, Some(folder));
            assert!(name.starts_with(part) && check_name(&name).is_ok(), "{name}");
        }
    }

    #[test]
    fn contexts_are_restored_through_other_clusters() {
        let record: Record = serde_json::from_str(
            r#"{"name":"a","pid":1,"startedAt":"","socket":"","log":"","previousContexts":["evenkeel-own","work","evenkeel-a"]}"#,
        )
        .expect("a record");
        for (current, want) in [
            (None, &[][..]),
            (Some("work"), &["work"]),
            (Some("evenkeel-a"), &["evenkeel-a", "work"]),
            (Some("evenkeel-b"), &["evenkeel-b"]),
            (Some("evenkeel-own"), &[]),
        ] {
            assert_eq!(previous_contexts("evenkeel-own", current, [&record].into_iter()), want);
        }
    }
}
