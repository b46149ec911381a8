//! `evenkeel up`: a control plane in one process.

mod access;
mod bind;
mod config;
mod console;
mod detach;
mod equip;
mod failures;
mod fill;
mod generated;
mod messages;
mod options;
mod plane;
mod progress;
mod prune;
mod remote;
mod server;
mod start;
mod status;
mod what_if;

use crate::{
    clusters::{Claim, Clusters, Record, context},
    command::{RUNTIME_FAILURE, chain},
    copied::Copied,
    kubeconfig::{Home, Kubeconfigs},
    limits,
};
use anyhow::{Context, Result, bail};
pub(crate) use config::schema as config_schema;
use evenkeel::explain;
use evenkeel_api::time::Timestamp;
use evenkeel_component::{
    logging::{self, LogFile},
    options::LoggingOptions,
};
use evenkeel_runtime::{clock::Clock, manager::shutdown_signal, tasks::Tasks};
use messages::{Event, Style, TerminalFacts};
pub(crate) use options::Args;
use progress::Progress;
use start::{Ending, Start};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};
use tracing::Level;

/// Timeout for the task that reports the progress of the start.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);

/// Timeout for the threads of the runtime to end, before the process is replaced or releases its name.
const RUNTIME_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs `evenkeel up`, and returns its exit code.
pub(crate) fn main(args: Args) -> ExitCode {
    let color = TerminalFacts::of_stdout().wants_color();
    let style = match args.prints_json() {
        true => Style::Json,
        false => Style::Text { color, detached: args.detach },
    };
    match run(args, style) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            messages::print(&Event::Failed { message: chain(&error) }, style);
            ExitCode::FAILURE
        }
    }
}

fn run(mut args: Args, style: Style) -> Result<()> {
    if args.print_config_schema {
        let schema = serde_json::to_string_pretty(&config::schema())?;
        crate::command::print(&format!("{schema}\n"));
        return Ok(());
    }
    if let Some(path) = args.config.clone() {
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("--config: cannot read {}", path.display()))?;
        let config = config::read(&path.display().to_string(), &text)?;
        fill::fill(&mut args, config, path.parent().unwrap_or(Path::new("")));
    }
    if args.speed.is_some() && args.data_dir.is_some() {
        bail!(
            "--speed: a cluster with a time of its own has no data folder, because it would go back in time"
        );
    }
    if let Some(path) = args.load.iter().find(|path| path.as_os_str() != "-" && !path.exists()) {
        bail!("--load: there is no file or folder {}", path.display());
    }
    args.components.feature_gates.extend(std::mem::take(&mut args.feature_gates));
    // Other commands read these paths, and may run in other folders.
    for path in [&mut args.data_dir, &mut args.log_file].into_iter().flatten() {
        *path = std::path::absolute(&*path)?;
    }
    if let Some(copied) = args.data_dir.as_deref().map(Copied::read).transpose()?.flatten() {
        fill::fill_copied(&mut args, copied);
    }
    let home = Home::from_env();
    let clusters = Clusters::of(&home);
    let name = options::cluster_name(args.name.as_deref(), args.data_dir.as_deref());
    if args.detach && !args.background {
        return detach::start(&clusters, &name, style);
    }
    let claim = clusters.claim(&name)?;
    let log = start_log(&args, &claim)?;
    if let Err(error) = clusters.remove_orphans() {
        tracing::warn!("the files of crashed clusters cannot be removed: {error:#}");
    }
    limits::raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context(RUNTIME_FAILURE)?;
    // Install the signal handler first, so that a signal during the start also stops the program gracefully.
    let shutdown = {
        let _entered = runtime.enter();
        shutdown_signal()
    };
    let clock = Clock::system();
    let now = clock.now();
    let (kubeconfigs, record) = record(&args, &home, &clusters, &name, &claim, log, now)?;
    let print = Box::new(move |event: &Event| messages::print(event, style));
    let progress = Arc::new(Progress::new(clock.clone(), print, claim, record));
    let start = Start { args: &args, clock: &clock, progress: &progress, clusters: &clusters };
    let ended = runtime.block_on(run_cluster(&start, kubeconfigs, Arc::clone(&progress), shutdown));
    // The server's last tasks use the data folder. Another process may use the folder as soon as the cluster's name is free.
    runtime.shutdown_timeout(RUNTIME_TIMEOUT);
    if let Ok(Ending::Restart(port)) = ended {
        // The next process claims the name, and uses the cluster's folder.
        drop(progress);
        return Err(detach::restart(port).context(format!(
            "cluster {name} has stopped and cannot be started again; start it with `evenkeel up`"
        )));
    }
    if let Some(progress) = Arc::into_inner(progress) {
        // The process that started the cluster in the background reads events only until the cluster is ready, and has ended
        // after a restart.
        let is_unread = args.background && (progress.was_ready() || args.restarted_on.is_some());
        let failure = ended.as_ref().err().filter(|_| is_unread).map(chain);
        progress.end(failure.as_deref())?;
    }
    ended.map(|_| ())
}

