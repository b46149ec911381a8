//! `evenkeel down`, `list`, `status` and `reset`.

use super::{
    folder::Clusters,
    named::{self, NamedCluster},
    record::{Cluster, State, choose},
    table::{self, LiveStatus},
};
use crate::{
    command::{block_on, print},
    kubeconfig::Home,
};
use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use evenkeel::explain::ask_socket;
use evenkeel_apiserver::snapshot;
use evenkeel_runtime::clock::Clock;
use http::Method;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

/// Time that a process has to stop before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Time that a process has to answer on its control socket.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval at which the state of a cluster is read.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum number of reads until a cluster that is reset must be ready: two minutes.
const MAX_POLLS: usize = 2400;

/// Maximum number of reads that find a process without a record: ten seconds.
const MAX_POLLS_WITHOUT_RECORD: usize = 200;

/// Maximum number of reads in a row that find no process while a cluster is reset: ten seconds.
const MAX_POLLS_WITHOUT_PROCESS: usize = 200;

/// Arguments of `evenkeel down`.
#[derive(Debug, clap::Args)]
pub(crate) struct DownArgs {
    #[command(flatten)]
    cluster: NamedCluster,

    /// Stop all clusters.
    #[arg(long, conflicts_with_all = ["cluster", "flag"])]
    all: bool,
}

/// Arguments of `evenkeel list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `evenkeel status`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    cluster: NamedCluster,

    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `evenkeel reset`.
#[derive(Debug, clap::Args)]
pub(crate) struct ResetArgs {
    #[command(flatten)]
    cluster: NamedCluster,

