//! The `evenkeel` program: a whole Kubernetes control plane in one process.

mod ask;
mod shell;
mod snapshot;
mod up;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

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
    Up(up::Args),
    /// Print what each controller observes of an object, its next action, and what it waits for.
    Explain(evenkeel::explain::Args),
    /// Print what the controllers would write to a cluster now, without writing. Exit code 2 if there are planned writes.
    Plan(ask::PlanArgs),
    /// Simulate scheduling: print the node of each pod, and why the other nodes are unsuitable.
    Schedule(evenkeel::schedule::Args),
    /// Save, restore or verify the state of a data folder.
    Snapshot(snapshot::SnapshotArgs),
    /// Print a completion script for a shell.
    Completion(shell::CompletionArgs),
    /// Write man pages of this program and of the others.
    Man(shell::ManArgs),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Up(args) => up::main(args),
        Command::Explain(args) => ask::explain(&args),
        Command::Plan(args) => ask::plan(&args),
        Command::Schedule(args) => ask::schedule(&args),
        Command::Snapshot(args) => snapshot::main(&args),
        Command::Completion(args) => shell::completion(&args),
        Command::Man(args) => shell::man(&args),
    }
}
