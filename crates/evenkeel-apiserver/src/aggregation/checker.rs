//! Controller that checks the availability of extension API servers.

use std::sync::{Arc, Weak};
use std::time::Duration;

use evenkeel_apimachinery::value::text;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use serde_json::Value;
use tokio::sync::watch;

use super::availability::{self, Observed};
use super::client::Server;
use super::controller::{API_VERSION, RESOURCE, write_condition};
use super::probe;
use super::remotes::{self, Remote, ServiceReference};
use super::schedule::{Intervals, Schedule, sleep_until};
use crate::api::Api;
use crate::loopback;

/// Resource prefixes of the objects behind APIServices.
pub(crate) const RESOURCE_PREFIXES: [&str; 2] = ["/services", "discovery.k8s.io/endpointslices"];
/// Maximum number of servers that are checked at once.
const WORKERS: usize = 5;
const INTERVALS: Intervals = Intervals {
    period: Duration::from_secs(30),
    first_backoff: Duration::from_millis(5),
    max_backoff: Duration::from_secs(30),
};

/// What the condition of an APIService depends on: its spec and condition, and the revisions of its Service and
/// EndpointSlices.
type Basis = (remotes::Basis, Vec<u64>);

/// Result of asking the server of an APIService, as it was stored.
type Checked = (Value, Result<(), String>);

/// Runs the controller until the server shuts down. `changes` signal writes to the objects of [`RESOURCE_PREFIXES`].
pub(crate) async fn run(api: Weak<Api>, mut changes: [watch::Receiver<u64>; 2]) {
    let Some(mut remotes) = api.upgrade().map(|api| api.aggregation.changes()) else { return };
    let mut schedule: Schedule<Basis> = Schedule::new(INTERVALS);
    let mut checks: FuturesUnordered<BoxFuture<'static, Checked>> = FuturesUnordered::new();
    loop {
        remotes.mark_unchanged();
        changes.iter_mut().for_each(watch::Receiver::mark_unchanged);
        // The controller holds no strong reference while it waits.
        let Some(server) = api.upgrade() else { return };
        begin(&server, &mut schedule, &mut checks).await;
        drop(server);
        let next = schedule.next(WORKERS);
        let [services, slices] = &mut changes;
        let checked = tokio::select! {
            changed = remotes.changed() => changed.map(|()| None),
            changed = services.changed() => changed.map(|()| None),
            changed = slices.changed() => changed.map(|()| None),
            Some(checked) = checks.next() => Ok(Some(checked)),
            () = sleep_until(next) => Ok(None),
        };
        let (Ok(checked), Some(server)) = (checked, api.upgrade()) else { return };
        if let Some((service, result)) = checked {
            let succeeded = result.is_ok();
            let condition = availability::probed(result);
            let written = write_condition(&server, &service, &condition).await;
            let name = text(&service, "metadata.name");
            schedule.end(name, succeeded && written.is_ok(), server.clock.instant());
        }
    }
}

/// Begins the checks that are due. Conditions that follow from stored objects are written at once.
async fn begin(
    api: &Arc<Api>,
    schedule: &mut Schedule<Basis>,
    checks: &mut FuturesUnordered<BoxFuture<'static, Checked>>,
) {
    let (now, current) = (api.clock.instant(), api.aggregation.current());
    let all = current.all.values().map(|remote| (remote.name.clone(), basis(api, remote)));
    schedule.observe(all, now);
    for name in schedule.begin(now, WORKERS) {
        // The newest spec, as that is the one whose condition is written.
        let object = loopback::get(api, API_VERSION, RESOURCE, "", &name).ok().flatten();
        let found = object.and_then(|object| Some((api.aggregation.remote(&object)?, object)));
        let Some((remote, object)) = found else {
            schedule.end(&name, true, now);
            continue;
        };
        let decided = match observe(api, &remote.service) {
            Ok(observed) => availability::decide(&remote.service, &observed),
            Err(error) => {
                tracing::error!(name = &*name, %error, "a Service cannot be read");
                schedule.end(&name, false, now);
                continue;
            }
        };
        if let Some(condition) = decided {
            let written = write_condition(api, &object, &condition).await;
            schedule.end(&name, written.is_ok(), now);
            continue;
        }
        let servers = std::array::from_fn(|_| Server::of(api, &remote));
        let path = remote.path().to_owned();
        checks.push(Box::pin(async move { (object, probe::run(servers, &path).await) }));
    }
}

fn basis(api: &Api, remote: &Remote) -> Basis {
    let ServiceReference { namespace, name, .. } = &remote.service;
    let service = api.store.get("/services", &format!("{namespace}/{name}"));
    let slices = loopback::endpoint_slice_entries(api, namespace, name);
    (remote.basis(), service.iter().chain(&slices).map(|entry| entry.revision).collect())
}

fn observe(api: &Api, reference: &ServiceReference) -> Result<Observed, serde_json::Error> {
    let ServiceReference { namespace, name, .. } = reference;
    let service = api.store.get("/services", &format!("{namespace}/{name}"));
    let service = service.map(|entry| entry.decode()).transpose()?;
    Ok(Observed { service, slices: loopback::endpoint_slices(api, namespace, name) })
}
