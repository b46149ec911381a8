//! `evenkeel preflight`: checks whether the programs of a cluster can be replaced, and prints the steps of the replacement and
//! of the rollback.
//!
//! | question | read by | decided by |
//! |---|---|---|
//! | does the program accept its flags | [`source`] | [`flags`] |
//! | may its user do its work | [`observe`] | [`permissions`], [`findings`] |
//! | is there a leader, and which lease does it hold | [`observe`] | [`findings`] |
//! | is the API server of a suitable version | [`observe`] | [`findings`] |
//! | what to do, in which order | | [`steps`] |

mod additions;
mod findings;
mod flags;
mod observe;
mod permissions;
mod report;
mod source;
mod steps;
#[cfg(test)]
mod tests;

use crate::command::{block_on, print};
use anyhow::{Context as _, Result};
use evenkeel_runtime::{
    client::{self, ConnectOptions},
    clock::Clock,
};
use flags::CheckedCommandLine;
use serde::Serialize;
use source::Source;
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

/// The command reads and writes nothing but reviews of access, which the API server does not store. Exit code 1 if
/// something stands against the replacement.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PreflightArgs {
    /// Kubeconfig of the cluster. Default: $KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Context in the kubeconfig. Default: its current one.
    #[arg(long)]
    context: Option<String>,

    /// Programs to replace, separated by commas. Default: both.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PROGRAM")]
    program: Vec<Program>,

    /// Flags of the running kube-controller-manager: its static pod's manifest, /proc/PID/cmdline, or a file with its
    /// command line.
    #[arg(long, value_name = "FILE")]
    controller_manager_flags: Option<PathBuf>,

    /// Flags of the running kube-scheduler, in the same forms.
    #[arg(long, value_name = "FILE")]
    scheduler_flags: Option<PathBuf>,

    /// Configuration of the scheduler. Default: the file that its flag --config names, if this machine has it.
    #[arg(long, value_name = "FILE")]
    scheduler_config: Option<PathBuf>,

    /// User of the kube-controller-manager. Its permissions are reviewed.
    #[arg(long, value_name = "USER", default_value = Program::KubeControllerManager.user())]
    controller_manager_user: String,

    /// User of the kube-scheduler. Its permissions are reviewed.
    #[arg(long, value_name = "USER", default_value = Program::KubeScheduler.user())]
    scheduler_user: String,

    /// Output: text, or json.
    #[arg(short, long, default_value = "text", value_parser = ["text", "json"])]
    output: String,
}

/// A program that can be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Program {
    KubeScheduler,
    KubeControllerManager,
}

impl Program {
    /// All programs, in the order in which they are replaced. The scheduler is first, because pods that have a node keep
    /// running without it.
    const ALL: [Self; 2] = [Self::KubeScheduler, Self::KubeControllerManager];

    /// Returns the name of the program, and the default name of its lease.
    fn name(self) -> &'static str {
        match self {
            Self::KubeScheduler => "kube-scheduler",
            Self::KubeControllerManager => "kube-controller-manager",
        }
    }

    /// Returns the user to which upstream's bootstrap roles are bound.
    fn user(self) -> &'static str {
        match self {
            Self::KubeScheduler => "system:kube-scheduler",
            Self::KubeControllerManager => "system:kube-controller-manager",
        }
    }

    /// Returns the secure port.
    fn port(self) -> u16 {
        match self {
            Self::KubeScheduler => 10259,
            Self::KubeControllerManager => 10257,
        }
    }
}

/// Known facts about one program before the cluster is read.
#[derive(Debug, Clone, PartialEq)]
struct Subject {
    program: Program,
    /// User whose permissions are reviewed.
    user: String,
    /// File with its flags, if one was given.
    source: Option<Source>,
    /// Check of these flags. Without a file, the check of an empty command line.
    checked: CheckedCommandLine,
}

/// Runs `evenkeel preflight`.
pub(crate) fn main(args: &PreflightArgs) -> ExitCode {
    block_on(async {
        let subjects = subjects(args)?;
        let connect = ConnectOptions {
            kubeconfig: args.kubeconfig.clone(),
            context: args.context.clone(),
            ..ConnectOptions::default()
        };
        let config = client::config(&connect).await?;
        let kube = client::transport(&config)?;
        let server = config.cluster_url.to_string();
        let observed = observe::observe(kube, server, subjects, &Clock::system()).await?;
        let report = report::Report::new(&observed);
        print(&if args.output == "json" { report.json()? } else { report.text() });
        Ok(ExitCode::from(u8::from(!report.is_ready)))
    })
}

/// Reads the files that the arguments name, and checks the flags in them.
fn subjects(args: &PreflightArgs) -> Result<Vec<Subject>> {
    let is_requested =
        |program: &Program| args.program.is_empty() || args.program.contains(program);
    let subject = |program: Program| {
        let (file, user) = match program {
            Program::KubeScheduler => (&args.scheduler_flags, &args.scheduler_user),
            Program::KubeControllerManager => {
                (&args.controller_manager_flags, &args.controller_manager_user)
            }
        };
        let read = |file: &PathBuf| {
            let bytes = read(file)?;
            Source::parse(program, file, &bytes).with_context(|| file.display().to_string())
        };
        let source = file.as_ref().map(read).transpose()?;
        let arguments = source.as_ref().map(|source| source.arguments.clone()).unwrap_or_default();
        let checked = match program {
            Program::KubeControllerManager => flags::check_controller_manager(arguments),
            Program::KubeScheduler => {
                let config = scheduler_config(args, &arguments)?;
                flags::check_scheduler(arguments, config.as_deref())
            }
        };
        Ok(Subject { program, user: user.clone(), source, checked })
    };
    Program::ALL.into_iter().filter(is_requested).map(subject).collect()
}

/// Returns the content of the scheduler's configuration file. A file that only the flags name may be on another machine.
fn scheduler_config(args: &PreflightArgs, arguments: &[String]) -> Result<Option<String>> {
    if let Some(file) = &args.scheduler_config {
        return Ok(Some(String::from_utf8_lossy(&read(file)?).into_owned()));
    }
    let named = flags::check_scheduler(arguments.to_vec(), None).config_file;
    Ok(named.and_then(|file| std::fs::read_to_string(file).ok()))
}

fn read(file: &Path) -> Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))
}
