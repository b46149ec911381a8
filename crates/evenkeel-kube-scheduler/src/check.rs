//! Validates a command line and a configuration file without starting the program.

use crate::{
    Registry,
    options::{Options, leader_options},
    profiles,
};
use anyhow::Result;
use evenkeel_component::{
    flags::{InvalidFlags, ParsedFlags},
    options::LeaderElectionOptions,
};

/// Flags that the program accepts.
#[derive(Debug)]
pub struct CheckedFlags {
    /// Warnings that the program logs at its start.
    pub warnings: Vec<String>,
    /// Flags on the command line that have no effect. `warnings` has a sentence about each.
    pub without_effect: Vec<&'static str>,
    /// Path of the configuration file (`--config`).
    pub config_file: Option<String>,
    /// Configuration from file and flags, or the reason why the program rejects it. `None` if `--config` names a file whose
    /// content is not known.
    pub configuration: Option<Result<Configuration>>,
}

/// Parts of a configuration that determine which pods the scheduler serves, and under which lease.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// Names of the profiles, the values of `spec.schedulerName`.
    pub scheduler_names: Vec<String>,
    /// Options of leader election.
    pub leader: LeaderElectionOptions,
}

/// Validates flags, and the content of the file that `--config` names.
///
/// # Errors
/// Returns the errors of all invalid flags.
pub fn check(
    parsed: ParsedFlags,
    config_text: Option<&str>,
    plugins: &Registry,
) -> Result<CheckedFlags, InvalidFlags> {
    let options = Options::check(parsed)?;
    let is_known = options.config_file.is_none() || config_text.is_some();
    let text = config_text.filter(|_| options.config_file.is_some());
    Ok(CheckedFlags {
        configuration: is_known.then(|| configuration(&options, text, plugins)),
        warnings: options.warnings,
        without_effect: options.without_effect,
        config_file: options.config_file,
    })
}

fn configuration(
    options: &Options,
    text: Option<&str>,
    plugins: &Registry,
) -> Result<Configuration> {
    let config = options.configuration_from(text)?;
    profiles::build_profiles(&config, plugins, &options.gates)?;
    let leader = leader_options(&config.leader_election);
    let scheduler_names = config.profiles.into_iter().filter_map(|profile| profile.scheduler_name);
    Ok(Configuration { scheduler_names: scheduler_names.collect(), leader })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::flags;
    use evenkeel_component::flags::Invocation;

    fn checked(arguments: &[&str], text: Option<&str>) -> CheckedFlags {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        let Ok(Invocation::Run(parsed)) = flags().parse("kube-scheduler", arguments) else {
            panic!("the arguments are refused");
        };
        check(parsed, text, &Registry::in_tree()).expect("valid flags")
    }

    const FILE: &str =
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

    #[test]
    fn configuration_of_the_file_is_checked() {
        let text = format!(
            "{FILE}leaderElection: {{resourceName: other}}\nprofiles: [{{schedulerName: second}}]\n"
        );
        let checked =
            checked(&["--config=/c.yaml", "--leader-elect-resource-namespace=x"], Some(&text));
        let config = checked.configuration.expect("a known file").expect("valid");
        assert_eq!(config.scheduler_names, ["second"]);
        assert_eq!((config.leader.name.as_str(), config.leader.namespace.as_str()), ("other", "x"));
    }

    #[test]
    fn unknown_plugin_is_an_error_of_the_configuration() {
        let text =
            format!("{FILE}profiles: [{{plugins: {{score: {{enabled: [{{name: Nope}}]}}}}}}]\n");
        let checked = checked(&["--config=/c.yaml"], Some(&text));
        let error = checked.configuration.expect("a known file").expect_err("an unknown plugin");
        assert!(format!("{error:#}").contains("Nope"), "{error:#}");
    }

    #[test]
    fn configuration_is_unknown_without_the_text_of_its_file() {
        assert!(checked(&["--config=/c.yaml"], None).configuration.is_none());
        let config = checked(&[], None).configuration.expect("the defaults").expect("valid");
        assert_eq!(config.scheduler_names, ["default-scheduler"]);
        assert_eq!(config.leader.name, "kube-scheduler");
    }
}
