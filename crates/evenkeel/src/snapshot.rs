//! `evenkeel snapshot`: saves, restores and verifies the state in a data folder.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Parser, Subcommand};
use evenkeel::explain;
use evenkeel_apiserver::OpenError;
use evenkeel_apiserver::snapshot::{self, SnapshotError, Summary};
use evenkeel_component::count::counted;
use http::Method;

use crate::command::{RUNTIME_FAILURE, exit_code};
use crate::control;

/// A snapshot contains the objects and their change history, but not the folder's keys and certificates (pki).
#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Save a snapshot of a data folder, and verify it. A server that uses the folder saves it itself, and
    /// keeps running.
    Save {
        /// File to write; it must not exist.
        file: PathBuf,
        /// Data folder to copy.
        #[arg(long, value_name = "DIR")]
        data_dir: PathBuf,
    },
    /// Restore a snapshot into a data folder without state. Watches have to start again, at much higher
    /// revisions.
    Restore {
        /// File of the snapshot.
        file: PathBuf,
        /// Path of the data folder. It is created if it does not exist.
        #[arg(long, value_name = "DIR")]
        data_dir: PathBuf,
    },
    /// Verify the checksum of every record of a snapshot, without changing it.
    Verify {
        /// File of the snapshot.
        file: PathBuf,
    },
}

/// Runs the command, and returns its exit code.
pub(crate) fn main(args: &SnapshotArgs) -> ExitCode {
    let (outcome, result): (_, Result<Summary>) = match &args.action {
        Action::Save { file, data_dir } => ("saved", save(data_dir, file)),
        Action::Restore { file, data_dir } => {
            ("restored", snapshot::restore(file, data_dir).map_err(Into::into))
        }
        Action::Verify { file } => ("whole", snapshot::verify(file).map_err(Into::into)),
    };
    exit_code(result.and_then(|summary| {
        writeln!(std::io::stdout(), "{outcome}: {}", describe(&summary))?;
        Ok(ExitCode::SUCCESS)
    }))
}

fn describe(summary: &Summary) -> String {
    let Summary { revision, compacted, n_objects, n_records } = summary;
    let (objects, records) = (counted(*n_objects, "object"), counted(*n_records, "record"));
    format!("{objects} at revision {revision}, history since {compacted} ({records})")
}

/// `evenkeel apiserver snapshot`.
#[derive(Debug, Parser)]
#[command(name = "evenkeel apiserver snapshot")]
struct ApiserverSnapshot {
    #[command(flatten)]
    args: SnapshotArgs,
}

/// Runs `evenkeel apiserver snapshot`. The first argument is `snapshot`.
pub(crate) fn main_of_apiserver(arguments: Vec<String>) -> ExitCode {
    main(&ApiserverSnapshot::parse_from(arguments).args)
}

/// Checks that a folder exists.
fn require_folder(data_dir: &Path) -> Result<()> {
    if !data_dir.is_dir() {
        bail!(
            "--data-dir: there is no folder {}; `evenkeel list -o json` prints those of clusters",
            data_dir.display()
        );
    }
    Ok(())
}

/// Saves a snapshot of the folder. If a server uses the folder, requests the snapshot from that server.
fn save(data_dir: &Path, file: &Path) -> Result<Summary> {
    require_folder(data_dir)?;
    match snapshot::save(data_dir, file) {
        Err(SnapshotError::Open(OpenError::Locked(_))) => save_on_running_server(data_dir, file),
        Err(SnapshotError::Open(OpenError::Io { source, .. }))
            if source.kind() == std::io::ErrorKind::NotFound =>
        {
            bail!(
                "{} has no objects; is it the data folder of a cluster (evenkeel up --data-dir)?",
                data_dir.display()
            )
        }
        saved => Ok(saved?),
    }
}

/// Requests a snapshot from the server that uses the folder, and verifies it.
fn save_on_running_server(data_dir: &Path, file: &Path) -> Result<Summary> {
    let socket = explain::socket_beside(&data_dir.join("kubeconfig"));
    let file = std::path::absolute(file)
        .with_context(|| format!("the file {} cannot be named by a whole path", file.display()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let target = control::snapshot_target(&file);
    let request = explain::ask_socket(&socket, Method::POST, &target);
    runtime.context(RUNTIME_FAILURE)?.block_on(request).with_context(|| {
        format!(
            "the server that uses {} saves no snapshot; it must be of the same user, and answer on {}",
            data_dir.display(),
            socket.display()
        )
    })?;
    Ok(snapshot::verify(&file)?)
}

#[cfg(test)]
mod tests {
    use evenkeel_apiserver::Server;
    use evenkeel_runtime::tasks::Tasks;

    use super::*;
    use crate::control::Served;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_running_server_saves_the_snapshot() {
        let home = tempfile::tempdir().expect("a folder");
        let (folder, file) = (home.path().join("cluster"), home.path().join("a b%+&"));
        let server = Server::builder().data_dir(Some(folder.clone())).build().await;
        let server = server.expect("a server");
        let saved = async |file: &Path| {
            let (folder, file) = (folder.clone(), file.to_owned());
            #[expect(clippy::disallowed_methods, reason = "its panic is the test's")]
            let saved = tokio::task::spawn_blocking(move || save(&folder, &file)).await;
            saved.expect("no panic")
        };
        let error = save(&home.path().join("none"), &file).expect_err("no folder");
        assert!(error.to_string().starts_with("--data-dir: there is no folder"), "{error}");
        let error = save(home.path(), &file).expect_err("no data");
        assert!(error.to_string().contains("has no objects; is it the data folder"), "{error}");
        let alone = saved(&file).await.expect_err("nobody listens");
        assert!(format!("{alone:#}").contains("saves no snapshot"), "{alone:#}");
        let tasks = Tasks::new();
        let served = Served {
            url: "u".to_owned(),
            introspection: None,
            schedulers: None,
            time: None,
            server: Some(server.clone()),
            lifecycle: None,
        };
        let path = explain::socket_beside(&folder.join("kubeconfig"));
        let _socket = control::start(&path, served, &tasks).expect("a socket");
        let summary = saved(&file).await.expect("saved");
        assert_eq!(summary.revision, server.revision());
        assert_eq!(snapshot::verify(&file).expect("whole"), summary);
        let again = saved(&file).await.expect_err("it is there");
        assert!(format!("{again:#}").contains("is there already"), "{again:#}");
    }
}
