//! The `evenkeel` program: a whole Kubernetes control plane in one process.

mod apiserver;
mod ask;
mod behaviors;
mod clone;
mod clusters;
mod command;
mod control;
mod copied;
mod durations;
mod envtest;
mod fault;
mod kubeconfig;
mod limits;
mod preflight;
mod server;
mod shell;
mod snapshot;
mod time;
mod up;
mod what_if;

use clap::{Parser, Subcommand};
use std::{path::Path, process::ExitCode};

// Stored objects have many sizes, and glibc's allocator keeps the freed chunks of each size in sorted lists: with tens of
// thousands of pods, a quarter of the CPU is spent in it. The feature `heap-profile` has its own allocator.
#[cfg(all(target_os = "linux", not(feature = "heap-profile")))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A Kubernetes control plane in one process, for a laptop, for CI and inside tests.
#[derive(Debug, Parser)]
#[command(name = "evenkeel", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a control plane: API server, controllers, scheduler and simulated nodes.
    #[command(alias = "start", alias = "create")]
    Up(Box<up::Args>),
    /// Stop a cluster, or remove what a crashed one left.
    #[command(alias = "stop", alias = "delete")]
    Down(clusters::DownArgs),
    /// List the clusters, crashed ones too.
    List(clusters::ListArgs),
    /// Print the state of a cluster. Exit code 1 if it is not running.
    Status(clusters::StatusArgs),
    /// Print the URL of a cluster's console in the browser.
    Console(clusters::ConsoleArgs),
    /// Print the log of a cluster.
    Logs(clusters::LogsArgs),
    /// Apply manifests to a running cluster (server-side apply): definitions first, webhooks last.
    Load(clusters::LoadArgs),
    /// Discard all objects of a running cluster, which starts again, or of a data folder.
    Reset(clusters::ResetArgs),
    /// Print what each controller observes of an object, its next action, and what it waits for.
    Explain(evenkeel::explain::Args),
    /// Print the writes that the controllers would send to a cluster now, without writing. Exit code 2 if there
    /// are any.
    Plan(ask::PlanArgs),
    /// Check whether Evenkeel's programs can replace those of a cluster: permissions, version, leases, flags. Print the
    /// plan.
    Preflight(Box<preflight::PreflightArgs>),
    /// Simulate scheduling: print the node of each pod, and why the other nodes are unsuitable.
    Schedule(evenkeel::schedule::Args),
    /// Copy the objects of a cluster, without secrets, for `evenkeel what-if` or `evenkeel up`.
    Clone(clone::CloneArgs),
    /// Simulate a change of a cluster in virtual time, and report what happens.
    WhatIf(Box<what_if::WhatIfArgs>),
    /// Save, restore or verify the state of a data folder.
    Snapshot(snapshot::SnapshotArgs),
    /// Let nodes, zones or pods of a running cluster fail, and list or end such faults.
    Fault(fault::FaultArgs),
    /// Print the time of a running cluster, let it jump ahead, or set its speed: see `evenkeel up --speed`.
    Time(time::TimeArgs),
    /// Start only the API server, with kube-apiserver's flags: see `evenkeel apiserver --help`.
    #[command(disable_help_flag = true)]
    Apiserver {
        /// Flags.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run tests written for envtest on the embedded API server.
    Envtest(envtest::EnvtestArgs),
    /// Print a completion script for a shell.
    Completion(shell::CompletionArgs),
    /// Write man pages of this program and of the drop-in programs.
    Man(shell::ManArgs),
    /// Print the annotations that steer simulated pods and nodes.
    ExplainAnnotations(shell::AnnotationsArgs),
    /// Print the version.
    Version,
}

fn main() -> ExitCode {
    // If the program is started with another program's name, run as a replacement of that program.
    let mut arguments = std::env::args();
    let name = arguments.next().unwrap_or_default();
    match Path::new(&name).file_name().and_then(|name| name.to_str()) {
        Some(apiserver::NAME) => return apiserver::main(arguments.collect()),
        Some(apiserver::etcd::NAME) => {
            return apiserver::etcd::main(&arguments.collect::<Vec<_>>());
        }
        _ => {}
    }
    match Cli::parse().command {
        Command::Up(args) => up::main(*args),
        Command::Down(args) => clusters::down(&args),
        Command::List(args) => clusters::list(&args),
        Command::Status(args) => clusters::status(&args),
        Command::Console(args) => clusters::console(&args),
        Command::Logs(args) => clusters::logs(&args),
        Command::Load(args) => clusters::load(&args),
        Command::Reset(args) => clusters::reset(&args),
        Command::Explain(args) => ask::explain(&args),
        Command::Plan(args) => ask::plan(&args),
        Command::Preflight(args) => preflight::main(&args),
        Command::Schedule(args) => ask::schedule(&args),
        Command::Clone(args) => clone::main(&args),
        Command::WhatIf(args) => what_if::main(&args),
        Command::Snapshot(args) => snapshot::main(&args),
        Command::Fault(args) => fault::main(&args),
        Command::Time(args) => time::main(&args),
        Command::Apiserver { arguments } => apiserver::main(arguments),
        Command::Envtest(args) => envtest::main(&args),
        Command::Completion(args) => shell::completion(&args),
        Command::Man(args) => shell::man(&args),
        Command::ExplainAnnotations(args) => shell::annotations(&args),
        Command::Version => {
            command::print(concat!("evenkeel ", env!("CARGO_PKG_VERSION"), "\n"));
            ExitCode::SUCCESS
        }
    }
}
