//! `evenkeel down`, `list`, `status` and `reset`.

use super::{
    folder::Clusters,
    named::{self, NamedCluster},
    record::{Cluster, Record, State, choose, context},
    table::{self, LiveStatus},
};
use crate::{
    command::{block_on, print, warn},
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

/// Timeout for a process to stop before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout for a killed process to end. A process that is blocked by a disk does not end.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of reads of a record until it counts as the running process's: one second. Within this time, a starting
/// process replaces the record of a crashed process.
const MAX_POLLS_OF_OLD_RECORD: usize = 20;

/// Maximum number of processes of one cluster to stop, one after the other.
const MAX_PROCESSES: usize = 3;

/// Timeout for a response on the control socket.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval at which the state of a cluster is read.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum number of reads until a cluster that is reset must be ready: two minutes.
const MAX_POLLS: usize = 2400;

/// Maximum number of reads that find a process without a record: ten seconds.
const MAX_POLLS_WITHOUT_RECORD: usize = 200;

/// Maximum number of consecutive reads that find no process while a cluster is reset: ten seconds.
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

/// Sends a request to a control socket, with a timeout of [`ANSWER_TIMEOUT`].
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

/// Requests the status from the process of a cluster that runs or starts. `None` if it does not respond.
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
            // A cluster that cannot be stopped does not prevent the stop of the others.
            if let Err(error) = stop(&clusters, cluster).await {
                result = Err(error);
            }
        }
        result
    })
}

/// Stops a cluster, and removes its remaining files. Kills a process that does not stop in time.
async fn stop(clusters: &Clusters, found: &Cluster) -> Result<()> {
    let name = &found.name;
    // `None`: the process has ended meanwhile.
    let process = match process(clusters, found).await? {
        Some(process) => ask_to_stop(clusters, process).await?,
        None => None,
    };
    if !has_ended_within(clusters, name, STOP_TIMEOUT).await? {
        kill(clusters, name, process.as_ref()).await?;
    }
    let removal = {
        let (clusters, name) = (clusters.clone(), name.clone());
        #[expect(clippy::disallowed_methods, reason = "its panic is an error of the command")]
        tokio::task::spawn_blocking(move || clusters.wait_and_remove(&name))
    };
    let removed = removal.await.context("the removal panicked")?;
    removed.with_context(|| format!("cluster {name}"))?;
    let outcome = if found.state.is_alive() { "stopped" } else { "removed" };
    print(&format!("{outcome} {name}\n"));
    if let Some(left) = left_context(clusters, found) {
        warn(&left);
    }
    Ok(())
}

/// Returns a message about the context that a cluster leaves in the user's kubeconfig, because the file cannot be changed.
fn left_context(clusters: &Clusters, stopped: &Cluster) -> Option<String> {
    let name = &stopped.name;
    let merged = stopped.record.as_ref().and_then(|record| record.merged_into.clone());
    // Another process may have started the cluster again.
    let is_gone = || clusters.find(name).is_ok_and(|found| found.is_none());
    let path = merged.filter(|_| is_gone())?;
    let context = context(name);
    let reason = match clusters.user_kubeconfig(path.clone()).has(&context) {
        Ok(false) => return None,
        Ok(true) => format!("{} cannot be written", path.display()),
        Err(error) => format!("{error:#}"),
    };
    Some(format!(
        "your kubeconfig was not changed: {reason}; once it can be, take the context out with: kubectl config delete-context {context}"
    ))
}

/// A process that runs a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    name: String,
    pid: Pid,
    /// Start of the process, which distinguishes it from a later process with the same PID.
    started_at: String,
    socket: PathBuf,
}

impl Process {
    fn of(record: Record) -> Result<Self> {
        let Record { name, pid, started_at, socket, .. } = record;
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let number = number.with_context(|| format!("cluster {name}: no process {pid}"))?;
        Ok(Self { name, pid: number, started_at, socket })
    }
}