/// Starts the log: all events are written to a file, and warnings (with `-v`, all events) also to standard error. Returns the
/// path of the file.
fn start_log(args: &Args, claim: &Claim) -> Result<PathBuf> {
    // klog's verbosities of `info`, `debug` and `trace` events.
    let verbosity = match args.verbose {
        0 => 0,
        1 => 4,
        _ => 6,
    };
    let least_severe = match (args.background, args.verbose) {
        (true, _) => None,
        (false, 0) => Some(Level::WARN),
        (false, _) => Some(Level::TRACE),
    };
    let path = args.log_file.clone().unwrap_or_else(|| claim.folder().join("log"));
    let file = LogFile::open(&path).with_context(|| {
        format!("cannot write the log {}; --log-file names another file", path.display())
    })?;
    let options = LoggingOptions { verbosity, ..LoggingOptions::default() };
    logging::start_in_file(&options, file, least_severe);
    Ok(path)
}

/// Returns the kubeconfigs that a cluster writes, and the record that other commands read while it starts.
fn record(
    args: &Args,
    home: &Home,
    clusters: &Clusters,
    name: &str,
    claim: &Claim,
    log: PathBuf,
    now: Timestamp,
) -> Result<(Kubeconfigs, Record)> {
    let is_clusters = |path: &Path| clusters.owns_kubeconfig(path);
    let merges = args.merges_kubeconfig();
    let user_kubeconfig = merges.then(|| home.user_kubeconfig(is_clusters)).transpose()?;
    let own = args.data_dir.as_deref().unwrap_or(claim.folder()).join("kubeconfig");
    let record = Record {
        name: name.to_owned(),
        pid: std::process::id(),
        started_at: now.to_string(),
        starting: Some("start".to_owned()),
        failure: None,
        url: None,
        console: None,
        kubeconfig: (!args.is_remote()).then(|| own.clone()),
        socket: explain::socket_beside(&own),
        log,
        data_dir: args.data_dir.clone(),
        merged_into: None,
        shell_kubeconfig: home
            .clusters_kubeconfig(is_clusters)
            .filter(|path| merges && *path != own),
        previous_contexts: Vec::new(),
    };
    let kubeconfigs = Kubeconfigs {
        context: context(name),
        own,
        user: user_kubeconfig.map(|path| clusters.user_kubeconfig(path)),
    };
    Ok((kubeconfigs, record))
}

/// Runs a cluster until a signal or a client of the control socket stops it, or until it fails.
async fn run_cluster(
    start: &Start<'_>,
    kubeconfigs: Kubeconfigs,
    progress: Arc<Progress>,
    shutdown: impl Future<Output = ()>,
) -> Result<Ending> {
    let reports = Tasks::new();
    let stop = reports.token();
    reports.spawn_finite("progress", async move {
        stop.run_until_cancelled_owned(progress.report_waits()).await;
    });
    let ended = if start.args.is_remote() {
        start.on_remote(&kubeconfigs.own, shutdown).await
    } else {
        start.embedded(kubeconfigs, shutdown).await
    };
    reports.shut_down(REPORT_TIMEOUT).await;
    ended
}
