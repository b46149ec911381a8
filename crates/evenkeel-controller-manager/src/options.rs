//! What the controller manager's flags mean to it.

use evenkeel_component::{
    flags::{Flags, Given, Reader, ValueError},
    options::{ClientOptions, LeaderOptions, ServingOptions},
};
use std::{collections::BTreeMap, time::Duration};

/// The flags of upstream's kube-controller-manager v1.37.
pub fn flags() -> Flags {
    Flags::from_table(include_str!("../data/flags.tsv"))
}

/// Checked options.
#[derive(Debug, Clone)]
pub struct Options {
    /// How to reach the API server.
    pub client: ClientOptions,
    /// Which controllers run: `*`, `name`, `-name`, in the order given.
    pub controllers: Vec<String>,
    /// Leader election.
    pub leader: LeaderOptions,
    /// What is served.
    pub serving: ServingOptions,
    /// How long controllers may take to stop.
    pub shutdown_timeout: Duration,
    /// Upper bound of the pauses between the starts of controllers.
    pub start_interval: Duration,
    /// Verbosity of the log, 0 to 10.
    pub verbosity: u8,
    /// Whether lines of the log are JSON.
    pub json_log: bool,
    /// Each controller's own.
    pub tuning: Tuning,
    /// Given flags with nothing behind them yet.
    pub unread: Vec<&'static str>,
}

/// Each controller's own options.
#[derive(Debug, Clone)]
pub struct Tuning {
    /// Workers per controller, by the flag that sets it.
    pub workers: BTreeMap<&'static str, usize>,
    /// Whether garbage is collected.
    pub garbage_collector: bool,
    /// PEM file that `kube-root-ca.crt` is made from; the client's own CA when empty.
    pub root_ca: Option<String>,
    /// How often namespaces are looked at again.
    pub namespace_sync: Duration,
    /// How often nodes' health is looked at.
    pub node_monitor_period: Duration,
    /// How long a silent node counts as healthy.
    pub node_grace: Duration,
    /// How long a new node may take.
    pub node_startup_grace: Duration,
}

/// Flags that say how many workers a controller has.
const WORKERS: [&str; 6] = [
    "concurrent-deployment-syncs",
    "concurrent-replicaset-syncs",
    "concurrent-rc-syncs",
    "concurrent-gc-syncs",
    "concurrent-namespace-syncs",
    "concurrent-serviceaccount-token-syncs",
];

impl Options {
    /// Checks what was given. The first bad value ends it, with an error that names the flag.
    pub fn check(given: Given) -> Result<Self, ValueError> {
        let read = Reader::new(given);
        let mut options = Self {
            client: ClientOptions::check(&read)?,
            controllers: read.list("controllers")?,
            leader: LeaderOptions::check(&read)?,
            serving: ServingOptions::check(&read)?,
            shutdown_timeout: read.duration("controller-shutdown-timeout")?,
            start_interval: read.duration("controller-start-interval")?,
            verbosity: read.int("v")?.clamp(0, 10) as u8,
            json_log: match read.text("logging-format")?.as_str() {
                "text" => false,
                "json" => true,
                other => {
                    return Err(ValueError::refused("logging-format", other, "want text or json"));
                }
            },
            tuning: Tuning::check(&read)?,
            unread: Vec::new(),
        };
        options.unread = read.unread();
        Ok(options)
    }
}

impl Tuning {
    fn check(read: &Reader) -> Result<Self, ValueError> {
        Ok(Self {
            workers: WORKERS
                .iter()
                .map(|flag| Ok((*flag, read.workers(flag)?)))
                .collect::<Result<_, ValueError>>()?,
            garbage_collector: read.bool("enable-garbage-collector")?,
            root_ca: read.path("root-ca-file")?,
            namespace_sync: read.duration("namespace-sync-period")?,
            node_monitor_period: read.duration("node-monitor-period")?,
            node_grace: read.duration("node-monitor-grace-period")?,
            node_startup_grace: read.duration("node-startup-grace-period")?,
        })
    }
}

