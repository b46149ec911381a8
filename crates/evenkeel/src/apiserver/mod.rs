//! `evenkeel apiserver`: only the embedded API server, with kube-apiserver's flags.

mod aggregation;
mod audit;
pub(crate) mod etcd;
mod options;
mod storage;

use crate::{
    control::{self, Served},
    kubeconfig::Kubeconfigs,
    limits, server, snapshot,
};
use anyhow::{Context, Result};
use evenkeel::explain;
use evenkeel_apiserver::Server;
use evenkeel_component::{
    command_line::{self, CommandLine},
    flags::About,
    logging,
    worker::Worker,
};
use evenkeel_runtime::{manager::shutdown_signal, tasks::Tasks};
use options::{Options, flags};
use std::{collections::BTreeMap, net::SocketAddr, path::Path, process::ExitCode, time::Duration};

/// Name of upstream's program, which has the same flags.
pub(crate) const NAME: &str = "kube-apiserver";

/// Maximum time for open requests to complete when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the program with these arguments, and returns its exit code.
pub(crate) fn main(arguments: Vec<String>) -> ExitCode {
    if arguments.first().is_some_and(|first| first == "snapshot") {
        return snapshot::main_of_apiserver(arguments);
    }
    let parsed = match command_line().read(arguments) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    let options = match Options::check(parsed, Path::exists) {
        Ok(options) => options,
        Err(invalid) => return command_line::report_invalid_flags(invalid),
    };
    let log = logging::start(&options.logging);
    command_line::run(&log, Worker::Parallel, async {
        command_line::log_flags(&options.parsed_flags, &options.warnings, &log);
        run(&options).await.map(|()| ExitCode::SUCCESS)
    })
}

/// Returns the program's command line.
pub(crate) fn command_line() -> CommandLine {
    let description = "The embedded API server alone, in place of kube-apiserver and etcd: with kube-apiserver's flags, as far as it has \
                what they set. It warns of flags without effect, and refuses those that something relies on.";
    CommandLine { flags: flags(), about: About { name: NAME, description, notes: BTreeMap::new() } }
}

async fn run(options: &Options) -> Result<()> {
    let shutdown = shutdown_signal();
    limits::raise_open_files();
    let listener = server::listen(options.listen, "secure-port").await?;
    let address = listener.local_addr().context("the listener has no address")?;
    let server = build(options, address).await?;
    let serving = Tasks::new();
    if let Some(path) = options.kubeconfig.clone() {
        let url = server::local_url(address);
        let paths = Kubeconfigs { context: "evenkeel".to_owned(), own: path, user: None };
        paths.write(&server.kubeconfig(&url))?;
        let server = server.clone();
        serving.spawn_restarting_until_cancelled("kubeconfig", move || {
            paths.clone().keep_renewed(server.clone(), url.clone())
        });
    }
    let (listening_server, stop) = (server.clone(), serving.token());
    serving.spawn("API server", async move {
        if let Err(error) = listening_server.serve(listener, stop.cancelled_owned()).await {
            tracing::error!(%error, "API server stopped");
        }
    });
    let control = options.data_dir.as_ref().map(|folder| {
        let path = explain::socket_beside(&folder.join("kubeconfig"));
        let url = server::local_url(address);
        let served = Served {
            url,
            introspection: None,
            schedulers: None,
            time: None,
            server: Some(server.clone()),
            lifecycle: None,
        };
        control::start(&path, served, &serving)
    });
    let _control = control.transpose().unwrap_or_else(|error| {
        tracing::warn!("no snapshots are saved while the server runs: {error:#}");
        None
    });
    tracing::info!(%address, "Serving securely");
    let ended = tokio::select! {
        () = shutdown => Ok(()),
        failure = serving.supervisor().failed() => Err(failure.into()),
        failure = server.failed() => Err(failure.into()),
    };
    serving.shut_down(SHUTDOWN_TIMEOUT).await;
    ended
}

async fn build(options: &Options, address: SocketAddr) -> Result<Server> {
    let advertised = SocketAddr::new(options.advertise.unwrap_or(address.ip()), address.port());
    let request_header = options.aggregation.request_header()?;
    let mut builder = server::configure(&options.server, advertised, request_header)?
        .data_dir(options.data_dir.clone())
        .max_requests_in_flight(options.max_reads_in_flight, options.max_writes_in_flight)
        .priority_and_fairness(options.priority_and_fairness)
        .event_ttl(options.event_ttl)
        .sharded_list_and_watch(options.sharded_list_and_watch)
        .aggregation(options.aggregation.options()?);
    if let Some([chain, key]) = &options.certificate {
        let chain = server::read_file("tls-cert-file", chain)?;
        builder = builder.certificate(chain, server::read_file("tls-private-key-file", key)?);
    }
    if let Some(etcd) = &options.etcd {
        builder = builder.etcd(etcd.options()?);
    }
    if let Some(audit) = &options.audit {
        builder = builder.audit(audit.options()?);
    }
    builder.build().await.context("the API server cannot start")
}
