//! What the secure port serves.

use crate::options::Options;
use anyhow::{Context, Result};
use evenkeel_runtime::{
    client::{self, ConnectOptions},
    clock::Clock,
    manager::{Group, Manager},
    serve::{self, Certificate, Guard, ReviewTimes, Reviews, Routes},
};
use prometheus::{Registry, core::Collector};
use std::{net::SocketAddr, path::Path};
use tokio::net::TcpListener;

/// Adds the secure port to a manager. The port is taken at once, so that a port in use is told at the start.
pub async fn add(manager: &Manager, options: &Options, clock: &Clock) -> Result<()> {
    let serving = &options.serving;
    let certificate = match (&serving.certificate, &serving.cert_dir) {
        (Some((certificate, key)), _) => {
            Certificate::from_files(Path::new(certificate), Path::new(key))?
        }
        (None, folder) => {
            let names =
                ["localhost".to_owned(), "127.0.0.1".to_owned(), serving.address.to_string()];
            Certificate::self_signed(
                &names,
                folder.as_deref().map(|folder| (Path::new(folder), "kube-controller-manager")),
            )?
        }
    };
    let tls = serve::server_config(certificate, serving.client_ca.as_deref().map(Path::new))?;
    let times = ReviewTimes {
        token: serving.token_ttl,
        granted: serving.granted_ttl,
        denied: serving.denied_ttl,
    };
    let authentication = reviews(serving.authentication_kubeconfig.as_deref(), clock, times)
        .await
        .context("--authentication-kubeconfig")?;
    let authorization = reviews(serving.authorization_kubeconfig.as_deref(), clock, times)
        .await
        .context("--authorization-kubeconfig")?;
    let guard = Guard::new(serving.always_allow.clone(), authentication, authorization);
    let health = manager.health().clone();
    let routes = Routes::new()
        .get("/healthz", move |request| {
            health
                .answer("healthz", request.uri().query().unwrap_or_default())
                .map(bytes::Bytes::from)
        })
        .metrics(manager.registry().clone());
    let address = SocketAddr::new(serving.address, serving.port);
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    manager.add(Group::Serving, "secure port", move |running| async move {
        running.ready();
        serve::serve(listener, tls, routes, guard, running.token()).await;
        Ok(())
    });
    Ok(())
}

async fn reviews(
    kubeconfig: Option<&str>,
    clock: &Clock,
    times: ReviewTimes,
) -> Result<Option<Reviews>> {
    let Some(path) = kubeconfig else { return Ok(None) };
    let options = ConnectOptions {
        kubeconfig: Some(path.into()),
        user_agent: "kube-controller-manager".to_owned(),
        qps: -1.0,
        ..ConnectOptions::default()
    };
    Ok(Some(Reviews::new(client::connect(options, clock.clone()).await?, clock.clone(), times)))
}

/// `process_*`, as every exporter has them.
pub fn register_process_metrics(registry: &Registry) -> Result<()> {
    registry.register(Box::new(Process::default()))?;
    Ok(())
}

/// Reads `/proc/self` when asked.
#[derive(Default)]
struct Process {
    described: Vec<prometheus::core::Desc>,
}

impl Collector for Process {
    fn desc(&self) -> Vec<&prometheus::core::Desc> {
        self.described.iter().collect()
    }

    fn collect(&self) -> Vec<prometheus::proto::MetricFamily> {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let stat = text("/proc/self/stat");
        // After the command's name in parentheses, which may contain anything; field 3 of proc(5) comes first.
        let fields: Vec<&str> =
            stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        let field =
            |n: usize| fields.get(n - 3).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
        // Clock ticks are 100 a second on every Linux that Rust supports; pages are 4 KiB on those we ship for.
        let (ticks, page) = (100.0, 4096.0);
        let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let boot = text("/proc/stat")
            .lines()
            .find_map(|line| line.strip_prefix("btime ")?.trim().parse::<f64>().ok());
        let gauge = |name: &str, help: &str, value: f64| {
            let gauge = prometheus::Gauge::new(name, help).ok()?;
            gauge.set(value);
            Some(gauge.collect())
        };
        let cpu = prometheus::Counter::new(
            "process_cpu_seconds_total",
            "User and system CPU time spent, in seconds.",
        )
        .ok()
        .map(|cpu| {
            cpu.inc_by((field(14) + field(15)) / ticks);
            cpu.collect()
        });
        let gauges = [
            gauge("process_resident_memory_bytes", "Resident memory, in bytes.", field(24) * page),
            gauge("process_virtual_memory_bytes", "Virtual memory, in bytes.", field(23)),
            gauge("process_open_fds", "Open file descriptors.", open as f64),
            gauge(
                "process_start_time_seconds",
                "Start of the process, in seconds since the epoch.",
                boot.unwrap_or(0.0) + field(22) / ticks,
            ),
        ];
        cpu.into_iter().chain(gauges.into_iter().flatten()).flatten().collect()
    }
}
