//! Controller that checks the availability of extension API servers.

use std::sync::{Arc, Weak};
use std::time::Duration;

use evenkeel_apimachinery::value::text;
use evenkeel_tasks::watch;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use serde_json::Value;

use super::availability::{self, Observed};
use super::client::Server;
use super::controller::{API_VERSION, RESOURCE, write_condition};
use super::probe;
use super::remotes::{Remote, RemoteInputs, ServiceReference};
use super::schedule::{Intervals, Schedule, sleep_until};
use crate::api::Api;
use crate::loopback;

/// Resource prefixes of the objects behind APIServices.
pub(crate) const RESOURCE_PREFIXES: [&str; 2] = ["/services", "discovery.k8s.io/endpointslices"];
/// Maximum number of checks that run concurrently.
const WORKERS: usize = 5;
const INTERVALS: Intervals = Intervals {
    period: Duration::from_secs(30),
    first_backoff: Duration::from_millis(5),
    max_backoff: Duration::from_secs(30),
};

/// Inputs of an availability check. A change of them makes the check due immediately.
#[derive(PartialEq)]
struct CheckInputs {
    remote: RemoteInputs,
    /// Resource versions of the Service and its EndpointSlices.
    revisions: Vec<u64>,
}

/// Result of probing an extension API server.
struct Probed {
    /// Stored APIService at the start of the probe.
    api_service: Value,
    result: Result<(), String>,
}

/// Runs the controller until the server shuts down. `changes` signal writes to the objects of [`RESOURCE_PREFIXES`].
pub(crate) async fn run(api: Weak<Api>, mut changes: [watch::Receiver<u64>; 2]) {
    let Some(mut remotes) = api.upgrade().map(|api| api.aggregation.changes()) else { return };
    let mut schedule: Schedule<CheckInputs> = Schedule::new(INTERVALS);
    let mut probes: FuturesUnordered<BoxFuture<'static, Probed>> = FuturesUnordered::new();
    loop {
        remotes.mark_unchanged();
        changes.iter_mut().for_each(watch::Receiver::mark_unchanged);
        let Some(server) = api.upgrade() else { return };
        begin_due_checks(&server, &mut schedule, &mut probes).await;
        // The API server can only be dropped while the controller holds no strong reference to it.
        drop(server);
        let next = schedule.next(WORKERS);
        let [services, slices] = &mut changes;
        let event = tokio::select! {
            changed = remotes.changed() => changed.map(|()| None),
            changed = services.changed() => changed.map(|()| None),
            changed = slices.changed() => changed.map(|()| None),
            Some(probed) = probes.next() => Ok(Some(probed)),
            () = sleep_until(next) => Ok(None),
        };
        let (Ok(finished), Some(server)) = (event, api.upgrade()) else { return };
        if let Some(Probed { api_service, result }) = finished {
            let succeeded = result.is_ok();
            let condition = availability::condition_of_probe(result);
            let written = write_condition(&server, &api_service, &condition).await;
            let name = text(&api_service, "metadata.name");
            schedule.end(name, succeeded && written.is_ok(), server.clock.instant());
        }
    }
}

/// Begins the checks that are due: writes the conditions that follow from stored objects, and starts probes for the
/// other APIServices.
async fn begin_due_checks(
    api: &Arc<Api>,
    schedule: &mut Schedule<CheckInputs>,
    probes: &mut FuturesUnordered<BoxFuture<'static, Probed>>,
) {
    let (now, current) = (api.clock.instant(), api.aggregation.current());
    let inputs_by_name =
        current.by_name.values().map(|remote| (remote.name.clone(), check_inputs(api, remote)));
    schedule.observe(inputs_by_name, now);
    for name in schedule.begin(now, WORKERS) {
        // Read the stored APIService again: `write_condition` drops the condition of an older spec.
        let api_service = loopback::get(api, API_VERSION, RESOURCE, "", &name).ok().flatten();
        let found = api_service.and_then(|api_service| {
            let remote = api.aggregation.remote(&api_service)?;
            Some((remote, api_service))
        });
        let Some((remote, api_service)) = found else {
            schedule.end(&name, true, now);
            continue;
        };
        let decided = match observe_service(api, &remote.service) {
            Ok(observed) => availability::decide(&remote.service, &observed),
            Err(error) => {
                tracing::error!(name = &*name, %error, "a Service cannot be read");
                schedule.end(&name, false, now);
                continue;
            }
        };
        if let Some(condition) = decided {
            let written = write_condition(api, &api_service, &condition).await;
            schedule.end(&name, written.is_ok(), now);
            continue;
        }
        let servers = std::array::from_fn(|_| Server::of(api, &remote));
        let path = remote.path().to_owned();
        probes.push(Box::pin(async move {
            let result = probe::run(servers, &path).await;
            Probed { api_service, result }
        }));
    }
}

/// Returns the inputs of an API's check from the objects that are stored now.
fn check_inputs(api: &Api, remote: &Remote) -> CheckInputs {
    let ServiceReference { namespace, name, .. } = &remote.service;
    let service = api.store.get("/services", &format!("{namespace}/{name}"));
    let slices = loopback::endpoint_slice_entries(api, namespace, name);
    let revisions = service.iter().chain(&slices).map(|entry| entry.revision).collect();
    CheckInputs { remote: remote.inputs(), revisions }
}

/// Reads a Service and its EndpointSlices.
fn observe_service(api: &Api, reference: &ServiceReference) -> Result<Observed, serde_json::Error> {
    let ServiceReference { namespace, name, .. } = reference;
    let service = api.store.get("/services", &format!("{namespace}/{name}"));
    let service = service.map(|entry| entry.decode()).transpose()?;
    Ok(Observed { service, slices: loopback::endpoint_slices(api, namespace, name) })
}
