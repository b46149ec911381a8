//! Cluster around an operator, as one program of a simulation.

use crate::{
    BoxError, Program,
    cluster::{ClusterError, find_descriptors},
};
use evenkeel_apiserver::Server;
use evenkeel_plane::{Plane, PlaneOptions};
use evenkeel_runtime::manager::Setup;
use futures::future::BoxFuture;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Controllers of every cluster: they complete deletions.
const GARBAGE_CONTROLLERS: [&str; 2] = ["garbage-collector-controller", "namespace-controller"];

/// Interval at which simulated nodes renew their Leases: below the 50 s after which a node counts as unreachable.
const NODE_LEASE_RENEWAL: Duration = Duration::from_secs(30);

/// Controllers, scheduler and simulated nodes around an operator.
pub(super) struct Cluster(PlaneOptions);

impl Cluster {
    /// Returns a cluster with these controllers and [`GARBAGE_CONTROLLERS`]. A cluster without nodes has no scheduler.
    pub(super) fn new(
        server: &Server,
        controllers: &[String],
        nodes: u32,
        seed: u64,
    ) -> Result<Self, ClusterError> {
        let mut names: Vec<String> = GARBAGE_CONTROLLERS.map(str::to_owned).into();
        names.extend(
            controllers.iter().filter(|name| !GARBAGE_CONTROLLERS.contains(&&***name)).cloned(),
        );
        let mut options = PlaneOptions::all(nodes).of_server(server);
        options.controllers = find_descriptors(Some(&names))?;
        // A report of an unchanged status would be a write in a settled cluster.
        options.nodes.status_report = Duration::MAX;
        options.nodes.lease_renewal = NODE_LEASE_RENEWAL;
        options.scheduler = options.scheduler.filter(|_| nodes > 0);
        if let Some(scheduler) = &mut options.scheduler {
            scheduler.seed = seed;
        }
        Ok(Self(options))
    }
}

impl Program for Cluster {
    fn start(
        &self,
        client: kube::Client,
        setup: Setup,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), BoxError>> {
        let plane = Plane::start(&client, setup.clock(), self.0.clone());
        Box::pin(async move {
            let plane = plane?;
            tokio::select! {
                () = stop.cancelled() => {
                    plane.stop().await;
                    Ok(())
                }
                failure = plane.failed() => Err(failure.into()),
            }
        })
    }
}