    /// Data folder that no cluster uses. Its keys and certificates stay.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["cluster", "flag"])]
    data_dir: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct OutputArgs {
    /// Output: text, or json.
    #[arg(short, long, default_value = "text", value_parser = ["text", "json"])]
    output: String,
}

impl OutputArgs {
    fn is_json(&self) -> bool {
        self.output == "json"
    }
}

/// Runs `evenkeel list`.
pub(crate) fn list(args: &ListArgs) -> ExitCode {
    block_on(async {
        let all = Clusters::of(&Home::from_env()).all()?;
        if args.output.is_json() {
            let values: Vec<_> = all.iter().map(|cluster| table::json(cluster, None)).collect();
            print(&format!("{}\n", serde_json::to_string_pretty(&values)?));
        } else if all.is_empty() {
            print("There is no cluster. Start one with: evenkeel up -d\n");
        } else {
            print(&table::table(&all));
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Runs `evenkeel status`. The exit code is 0 if the cluster is running, and 1 otherwise.
pub(crate) fn status(args: &StatusArgs) -> ExitCode {
    block_on(async {
        let home = Home::from_env();
        let all = Clusters::of(&home).all()?;
        let cluster = named::find(&all, args.cluster.name(), &home)?;
        let live = live_status(cluster).await;
        if args.output.is_json() {
            let value = table::json(cluster, live.as_ref());
            print(&format!("{}\n", serde_json::to_string_pretty(&value)?));
        } else {
            print(&table::status(cluster, live.as_ref()));
        }
        let is_running = cluster.state == State::Running;
        Ok(if is_running { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// Sends a request to a control socket. A process that hangs is given up after some seconds.
pub(super) async fn ask(socket: &Path, method: Method, target: &str) -> Result<Bytes> {
    let clock = Clock::system();
    tokio::select! {
        answer = ask_socket(socket, method, target) => answer,
        () = clock.sleep(ANSWER_TIMEOUT) => bail!(
            "its process does not answer on {} within {} s; `evenkeel down` stops it, `evenkeel logs` prints what it did last",
            socket.display(),
            ANSWER_TIMEOUT.as_secs()
        ),
    }
}

/// Asks the process of a cluster that runs or starts. `None` if it does not answer.
async fn live_status(cluster: &Cluster) -> Option<LiveStatus> {
    let record = cluster.record.as_ref().filter(|_| cluster.state.is_alive())?;
    let answer = ask(&record.socket, Method::GET, "/status").await.ok()?;
    serde_json::from_slice(&answer).ok()
}

/// Runs `evenkeel down`.
pub(crate) fn down(args: &DownArgs) -> ExitCode {
    block_on(async {
        let clusters = Clusters::of(&Home::from_env());
        let all = clusters.all()?;
        if !args.all {
            stop(&clusters, choose(&all, args.cluster.name(), None)?).await?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut result = Ok(ExitCode::SUCCESS);
        for cluster in &all {
            // One that cannot be stopped does not keep the others.
            if let Err(error) = stop(&clusters, cluster).await {
                result = Err(error);
            }
        }
        result
    })
}

/// Stops a cluster, and removes what it leaves. Kills a process that does not stop in time.
async fn stop(clusters: &Clusters, found: &Cluster) -> Result<()> {
    let name = &found.name;
    // `None` is a process that has ended meanwhile.
    let process = process(clusters, found).await?;
    if let Some(process) = &process {
        ask_to_stop(clusters, process).await?;
    }
    let removal = {
        let (clusters, name) = (clusters.clone(), name.clone());
        #[expect(clippy::disallowed_methods, reason = "its panic is an error of the command")]
        tokio::task::spawn_blocking(move || clusters.wait_and_remove(&name))
    };
    tokio::pin!(removal);
    let clock = Clock::system();
    let removed = tokio::select! {
        removed = &mut removal => removed,
        () = clock.sleep(STOP_TIMEOUT) => {
            if let Some(process) = &process {
                signal(clusters, process, Signal::KILL)?;
            }
            removal.await
        }
    };
    removed.context("the removal panicked")?.with_context(|| format!("cluster {name}"))?;
    let outcome = if found.state.is_alive() { "stopped" } else { "removed" };
    print(&format!("{outcome} {name}\n"));
    Ok(())
}

/// A process that runs a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    name: String,
    pid: Pid,
    socket: PathBuf,
}

/// Returns the process that runs a cluster; `None` if it has ended. A process holds its lock for moments without a record:
/// after its start, and at its end.
///
/// # Errors
/// When the process writes no record.
async fn process(clusters: &Clusters, found: &Cluster) -> Result<Option<Process>> {
    let (clock, name) = (Clock::system(), &found.name);
    let mut current = Some(found.clone());
    for _ in 0..MAX_POLLS_WITHOUT_RECORD {
        let Some(Cluster { record, .. }) = current.filter(|cluster| cluster.state.is_alive())
        else {
            return Ok(None);
        };
        if let Some(record) = record {
            let pid = i32::try_from(record.pid).ok().and_then(Pid::from_raw);
            let pid = pid.with_context(|| format!("cluster {name}: no process {}", record.pid))?;
            return Ok(Some(Process { name: name.clone(), pid, socket: record.socket }));
        }
        clock.sleep(POLL_INTERVAL).await;
        current = clusters.find(name)?;
    }
    bail!(
        "cluster {name}: a process holds its lock and writes no record; see which with: lsof {}",
        clusters.folder_of(name).join("lock").display()
    )
}

/// Asks a process over its socket to stop, or else by SIGTERM.
async fn ask_to_stop(clusters: &Clusters, process: &Process) -> Result<()> {
    match ask(&process.socket, Method::POST, "/stop").await {
        Ok(_) => Ok(()),
        Err(_) => signal(clusters, process, Signal::TERM),
    }
}

/// Sends a signal to a process.
fn signal(clusters: &Clusters, process: &Process, signal: Signal) -> Result<()> {
    let Process { name, pid, .. } = process;
    match kill_process(*pid, signal) {
        // It has ended meanwhile.
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        // Another process may have its number.
        Err(_) if !clusters.find(name)?.is_some_and(|cluster| cluster.state.is_alive()) => Ok(()),
        Err(error) => Err(anyhow!(
            "cluster {name}: process {} cannot be stopped: {error}; stop it as the user who started it",
            pid.as_raw_nonzero()
        )),
    }
}

/// Runs `evenkeel reset`.
pub(crate) fn reset(args: &ResetArgs) -> ExitCode {
    block_on(async {
        if let Some(data_dir) = &args.data_dir {
            let had_data = snapshot::discard(data_dir)?;
            let outcome = if had_data { "discarded the objects of" } else { "no objects in" };
            print(&format!("{outcome} {}\n", data_dir.display()));
            return Ok(ExitCode::SUCCESS);
        }
        let clusters = Clusters::of(&Home::from_env());
        let all = clusters.all()?;
        let cluster = choose(&all, args.cluster.name(), None)?;
        let name = &cluster.name;
        let Some(record) = cluster.record.as_ref().filter(|_| cluster.state == State::Running)
        else {
            bail!(
                "cluster {name} does not run; --data-dir DIR resets the folder of one that does not"
            );
        };
        let asked = ask(&record.socket, Method::POST, "/reset").await;
        asked.with_context(|| format!("cluster {name}"))?;
        wait_until_restarted(&clusters, name, &record.started_at).await?;
        print(&format!("reset {name}\n"));
        Ok(ExitCode::SUCCESS)
    })
}

/// Waits until a cluster is ready that was started after `old_start`.
async fn wait_until_restarted(clusters: &Clusters, name: &str, old_start: &str) -> Result<()> {
    let (clock, mut polls_without_process) = (Clock::system(), 0);
    for _ in 0..MAX_POLLS {
        clock.sleep(POLL_INTERVAL).await;
        let cluster = clusters.find(name)?;
        let record = cluster.as_ref().and_then(|cluster| cluster.record.as_ref());
        match cluster.as_ref().map(|cluster| cluster.state) {
            Some(State::Running) if record.is_some_and(|r| r.started_at != old_start) => {
                return Ok(());
            }
            Some(state) if state.is_alive() => polls_without_process = 0,
            _ => polls_without_process += 1,
        }
        if polls_without_process > MAX_POLLS_WITHOUT_PROCESS {
            bail!("cluster {name} did not start again; see: evenkeel logs {name}");
        }
    }
    bail!("cluster {name} is not ready yet; see: evenkeel status {name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusters::record::tests::record;

    fn clusters(state: &Path) -> Clusters {
        Clusters::of(&Home { state: Some(state.to_owned()), ..Home::default() })
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_without_a_record_writes_one_or_ends() {
        let state = tempfile::tempdir().expect("a folder");
        let clusters = clusters(state.path());
        let claim = clusters.claim("a").expect("claimed");
        let found = clusters.find("a").expect("read").expect("there");
        assert_eq!((found.state, &found.record), (State::Starting, &None));
        let clock = Clock::system();
        let (process_of_a, ()) = tokio::join!(process(&clusters, &found), async {
            clock.sleep(Duration::from_secs(3)).await;
            claim.write(&record("a")).expect("written");
        });
        let process_of_a = process_of_a.expect("its record").expect("it runs");
        assert_eq!(
            (process_of_a.name.as_str(), process_of_a.pid),
            ("a", Pid::from_raw(7).unwrap())
        );
        let (ended, ()) = tokio::join!(process(&clusters, &found), async {
            clock.sleep(Duration::from_millis(10)).await;
            drop(claim);
        });
        assert_eq!(ended.expect("known"), None);
        let _silent = clusters.claim("b").expect("claimed");
        let found = clusters.find("b").expect("read").expect("there");
        let error = process(&clusters, &found).await.expect_err("it writes no record");
        assert!(error.to_string().contains("writes no record"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_process_leaves_that_ends_meanwhile_is_removed() {
        let state = tempfile::tempdir().expect("a folder");
        let clusters = clusters(state.path());
        let claim = clusters.claim("a").expect("claimed");
        let found = clusters.find("a").expect("read").expect("there");
        let clock = Clock::system();
        let (stopped, ()) = tokio::join!(stop(&clusters, &found), async {
            clock.sleep(Duration::from_secs(1)).await;
            drop(claim);
        });
        stopped.expect("stopped");
        assert!(!clusters.folder_of("a").exists());
    }
}
