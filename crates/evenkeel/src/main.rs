//! The `evenkeel` program: a whole Kubernetes control plane in one process.

mod up;

use clap::{CommandFactory, Parser, Subcommand};
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
    /// Print a completion script for a shell.
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Up(args) => up::main(args),
        Command::Completion { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "evenkeel", &mut std::io::stdout());
            ExitCode::SUCCESS
        }
    }
}
