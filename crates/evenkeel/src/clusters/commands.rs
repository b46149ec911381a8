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
async fn stop(clusters: &Clusters, cluster: &Cluster) -> Result<()> {
    let name = &cluster.name;
    if cluster.state.is_alive() {
        ask_to_stop(cluster).await?;
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
            signal(cluster, Signal::KILL)?;
            removal.await
        }
    };
    removed.context("the removal panicked")?.with_context(|| format!("cluster {name}"))?;
    let outcome = if cluster.state.is_alive() { "stopped" } else { "removed" };
    print(&format!("{outcome} {name}\n"));
    Ok(())
}

/// Asks a process over its socket to stop, or else by SIGTERM.
async fn ask_to_stop(cluster: &Cluster) -> Result<()> {
    if let Some(record) = &cluster.record
        && ask(&record.socket, Method::POST, "/stop").await.is_ok()
    {
        return Ok(());
    }
    signal(cluster, Signal::TERM)
}

/// Sends a signal to the process that holds the cluster's lock, as its record says.
fn signal(cluster: &Cluster, signal: Signal) -> Result<()> {
    let pid = cluster.record.as_ref().and_then(|record| i32::try_from(record.pid).ok());
    let Some(pid) = pid.and_then(Pid::from_raw) else {
        bail!("cluster {} has just been started; try again", cluster.name);
    };
    match kill_process(pid, signal) {
        // It has ended meanwhile.
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(anyhow!(
            "cluster {}: process {} cannot be stopped: {error}; stop it as the user who started it",
            cluster.name,
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
