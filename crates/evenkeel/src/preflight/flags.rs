//! Check of a program's flags by the tables and rules of our programs.

use evenkeel_component::{
    flags::{Flags, Invocation, ParsedFlags, Value},
    options::LeaderElectionOptions,
};
use evenkeel_controller_manager::{controllers, options as controller_manager};
use evenkeel_controllers::wiring::descriptor::Descriptor;
use evenkeel_kube_scheduler::Registry;
use std::collections::BTreeSet;

/// Flags of a command line, grouped by their effect on our program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CheckedCommandLine {
    /// Flags with their effect.
    pub(super) accepted: Vec<String>,
    /// Flags that are accepted without an effect.
    pub(super) without_effect: Vec<String>,
    /// Errors of flags that are refused.
    pub(super) refused: Vec<String>,
    /// Warnings that the program logs at its start: of deprecated flags, and of flags without an effect.
    pub(super) warnings: Vec<String>,
    /// Enabled controllers that are not implemented.
    pub(super) missing_controllers: Vec<String>,
    /// Service accounts of the enabled controllers.
    pub(super) controller_accounts: Vec<&'static str>,
    /// File of `--config`.
    pub(super) config_file: Option<String>,
    /// Check of that file: the names of the profiles, or the error. `None` if its content is not known.
    pub(super) scheduler_names: Option<Result<Vec<String>, String>>,
    /// Lease of leader election. `None` without leader election, or if the flags are refused.
    pub(super) lease: Option<LeaseName>,
    /// Whether leader election is turned off.
    pub(super) leader_election_is_off: bool,
    /// Whether each controller uses its own service account (`--use-service-account-credentials`).
    pub(super) uses_service_accounts: bool,
}

/// Namespace and name of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeaseName {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl CheckedCommandLine {
    fn set_leader(&mut self, leader: &LeaderElectionOptions) {
        self.leader_election_is_off = !leader.elect;
        self.lease = leader
            .elect
            .then(|| LeaseName { namespace: leader.namespace.clone(), name: leader.name.clone() });
    }
}

/// Checks the arguments of a kube-controller-manager.
pub(super) fn check_controller_manager(arguments: Vec<String>) -> CheckedCommandLine {
    let (mut checked, parsed) =
        parse("kube-controller-manager", &controller_manager::flags(), arguments);
    let Some(parsed) = parsed else { return checked };
    let names = names(&parsed);
    let own_accounts = parsed.value("use-service-account-credentials");
    checked.uses_service_accounts = own_accounts == Some(Value::Bool(true));
    match controller_manager::Options::check(parsed) {
        Ok(options) => {
            checked.set_leader(&options.leader);
            let (enabled, missing) = controllers::split_enabled(&options);
            checked.controller_accounts = accounts(&enabled);
            checked.missing_controllers = missing.into_iter().map(str::to_owned).collect();
            checked.without_effect = owned(&options.without_effect);
            checked.warnings = options.warnings;
        }
        Err(invalid) => checked.refused.extend(invalid.iter().map(str::to_owned)),
    }
    checked.accepted = without(names, &checked.without_effect);
    checked
}

/// Returns the service accounts of controllers, each once.
fn accounts(controllers: &[Descriptor]) -> Vec<&'static str> {
    let accounts = controllers.iter().map(|controller| controller.client);
    let accounts: BTreeSet<&str> = accounts.filter(|account| !account.is_empty()).collect();
    accounts.into_iter().collect()
}