/// Which of the known controllers `--controllers` asks for.
///
/// `name` turns one on and `-name` off, whatever stands before or after; `*` turns on all that are on by default.
/// A name that is not among `known` is an error.
pub fn enabled<'a>(
    asked: &[String],
    known: impl IntoIterator<Item = (&'a str, &'a [&'a str], bool)>,
    all_names: &[&str],
) -> Result<Vec<&'a str>, ValueError> {
    let known: Vec<_> = known.into_iter().collect();
    let canonical = |name: &str| {
        let alias = known.iter().find(|(_, aliases, _)| aliases.contains(&name));
        alias.map_or_else(|| name.to_owned(), |(canonical, ..)| (*canonical).to_owned())
    };
    let mut wanted = Vec::new();
    for item in asked {
        let (off, name) =
            item.strip_prefix('-').map_or((false, item.as_str()), |name| (true, name));
        let name = canonical(name);
        if name != "*"
            && !all_names.contains(&name.as_str())
            && !known.iter().any(|(known, ..)| *known == name)
        {
            return Err(ValueError::refused(
                "controllers",
                item,
                format!("{name:?} is not in the list of known controllers"),
            ));
        }
        wanted.push((off, name));
    }
    let asked_for = |name: &str, by_default: bool| {
        let named = wanted.iter().find(|(_, wanted)| wanted == name);
        let star = wanted.iter().any(|(off, wanted)| !off && wanted == "*");
        named.map_or(star && by_default, |(off, _)| !off)
    };
    Ok(known
        .iter()
        .filter(|(name, _, default)| asked_for(name, *default))
        .map(|(name, ..)| *name)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;
    use evenkeel_component::flags::normalise;

    fn options(arguments: &[&str]) -> Result<Options, String> {
        let flags = flags();
        let command = flags.command(Command::new("test").no_binary_name(true), &BTreeMap::new());
        let matches = command
            .try_get_matches_from(arguments.iter().map(|a| normalise(a)))
            .map_err(|e| e.to_string())?;
        let given = flags.read(&matches).map_err(|e| e.to_string())?;
        Options::check(given).map_err(|e| e.to_string())
    }

    #[test]
    fn defaults_are_upstreams() {
        let options = options(&[]).expect("defaults are valid");
        assert_eq!((options.client.qps, options.client.burst), (20.0, 30));
        assert_eq!(options.serving.port, 10257);
        assert_eq!(options.leader.name, "kube-controller-manager");
        assert_eq!(options.tuning.node_grace, Duration::from_secs(50));
        assert_eq!(options.tuning.workers["concurrent-gc-syncs"], 20);
        assert_eq!(options.serving.always_allow, ["/healthz", "/readyz", "/livez"]);
        assert!(options.unread.is_empty());
    }

    #[test]
    fn every_recorded_default_is_of_its_type() {
        let matches = flags()
            .command(Command::new("t").no_binary_name(true), &BTreeMap::new())
            .get_matches_from([""; 0]);
        let given = flags().read(&matches).expect("nothing given");
        for flag in flags().iter().filter(|flag| !matches!(flag.name, "help" | "version")) {
            assert!(given.value(flag.name).is_ok(), "{}", flag.name);
        }
    }

    #[test]
    fn what_kubeadm_writes_is_taken() {
        let options = options(&[
            "--allocate-node-cidrs=true",
            "--authentication-kubeconfig=/etc/kubernetes/controller-manager.conf",
            "--authorization-kubeconfig=/etc/kubernetes/controller-manager.conf",
            "--bind-address=127.0.0.1",
            "--client-ca-file=/etc/kubernetes/pki/ca.crt",
            "--cluster-cidr=10.244.0.0/16",
            "--cluster-name=kubernetes",
            "--cluster-signing-cert-file=/etc/kubernetes/pki/ca.crt",
            "--cluster-signing-key-file=/etc/kubernetes/pki/ca.key",
            "--controllers=*,bootstrapsigner,tokencleaner",
            "--kubeconfig=/etc/kubernetes/controller-manager.conf",
            "--leader-elect=true",
            "--requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt",
            "--root-ca-file=/etc/kubernetes/pki/ca.crt",
            "--service-account-private-key-file=/etc/kubernetes/pki/sa.key",
            "--service-cluster-ip-range=10.96.0.0/12",
            "--use-service-account-credentials=true",
        ])
        .expect("kubeadm's arguments are valid");
        assert!(options.unread.contains(&"allocate-node-cidrs"));
        assert!(!options.unread.contains(&"root-ca-file"));
    }

    #[test]
    fn bad_values_are_refused_by_name() {
        for (argument, name) in [
            ("--concurrent-deployment-syncs=0", "concurrent-deployment-syncs"),
            ("--secure-port=70000", "secure-port"),
            ("--bind-address=here", "bind-address"),
            ("--leader-elect-lease-duration=5s", "leader-elect-lease-duration"),
            ("--leader-elect-resource-lock=endpoints", "leader-elect-resource-lock"),
            ("--tls-cert-file=a", "tls-cert-file"),
            ("--no-such-flag", "no-such-flag"),
        ] {
            let error = options(&[argument]).expect_err(argument);
            assert!(error.contains(name), "{argument}: {error}");
        }
    }

    #[test]
    fn controllers_are_chosen_by_name_alias_and_star() {
        let known: [(&str, &[&str], bool); 3] = [
            ("deployment-controller", &["deployment"], true),
            ("b", &[], true),
            ("off", &[], false),
        ];
        let check = |asked: &[&str]| {
            let asked: Vec<String> = asked.iter().map(|s| (*s).to_owned()).collect();
            enabled(&asked, known, &["someone-elses"]).map_err(|e| e.to_string())
        };
        assert_eq!(check(&["*"]), Ok(vec!["deployment-controller", "b"]));
        assert_eq!(check(&["*", "-deployment"]), Ok(vec!["b"]));
        assert_eq!(check(&["deployment"]), Ok(vec!["deployment-controller"]));
        assert_eq!(
            check(&["*", "off", "someone-elses"]),
            Ok(vec!["deployment-controller", "b", "off"])
        );
        assert!(check(&["nonsense"]).is_err_and(|e| e.contains("nonsense")));
    }
}
