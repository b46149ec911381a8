//! Upstream's kube-apiserver and etcd, in real time: one cluster for all cases.

mod credentials;
mod outage;
mod programs;
mod takeover;

use crate::{
    CASES, Case, cloud,
    cloud_manager::{self, Access},
    cluster::{Cluster, Intervals},
    forbidden, hostile, nodes, vanishing,
};
use credentials::Credentials;
use evenkeel_plane::{Plane, PlaneOptions};
use evenkeel_runtime::{
    client::{self, Client, ConnectOptions},
    clock::Clock,
    tasks::panic_text,
};
use futures::{FutureExt, StreamExt};
use programs::{Folder, Programs};
use std::{io::Write as _, panic::AssertUnwindSafe, path::PathBuf, time::Duration};

/// Number of cases that run concurrently; they mostly wait.
const AT_A_TIME: usize = 8;

const INTERVALS: Intervals =
    Intervals { poll: Duration::from_millis(150), hold: Duration::from_secs(3) };

#[test]
fn upstream() {
    let Some(binaries) = binaries() else {
        tell(
            "SKIPPED: EVENKEEL_UPSTREAM_BIN is not set; tests/upstream/build FOLDER builds what it names",
        );
        return;
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let failed = runtime.block_on(run(binaries, &CaseFilter::from_environment()));
    assert!(failed.is_empty(), "failed on upstream: {}", failed.join(", "));
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place where these tests read the environment"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn binaries() -> Option<PathBuf> {
    variable("EVENKEEL_UPSTREAM_BIN").map(PathBuf::from)
}

/// Selection of the cases to run: all, or with `EVENKEEL_E2E_ONLY` those whose names contain one of its parts.
struct CaseFilter(Option<String>);

impl CaseFilter {
    fn from_environment() -> Self {
        Self(variable("EVENKEEL_E2E_ONLY"))
    }

    fn has(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|only| only.split(',').any(|part| name.contains(part)))
    }
}

/// Runs all cases, and returns the names of those that failed.
async fn run(binaries: PathBuf, filter: &CaseFilter) -> Vec<String> {
    let clock = Clock::system();
    let folder = Folder::new();
    let credentials = Credentials::make(&folder);
    let mut programs = Programs::new(binaries, folder);
    let (etcd, server) = programs.start_servers();
    let kube = connect(ConnectOptions {
        kubeconfig: Some(credentials.kubeconfig("admin", &server)),
        ..ConnectOptions::default()
    })
    .await;
    let etcd =
        client::transport(&kube::Config::new(etcd.parse().expect("a URL"))).expect("a transport");
    let client = |kube: kube::Client| {
        Client::builder(kube, clock.clone()).qps(-1.0).user_agent("e2e").build()
    };
    let cloud = cloud::provider();
    let cluster = Cluster::new(client(kube.clone()), clock.clone(), INTERVALS)
        .with_etcd(client(etcd))
        .with_cloud(cloud.clone());
    programs.until_ready(&cluster).await;

    let (ca, key) = (credentials.ca(), credentials.ca_key());
    let mut all = PlaneOptions::all(nodes::OPEN).with_ca(ca).with_authority(ca, key);
    all.nodes.nodes.extend(nodes::quiet());
    all.controller_options.nodeipam = nodes::ranges();
    let around = PlaneOptions { controllers: Vec::new(), ..all.clone() };
    let around = Plane::start(&kube, &clock, around).expect("scheduler and nodes start");
    let mut failed = Vec::new();
    if filter.has("takeover")
        && !passes("takeover", takeover::both_ways(&cluster, &mut programs, &credentials, &server))
            .await
    {
        failed.push("takeover".to_owned());
    }
    programs.stop_others();
    let limited = credentials.kubeconfig(forbidden::USER, &server);
    if filter.has("forbidden")
        && !passes(
            "forbidden",
            forbidden::some_lists_are_forbidden(&cluster, programs.folder(), &limited),
        )
        .await
    {
        failed.push("forbidden".to_owned());
    }
    let admin = credentials.kubeconfig("admin", &server);
    if filter.has("vanishing")
        && !passes(
            "vanishing",
            vanishing::a_process_does_not_go_on_about_it(&cluster, programs.folder(), &admin),
        )
        .await
    {
        failed.push("vanishing".to_owned());
    }
    let access = Access {
        folder: programs.folder().to_owned(),
        kubeconfig: admin,
        token: "admin".to_owned(),
    };
    if filter.has("cloud_manager")
        && !passes("cloud_manager", cloud_manager::controllers_move(&cluster, &access)).await
    {
        failed.push("cloud_manager".to_owned());
    }

    let mut controllers = PlaneOptions { scheduler: None, cloud: Some(cloud), ..all };
    controllers.nodes.nodes.clear();
    let controllers = Plane::start(&kube, &clock, controllers).expect("every controller starts");
    controllers.synced().await;
    let cases = CASES.iter().filter(|case| filter.has(case.name));
    let outcomes = futures::stream::iter(cases)
        .map(|case: &Case| async { (case.name, passes(case.name, (case.run)(&cluster)).await) })
        .buffer_unordered(AT_A_TIME)
        .collect::<Vec<_>>()
        .await;
    failed.extend(
        outcomes.into_iter().filter(|(_, passed)| !passed).map(|(name, _)| name.to_owned()),
    );
    if filter.has("hostile")
        && !passes("hostile", hostile::a_hundred_bad_objects_harm_nobody(&cluster)).await
    {
        failed.push("hostile".to_owned());
    }
    if filter.has("outage") && !passes("outage", outage::is_survived(&cluster, &mut programs)).await
    {
        failed.push("outage".to_owned());
    }
    for plane in [controllers, around] {
        if !plane.stop().await.is_empty() {
            failed.push("stop in time".to_owned());
        }
    }
    failed
}

async fn connect(options: ConnectOptions) -> kube::Client {
    let config = client::config(&options).await.expect("a configuration");
    client::transport(&config).expect("a transport")
}

/// Prints a line immediately: output of macros is shown only if the whole test fails.
fn tell(line: &str) {
    // Nobody may be listening.
    let _ = writeln!(std::io::stderr(), "upstream: {line}");
}

/// Runs one case, and prints its result.
async fn passes(name: &str, case: impl Future<Output = ()>) -> bool {
    let begun = Clock::system().instant();
    let ended = AssertUnwindSafe(case).catch_unwind().await;
    let seconds = begun.elapsed().as_secs_f32();
    match ended {
        Ok(()) => tell(&format!("{name}: ok ({seconds:.1} s)")),
        Err(ref panic) => {
            tell(&format!("{name}: FAILED ({seconds:.1} s): {}", panic_text(&**panic)));
        }
    }
    ended.is_ok()
}
