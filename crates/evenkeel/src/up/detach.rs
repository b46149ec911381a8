//! `evenkeel up -d`: starts this program again in the background, and prints its events until the cluster is ready.

use super::messages::{self, Event, Style};
use crate::{clusters::Clusters, kubeconfig::make_private_folder};
use anyhow::{Context, Result, bail};
use evenkeel_component::logging::LogFile;
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Stdio},
};

/// Starts the cluster in a background process. Returns when it is ready.
///
/// # Errors
/// Fails if the process cannot be started, or ends before it is ready.
pub(super) fn start(clusters: &Clusters, name: &str, style: Style) -> Result<()> {
    let folder = clusters.folder_of(name);
    make_private_folder(&folder)?;
    // Output of the process that bypasses its log, such as a panic message, is appended to the log file.
    let log = folder.join("log");
    drop(LogFile::open(&log).with_context(|| format!("cannot write {}", log.display()))?);
    let errors = File::options().append(true).open(&log)?;
    let program = program()?;
    let mut child = Command::new(&program)
        .args(std::env::args_os().skip(1))
        .arg("--background")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors)
        // In its own process group, the process does not receive Ctrl-C from this terminal.
        .process_group(0)
        .spawn()
        .with_context(|| {
            format!(
                "cluster {name}: {} cannot be started in the background; leave -d away",
                program.display()
            )
        })?;
    let output = child.stdout.take().context("the process has no output")?;
    let mut is_stopped = false;
    for line in BufReader::new(output).lines() {
        // Ignore lines that are not events.
        let Ok(event) = serde_json::from_str::<Event>(&line?) else { continue };
        match &event {
            Event::Failed { message } => {
                let _ = child.wait();
                bail!("{message}");
            }
            _ => messages::print(&event, style),
        }
        if matches!(event, Event::Ready { .. }) {
            return Ok(());
        }
        is_stopped |= event == Event::Stopping;
    }
    let status = child.wait()?;
    if is_stopped && status.success() {
        bail!("cluster {name} was stopped before it was ready");
    }
    bail!(
        "cluster {name}: the process in the background ended ({status}) before the cluster was ready; its log says why: {}",
        log.display()
    )
}

/// Replaces this process by a new one with the same command line, which starts on `port` without the objects of the
/// cluster. Returns only if that fails.
pub(super) fn restart(port: u16) -> anyhow::Error {
    let arguments = restart_arguments(std::env::args_os().skip(1), port);
    match program() {
        Ok(program) => Command::new(program).args(arguments).exec().into(),
        Err(error) => error,
    }
}

fn program() -> Result<std::path::PathBuf> {
    std::env::current_exe().context("the path of this program is unknown, so that it cannot be started again; start it by its whole path")
}

/// Returns the arguments of a restarted process.
fn restart_arguments(
    arguments: impl Iterator<Item = OsString>,
    port: u16,
) -> impl Iterator<Item = OsString> {
    let is_earlier = |argument: &OsStr| {
        Path::new(argument).to_string_lossy().starts_with(super::options::RESTARTED_ON)
    };
    let new = OsString::from(format!("{}{port}", super::options::RESTARTED_ON));
    arguments.filter(move |argument| !is_earlier(argument)).chain([new])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restarted_process_has_the_same_arguments_and_the_last_port() {
        let arguments = ["up", "--port=0", "--restarted-on=1234", "--background"];
        let restarted = restart_arguments(arguments.into_iter().map(OsString::from), 4321);
        let restarted: Vec<_> = restarted.collect();
        assert_eq!(restarted, ["up", "--port=0", "--background", "--restarted-on=4321"]);
    }
}