/// Checks the arguments of a kube-scheduler, and the content of its configuration file if that is known.
pub(super) fn check_scheduler(arguments: Vec<String>, config: Option<&str>) -> CheckedCommandLine {
    let flags = evenkeel_kube_scheduler::command_line().flags;
    let (mut checked, parsed) = parse("kube-scheduler", &flags, arguments);
    let Some(parsed) = parsed else { return checked };
    let names = names(&parsed);
    match evenkeel_kube_scheduler::check(parsed, config, &Registry::in_tree()) {
        Ok(scheduler) => {
            checked.without_effect = owned(&scheduler.without_effect);
            checked.warnings = scheduler.warnings;
            checked.config_file = scheduler.config_file;
            checked.scheduler_names = scheduler.configuration.map(|configuration| {
                let configuration = configuration.map_err(|error| format!("{error:#}"))?;
                checked.set_leader(&configuration.leader);
                Ok(configuration.scheduler_names)
            });
        }
        Err(invalid) => checked.refused.extend(invalid.iter().map(str::to_owned)),
    }
    checked.accepted = without(names, &checked.without_effect);
    checked
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn names(parsed: &ParsedFlags) -> Vec<String> {
    parsed.names().map(str::to_owned).collect()
}

fn without(names: Vec<String>, removed: &[String]) -> Vec<String> {
    names.into_iter().filter(|name| !removed.contains(name)).collect()
}

/// Parses each argument separately to find all errors, and then parses the valid arguments together.
fn parse(
    program: &str,
    flags: &Flags,
    arguments: Vec<String>,
) -> (CheckedCommandLine, Option<ParsedFlags>) {
    let (mut checked, mut valid) = (CheckedCommandLine::default(), Vec::new());
    for group in with_their_values(arguments) {
        match flags.parse(program, group.clone()) {
            Ok(Invocation::Run(_)) => valid.extend(group),
            Ok(Invocation::Help | Invocation::Version { .. }) => {
                checked.refused.push(format!("{}: the program ends after it", group.join(" ")));
            }
            Err(error) => checked.refused.push(error.to_string()),
        }
    }
    let parsed = match flags.parse(program, valid) {
        Ok(Invocation::Run(parsed)) => Some(parsed),
        Ok(_) => None,
        Err(error) => {
            checked.refused.push(error.to_string());
            None
        }
    };
    (checked, parsed)
}

/// Returns each flag together with the following words that are not flags.
fn with_their_values(arguments: Vec<String>) -> Vec<Vec<String>> {
    let mut groups: Vec<Vec<String>> = Vec::new();
    for argument in arguments {
        match groups.last_mut() {
            Some(group) if !argument.starts_with('-') => group.push(argument),
            _ => groups.push(vec![argument]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn every_refused_flag_is_named() {
        let text = "--no-such-flag=1 --leader-elect=maybe --v 2 --neither x --leader-elect-retry-period=20s";
        let checked = check_controller_manager(words(text));
        let refused = checked.refused.join("\n");
        assert_eq!(checked.refused.len(), 4, "{refused}");
        for part in ["--no-such-flag", "\"maybe\"", "--neither", "retryPeriod"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
    }

    #[test]
    fn lease_and_accounts_are_those_of_the_flags() {
        let text = "--use-service-account-credentials=true --leader-elect-resource-name=other --controllers=*,-nosuch";
        let checked = check_controller_manager(words(text));
        assert!(checked.refused.iter().any(|error| error.contains("nosuch")), "{checked:?}");
        let checked =
            check_controller_manager(words(&text.replace(",-nosuch", ",-ttl-controller")));
        assert!(checked.uses_service_accounts && checked.refused.is_empty(), "{checked:?}");
        let lease = LeaseName { namespace: "kube-system".to_owned(), name: "other".to_owned() };
        assert_eq!(checked.lease, Some(lease));
        assert_eq!(checked.accepted.len(), 3);
        let accounts = &checked.controller_accounts;
        assert!(accounts.contains(&"node-controller") && !accounts.contains(&"ttl-controller"));
    }

    #[test]
    fn scheduler_without_leader_election_has_no_lease() {
        let checked = check_scheduler(words("--leader-elect=false"), None);
        assert!(checked.leader_election_is_off && checked.lease.is_none());
        assert_eq!(checked.scheduler_names, Some(Ok(vec!["default-scheduler".to_owned()])));
        let unknown = check_scheduler(words("--config=/no/such/file"), None);
        assert_eq!(
            (unknown.config_file.as_deref(), &unknown.scheduler_names),
            (Some("/no/such/file"), &None)
        );
        let invalid = check_scheduler(words("--config=/f"), Some("kind: Nope"));
        assert!(invalid.scheduler_names.expect("checked").is_err());
    }

    #[test]
    fn flags_of_kubeadm_are_accepted() {
        let text = include_str!("../../../../deploy/static-pod/kube-controller-manager.yaml");
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix("- --"));
        let checked = check_controller_manager(lines.map(|flag| format!("--{flag}")).collect());
        assert_eq!(checked.refused, [""; 0]);
        assert_eq!(checked.without_effect, [""; 0]);
        assert_eq!(checked.accepted.len(), 17);
        // kubeadm adds it where a cluster has a name.
        let checked =
            check_controller_manager(words("--cluster-name=prod --cloud-provider=external"));
        assert_eq!((checked.without_effect, checked.warnings), (Vec::new(), Vec::new()));
    }
}
