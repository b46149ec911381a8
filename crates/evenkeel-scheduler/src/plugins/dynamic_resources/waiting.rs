//! Device binding conditions (KEP-5007): PreBind waits until drivers report the devices ready.

#[cfg(test)]
mod tests;

use evenkeel_api::{
    View as _,
    time::Timestamp,
    views::{Pod, ResourceClaim},
};
use evenkeel_runtime::plan::{Note, Target};
use std::{sync::Arc, time::Duration};

use super::{
    DynamicResources, Observed,
    claims::{self, Readiness},
    locked,
};
use crate::{framework::PreBindError, metrics::Awaited, pod::PodInfo};

/// Why the wait failed.
struct Unready {
    how: Awaited,
    why: String,
}

impl Unready {
    fn late(why: &str) -> Self {
        Self { how: Awaited::TimedOut, why: format!("device binding timeout: {why}") }
    }
}

impl DynamicResources {
    /// Waits until the devices of the pod's claims are ready.
    pub(super) async fn wait(
        &self,
        seen: &Observed,
        pod: &PodInfo,
        node: &str,
    ) -> Result<(), PreBindError> {
        let regarding = Target::of(Pod::kind(), &pod.pod.meta);
        let message = format!("waiting for binding conditions for device on node {node}");
        let note = Note { regarding, warning: false, reason: "BindingConditionsPending", message };
        seen.handle.recorder.record(&note, "Scheduling", None);
        let began = seen.handle.clock.now();
        let outcome = self.until_ready(seen, pod.uid(), began).await;
        let how = outcome.as_ref().map_or_else(|unready| unready.how, |()| Awaited::Ready);
        let took = seen.handle.clock.now().duration_since(began).unsigned_abs();
        self.count(seen, pod.uid(), how, took);
        outcome.map_err(|unready| PreBindError::Refused(unready.why))
    }

    async fn until_ready(
        &self,
        seen: &Observed,
        uid: &str,
        began: Timestamp,
    ) -> Result<(), Unready> {
        let (clock, patience) = (&seen.handle.clock, self.args.binding_timeout);
        let end = later(began, patience);
        loop {
            // Subscribed before the first check, so that no change is missed.
            let changed = seen.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let now = clock.now();
            let Some(overdue) = self.look(seen, uid, now)? else { return Ok(()) };
            if now >= end {
                return Err(Unready::late("context deadline exceeded"));
            }
            let next = end.min(overdue).duration_since(now);
            tokio::select! {
                () = changed => {}
                () = clock.sleep(Duration::try_from(next).unwrap_or_default()) => {}
            }
        }
    }

    /// Checks the pod's claims: `None` if all are ready, or when the first deadline ends.
    fn look(
        &self,
        seen: &Observed,
        uid: &str,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, Unready> {
        let patience = self.args.binding_timeout;
        for claim in self.of_assumed_pod(seen, uid) {
            let claim = claim.map_err(|why| Unready { how: Awaited::Error, why })?;
            match claims::readiness(&claim) {
                Readiness::Ready => {}
                Readiness::Failed(why) => return Err(Unready { how: Awaited::Failed, why }),
                Readiness::Waits if claims::is_overdue(&claim, patience, now) => {
                    return Err(Unready::late(&format!("claim={}", claim.meta.name)));
                }
                Readiness::Waits => {
                    let limit = claims::limit(&claim, patience).unwrap_or(Timestamp::MAX);
                    // Overdue strictly after the deadline.
                    return Ok(Some(later(limit, Duration::from_millis(1))));
                }
            }
        }
        Ok(None)
    }

    /// Returns the claims of an assumed pod in their newest known versions.
    fn of_assumed_pod(
        &self,
        seen: &Observed,
        uid: &str,
    ) -> Vec<Result<Arc<ResourceClaim>, String>> {
        let (claims, made) = match locked(&self.assumed).get(uid) {
            Some(decided) => {
                let claims = decided.claims.iter().map(|(claim, _)| Arc::clone(claim));
                let made = decided.special.as_ref().and_then(|making| making.made.clone());
                (claims.collect::<Vec<_>>(), made)
            }
            None => Default::default(),
        };
        let now = |claim: &ResourceClaim| self.claim(seen, &claim.meta.namespace, &claim.meta.name);
        let gone = |claim: &ResourceClaim| {
            claims::not_found(&format!("{}/{}", claim.meta.namespace, claim.meta.name))
        };
        let known = claims.iter().map(|claim| now(claim).ok_or_else(|| gone(claim)));
        // The cache may lack a claim that was just created.
        let made = made.map(|made| Ok(now(&made).unwrap_or(made)));
        known.chain(made).collect()
    }

    /// Counts the outcome of the wait for each device.
    fn count(&self, seen: &Observed, uid: &str, how: Awaited, took: Duration) {
        let (metrics, profile) = (seen.handle.metrics.claims(), &seen.handle.profile);
        for claim in self.of_assumed_pod(seen, uid).into_iter().flatten() {
            let allocation = claim.status.allocation.as_deref();
            for device in allocation.iter().flat_map(|allocation| &*allocation.devices.results) {
                let conditional = !device.binding_conditions.is_empty();
                metrics.awaited(profile, &device.driver, conditional, how, took);
            }
        }
    }
}

fn later(moment: Timestamp, by: Duration) -> Timestamp {
    moment.saturating_add(by).unwrap_or(Timestamp::MAX)
}
