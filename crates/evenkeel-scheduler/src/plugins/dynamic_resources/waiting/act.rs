//! Waits in PreBind for device binding conditions, and records an event and metrics.

use evenkeel_api::{
    View as _,
    time::{Timestamp, saturating_add},
    views::{Pod, ResourceClaim},
};
use evenkeel_runtime::plan::{EventRecord, Target};
use std::{sync::Arc, time::Duration};

use super::{NotReady, check_readiness};
use crate::{
    framework::PreBindError,
    metrics::DeviceWaitResult,
    plugins::dynamic_resources::{ClusterState, DynamicResources, lock},
    pod::PodInfo,
};

impl DynamicResources {
    /// Waits until the devices of the pod's claims are ready. Records the event `BindingConditionsPending` before the
    /// wait, and metrics after it.
    ///
    /// # Errors
    /// Fails if a device failed, a claim was deleted, or the binding timeout has passed.
    pub(in super::super) async fn wait(
        &self,
        cluster: &ClusterState,
        pod: &PodInfo,
        node: &str,
    ) -> Result<(), PreBindError> {
        let regarding = Target::of(Pod::kind(), &pod.pod.meta);
        let message = format!("waiting for binding conditions for device on node {node}");
        let event = EventRecord {
            regarding,
            warning: false,
            reason: "BindingConditionsPending".into(),
            message,
        };
        cluster.handle.recorder.record(&event, "Scheduling", None);
        let began_at = cluster.handle.clock.now();
        let outcome = self.wait_until_ready(cluster, pod.uid(), began_at).await;
        let result = match &outcome {
            Ok(()) => DeviceWaitResult::Ready,
            Err(not_ready) => not_ready.result,
        };
        let took = cluster.handle.clock.now().duration_since(began_at).unsigned_abs();
        self.record_outcome(cluster, pod.uid(), result, took);
        outcome.map_err(|not_ready| PreBindError::Refused(not_ready.message))
    }

    /// Checks the claims after each change of a claim and at each deadline, until all claims are ready or a check fails.
    /// Upstream: `isPodReadyForBinding`.
    async fn wait_until_ready(
        &self,
        cluster: &ClusterState,
        uid: &str,
        began_at: Timestamp,
    ) -> Result<(), NotReady> {
        let clock = &cluster.handle.clock;
        let timeout = self.args.binding_timeout;
        let deadline = saturating_add(began_at, timeout);
        loop {
            // Subscribe before the check, so that no change during the check is missed.
            let changed = cluster.claim_changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let now = clock.now();
            let claims = self.claims_of_assumed_pod(cluster, uid);
            let Some(next_check) = check_readiness(claims, timeout, deadline, now)? else {
                return Ok(());
            };
            let delay = Duration::try_from(next_check.duration_since(now)).unwrap_or_default();
            tokio::select! {
                () = changed => {}
                () = clock.sleep(delay) => {}
            }
        }
    }

    /// Returns the latest known version of each claim of an assumed pod. The error says that the claim was deleted.
    fn claims_of_assumed_pod(
        &self,
        cluster: &ClusterState,
        uid: &str,
    ) -> Vec<Result<Arc<ResourceClaim>, String>> {
        let assumed = lock(&self.assumed).get(uid).cloned().unwrap_or_default();
        assumed.latest(|claim| self.claim(cluster, &claim.meta.namespace, &claim.meta.name))
    }

    /// Records the result and the duration of the wait for each device of the pod's claims.
    fn record_outcome(
        &self,
        cluster: &ClusterState,
        uid: &str,
        result: DeviceWaitResult,
        took: Duration,
    ) {
        let metrics = cluster.handle.metrics.claims();
        let profile = &cluster.handle.profile;
        for claim in self.claims_of_assumed_pod(cluster, uid).into_iter().flatten() {
            let allocation = claim.status.allocation.as_deref();
            for device in allocation.iter().flat_map(|allocation| &*allocation.devices.results) {
                let has_conditions = !device.binding_conditions.is_empty();
                metrics.observe_device_wait(profile, &device.driver, has_conditions, result, took);
            }
        }
    }
}