/// Returns the process that runs a cluster; `None` if it has ended. A process that has just started, or is about to end, holds
/// the lock without a record.
///
/// # Errors
/// Fails if the process writes no record.
async fn process(clusters: &Clusters, found: &Cluster) -> Result<Option<Process>> {
    let (clock, name) = (Clock::system(), &found.name);
    let mut current = Some(found.clone());
    for _ in 0..MAX_POLLS_WITHOUT_RECORD {
        let Some(Cluster { record, .. }) = current.filter(|cluster| cluster.state.is_alive())
        else {
            return Ok(None);
        };
        if let Some(record) = record {
            return Ok(Some(Process::of(record)?));
        }
        clock.sleep(POLL_INTERVAL).await;
        current = clusters.find(name)?;
    }
    bail!(
        "cluster {name}: a process holds its lock and writes no record; see which with: lsof {}",
        clusters.folder_of(name).join("lock").display()
    )
}

/// Requests that the process of a cluster stops, over its socket or, if it does not respond, with SIGTERM. Returns the process;
/// `None` if it has ended.
async fn ask_to_stop(clusters: &Clusters, process: Process) -> Result<Option<Process>> {
    let mut process = process;
    for _ in 0..MAX_PROCESSES {
        if ask(&process.socket, Method::POST, "/stop").await.is_ok() {
            return Ok(Some(process));
        }
        match read_again(clusters, &process).await? {
            Some(current) if current == process => {
                signal(clusters, &process, Signal::TERM)?;
                return Ok(Some(process));
            }
            Some(current) => process = current,
            None => return Ok(None),
        }
    }
    bail!("cluster {}: other processes start it again and again; try again", process.name)
}

/// Reads the process that runs a cluster again after a process did not respond; `None` if no process runs it. The record may be
/// that of a crashed process, whose PID may now belong to another process.
async fn read_again(clusters: &Clusters, asked: &Process) -> Result<Option<Process>> {
    let clock = Clock::system();
    for _ in 0..MAX_POLLS_OF_OLD_RECORD {
        clock.sleep(POLL_INTERVAL).await;
        let Some(found) = clusters.find(&asked.name)? else { return Ok(None) };
        match process(clusters, &found).await? {
            Some(current) if current == *asked => {}
            other => return Ok(other),
        }
    }
    Ok(Some(asked.clone()))
}

/// Waits at most `limit` until no process runs a cluster. Returns whether that is the case.
async fn has_ended_within(clusters: &Clusters, name: &str, limit: Duration) -> Result<bool> {
    let clock = Clock::system();
    let ended = async {
        while clusters.find(name)?.is_some_and(|cluster| cluster.state.is_alive()) {
            clock.sleep(POLL_INTERVAL).await;
        }
        Ok(true)
    };
    tokio::select! {
        ended = ended => ended,
        () = clock.sleep(limit) => Ok(false),
    }
}

/// Kills a process that was requested to stop, and waits for its end.
///
/// # Errors
/// Fails if another process already runs the cluster, or the process does not end.
async fn kill(clusters: &Clusters, name: &str, asked: Option<&Process>) -> Result<()> {
    let record = clusters.find(name)?.and_then(|cluster| cluster.record);
    let current = record.map(Process::of).transpose()?;
    let Some(process) = asked.filter(|asked| current.as_ref() == Some(*asked)) else {
        bail!("cluster {name}: another process has started it meanwhile; try again");
    };
    signal(clusters, process, Signal::KILL)?;
    if has_ended_within(clusters, name, KILL_TIMEOUT).await? {
        return Ok(());
    }
    bail!(
        "cluster {name}: process {} was killed, and has not ended within {} s; see what it waits for with: ps -o stat,wchan {0}",
        process.pid.as_raw_nonzero(),
        KILL_TIMEOUT.as_secs()
    )
}

