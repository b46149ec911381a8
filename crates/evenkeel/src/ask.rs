//! `evenkeel explain`, `evenkeel plan` and `evenkeel schedule`: queries about a cluster, which write nothing.
#![expect(clippy::print_stdout, reason = "this module prints to the user")]

use crate::{
    clusters::Clusters,
    command::{self, block_on},
    kubeconfig::Home,
};
use evenkeel::explain;
use evenkeel_controller_manager::plan;
use evenkeel_controllers::{
    needs::Gates,
    options::Options,
    wiring::descriptor::{Descriptor, descriptors},
};
use evenkeel_runtime::{
    client::{self, ConnectOptions},
    clock::Clock,
};
use std::{path::PathBuf, process::ExitCode, time::Duration};

/// Flags of `evenkeel plan`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PlanArgs {
    /// Kubeconfig of the cluster. Default: $KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Context in the kubeconfig. Default: its current one.
    #[arg(long)]
    context: Option<String>,

    /// Names of the controllers to run. Default: all.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    controllers: Vec<String>,

    /// Timeout in seconds.
    #[arg(long, default_value_t = plan::SYNC_TIMEOUT.as_secs(), value_name = "SECONDS")]
    timeout: u64,

    /// Output: text, or json.
    #[arg(short, long, default_value = "text", value_parser = ["text", "json"])]
    output: String,
}

/// Runs `evenkeel explain`.
pub(crate) fn explain(args: &explain::Args) -> ExitCode {
    block_on(async {
        let sockets = sockets(args);
        if args.watch {
            explain::watch(args, &sockets, command::print).await?;
        } else {
            command::print(&explain::run(args, &sockets).await?);
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Runs `evenkeel schedule`.
pub(crate) fn schedule(args: &evenkeel::schedule::Args) -> ExitCode {
    block_on(async {
        print!("{}", evenkeel::schedule::simulate(args).await?);
        Ok(ExitCode::SUCCESS)
    })
}

/// Runs `evenkeel plan`. The exit code is 0 without planned writes, and 2 with any.
pub(crate) fn plan(args: &PlanArgs) -> ExitCode {
    block_on(async {
        let connect = ConnectOptions {
            kubeconfig: args.kubeconfig.clone(),
            context: args.context.clone(),
            ..ConnectOptions::default()
        };
        let config = client::config(&connect).await?;
        let mut chosen = descriptors();
        if !args.controllers.is_empty() {
            for name in &args.controllers {
                let has_name = |descriptor: &Descriptor| {
                    descriptor.name == name || descriptor.aliases.contains(&&**name)
                };
                anyhow::ensure!(
                    chosen.iter().any(has_name),
                    "--controllers: there is no controller {name:?}; `kube-controller-manager --help` lists them"
                );
            }
            let is_requested =
                |name: &str| args.controllers.iter().any(|requested| requested == name);
            chosen.retain(|descriptor| {
                is_requested(descriptor.name)
                    || descriptor.aliases.iter().any(|alias| is_requested(alias))
            });
        }
        let mut options = Options::default();
        options.rootcacertpublisher.ca = explain::ca_of(&config).map(Into::into);
        let settings = plan::DryRunSettings {
            chosen: &chosen,
            options,
            gates: Gates::default(),
            timeout: Duration::from_secs(args.timeout),
            report_waits: plan::print_waits,
        };
        let dry_run =
            plan::dry_run(client::transport(&config)?, &Clock::system(), settings).await?;
        if args.output == "json" {
            println!("{}", serde_json::to_string_pretty(&dry_run)?);
        } else {
            print!("{}", dry_run.text());
        }
        Ok(dry_run.exit_code())
    })
}

/// Returns the sockets on which a manager of the kubeconfig's cluster may listen: sockets beside the kubeconfigs, and
/// sockets of the clusters of `evenkeel up`.
fn sockets(args: &explain::Args) -> Vec<PathBuf> {
    let home = Home::from_env();
    let mut kubeconfigs: Vec<PathBuf> = args.kubeconfig.iter().cloned().collect();
    kubeconfigs.extend(home.kubeconfigs());
    let clusters = Clusters::of(&home).all().unwrap_or_default();
    let own = clusters.into_iter().filter_map(|cluster| Some(cluster.record?.socket));
    kubeconfigs.iter().map(|path| explain::socket_beside(path)).chain(own).collect()
}
