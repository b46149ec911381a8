//! `evenkeel snapshot`: saves, restores and verifies the state in a data folder.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use evenkeel_apiserver::snapshot::{self, SnapshotError, Summary};

/// A snapshot holds the objects and their change history. It does not hold the folder's keys and certificates (pki).
#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Save a snapshot of a data folder that no server uses, and verify it.
    Save {
        /// File to write; it must not exist.
        file: PathBuf,
        /// Data folder to copy.
        #[arg(long, value_name = "DIR")]
        data_dir: PathBuf,
    },
    /// Restore a snapshot into a data folder that has no state. Watches start anew, at much higher revisions.
    Restore {
        /// File of the snapshot.
        file: PathBuf,
        /// The data folder; it is made if it is not there.
        #[arg(long, value_name = "DIR")]
        data_dir: PathBuf,
    },
    /// Verify the checksum of every record of a snapshot, without changing it.
    Verify {
        /// File of the snapshot.
        file: PathBuf,
    },
}

/// Carries the command out.
pub(crate) fn main(args: &SnapshotArgs) -> ExitCode {
    let (what, done) = match &args.action {
        Action::Save { file, data_dir } => ("saved", snapshot::save(data_dir, file)),
        Action::Restore { file, data_dir } => ("restored", snapshot::restore(file, data_dir)),
        Action::Verify { file } => ("whole", snapshot::verify(file)),
    };
    let printed = match &done {
        Ok(summary) => writeln!(std::io::stdout(), "{what}: {}", words(summary)),
        Err(error) => writeln!(std::io::stderr(), "{}", text(error)),
    };
    if done.is_ok() && printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn words(summary: &Summary) -> String {
    let Summary { revision, compacted, n_objects, n_records } = summary;
    format!(
        "{n_objects} objects at revision {revision}, history since {compacted} ({n_records} records)"
    )
}

fn text(error: &SnapshotError) -> String {
    format!("Error: {error}")
}