/// Sends a signal to a process.
fn signal(clusters: &Clusters, process: &Process, signal: Signal) -> Result<()> {
    let Process { name, pid, .. } = process;
    match kill_process(*pid, signal) {
        // It has ended meanwhile.
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        // Another process may have its PID.
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
            let cluster = Clusters::of(&Home::from_env()).of_data(data_dir)?;
            if let Some(Cluster { name, .. }) = cluster.filter(|found| found.state.is_alive()) {
                bail!(
                    "{} is the data folder of the cluster {name}, which runs; discard its objects with: evenkeel reset {name}",
                    data_dir.display()
                );
            }
            if !data_dir.is_dir() {
                bail!("there is no folder {}", data_dir.display());
            }
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

/// Waits until the cluster that was started after `old_start` is ready.
async fn wait_until_restarted(clusters: &Clusters, name: &str, old_start: &str) -> Result<()> {
    let (clock, mut polls_without_process) = (Clock::system(), 0);
    let is_new = |record: &Record| record.started_at != old_start;
    for _ in 0..MAX_POLLS {
        clock.sleep(POLL_INTERVAL).await;
        let cluster = clusters.find(name)?;
        let record = cluster.as_ref().and_then(|cluster| cluster.record.as_ref());
        match cluster.as_ref().map(|cluster| cluster.state) {
            Some(State::Running) if record.is_some_and(is_new) => return Ok(()),
            Some(State::Failed) if record.is_some_and(is_new) => {
                let failure = record.and_then(|record| record.failure.as_deref());
                bail!(
                    "cluster {name} did not start again: {}; see: evenkeel logs {name}",
                    failure.unwrap_or_default()
                );
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

    /// A process that does nothing, as a substitute for a cluster's process.
    struct Idle(std::process::Child);

    impl Idle {
        fn start() -> Self {
            Self(std::process::Command::new("sleep").arg("1000").spawn().expect("started"))
        }

        /// Returns a record of the process. No process serves its socket.
        fn record(&self, started_at: &str) -> Record {
            let started_at = started_at.to_owned();
            let socket = PathBuf::from("/nonexistent/socket");
            Record { pid: self.0.id(), started_at, socket, ..record("a") }
        }
    }

    impl Drop for Idle {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_process_of_a_crashed_predecessors_record_gets_no_signal() {
        let state = tempfile::tempdir().expect("a folder");
        let clusters = clusters(state.path());
        let (mut other, mut own) = (Idle::start(), Idle::start());
        let claim = clusters.claim("a").expect("claimed");
        // The PID of the crashed process now belongs to another process.
        claim.write(&other.record("1")).expect("written");
        let found = clusters.find("a").expect("read").expect("there");
        let clock = Clock::system();
        let (stopped, ()) = tokio::join!(stop(&clusters, &found), async {
            clock.sleep(Duration::from_millis(300)).await;
            claim.write(&own.record("2")).expect("written");
            clock.sleep(Duration::from_secs(5)).await;
            drop(claim);
        });
        stopped.expect("stopped");
        assert_eq!(other.0.try_wait().expect("asked"), None, "it has nothing to do with it");
        let ended = own.0.wait().expect("ended");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(15), "{ended}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_killed_process_that_does_not_end_is_waited_for_so_long() {
        let state = tempfile::tempdir().expect("a folder");
        let clusters = clusters(state.path());
        let idle = Idle::start();
        let claim = clusters.claim("a").expect("claimed");
        claim.write(&idle.record("1")).expect("written");
        let found = clusters.find("a").expect("read").expect("there");
        let clock = Clock::starting_at(evenkeel_api::time::Timestamp::UNIX_EPOCH);
        let before = clock.now();
        // This process holds the lock, so the lock stays.
        let error = stop(&clusters, &found).await.expect_err("it does not end");
        assert!(error.to_string().contains("was killed, and has not ended within 10 s"), "{error}");
        let passed = clock.now().duration_since(before).unsigned_abs();
        assert!((40..45).contains(&passed.as_secs()), "{passed:?}");
        drop(claim);
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
