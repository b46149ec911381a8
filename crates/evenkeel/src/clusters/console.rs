//! `evenkeel console`: prints the URL of a cluster's console.

use super::{
    folder::Clusters,
    named::{self, NamedCluster},
    record::Cluster,
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
    #[command(flatten)]
    cluster: NamedCluster,
}

/// Runs `evenkeel console`.
pub(crate) fn console(args: &ConsoleArgs) -> ExitCode {
    let home = Home::from_env();
    let url = Clusters::of(&home)
        .all()
        .and_then(|all| url(named::find(&all, args.cluster.name(), &home)?));
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
