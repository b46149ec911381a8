//! `evenkeel console`: prints the URL of a cluster's console.

use super::{
    folder::Clusters,
    record::{Cluster, choose},
};
use crate::{
    command::{exit_code, print},
    kubeconfig::Home,
};
use anyhow::{Result, bail};
use std::process::ExitCode;

/// Arguments of `evenkeel console`.
#[derive(Debug, clap::Args)]
pub(crate) struct ConsoleArgs {
    /// Name of the cluster. Default: `default`, or the only one.
    name: Option<String>,
}

/// Runs `evenkeel console`.
pub(crate) fn console(args: &ConsoleArgs) -> ExitCode {
    let url = Clusters::of(&Home::from_env())
        .all()
        .and_then(|all| url(choose(&all, args.name.as_deref())?));
    exit_code(url.map(|url| {
        print(&format!("{url}\n"));
        ExitCode::SUCCESS
    }))
}

/// Returns the URL of a cluster's console.
fn url(cluster: &Cluster) -> Result<String> {
    let name = &cluster.name;
    if !cluster.state.is_alive() {
        bail!("cluster {name} does not run; start it with: evenkeel up --name {name}");
    }
    match cluster.record.as_ref().and_then(|record| record.console.clone()) {
        Some(url) => Ok(url),
        None => bail!("cluster {name} has no console: see --console of evenkeel up"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusters::record::{State, tests::cluster};

    #[test]
    fn only_a_running_cluster_has_a_console() {
        let running = cluster("a", State::Running);
        assert_eq!(url(&running).expect("a console"), "http://127.0.0.1:7070/?token=t");
        let crashed = url(&cluster("a", State::Crashed)).expect_err("no process");
        assert!(crashed.to_string().contains("evenkeel up --name a"), "{crashed}");
        let mut without = running;
        if let Some(record) = &mut without.record {
            record.console = None;
        }
        assert!(url(&without).expect_err("none").to_string().contains("--console"));
    }
}
