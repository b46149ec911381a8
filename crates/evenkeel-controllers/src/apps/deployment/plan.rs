//! Reconciliation of a Deployment: one step of a rollout, of scaling, or of a rollback. Upstream: `syncDeployment`.
//!
//! As upstream, a reconciliation either scales the new set up, scales old sets down, or cleans up. The plan models its
//! own changes, so that later decisions and the status follow from them.
//!
//! | documented | where |
//! |---|---|
//! | `replicas`, proportional scaling | `scale::is_scaling_event`, `scale::scale` |
//! | `strategy.type`: `RollingUpdate` | `rolling::roll_out` |
//! | `strategy.type`: `Recreate` | `recreate::roll_out` |
//! | `rollingUpdate.maxSurge`, `rollingUpdate.maxUnavailable` | `limits::RolloutLimits`, `new_set::new_set_replicas` |
//! | `paused` | `step`, `new_set::check_paused_conditions` |
//! | `revisionHistoryLimit` | `sync::cleanup_deployment` |
//! | `progressDeadlineSeconds`, condition `Progressing` | `status::set_progressing_condition`, `status::deadline` |
//! | `minReadySeconds`, which the ReplicaSets apply | `sets::update` |
//! | condition `Available` | `status::counted` |
//! | condition `ReplicaFailure` | `status::failure` |
//! | rollback: annotation `deprecated.deployment.rollback.to` | `rollback::rollback` |
//! | annotation `deployment.kubernetes.io/revision` | `annotations::for_new_set` |
//! | label `pod-template-hash`, `status.collisionCount` | `observed::template_hash`, `status::not_created` |
//! | an empty `selector` (`SelectingAll`) | `decide` |

use super::{
    annotations,
    limits::{RECREATE, ROLLING_UPDATE},
    observed::Observed,
    recreate, rollback, rolling, scale,
    sync::{DeploymentSync, Finish},
};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::plan::{EventRecord, Plan};

/// Decides the actions of one reconciliation.
pub(crate) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    Plan::of(DeploymentSync::decide(observed, now).into_actions().0)
}

impl<'a> DeploymentSync<'a> {
    /// Decides all actions of a reconciliation.
    pub(crate) fn decide(observed: &'a Observed, now: Timestamp) -> Self {
        let mut sync = Self::begin(observed, now);
        let deployment = &*observed.deployment;
        let spec = &deployment.spec;
        if spec.selector.is_everything() {
            let text = "This deployment is selecting all pods. A non-empty selector is required.";
            sync.events.push(EventRecord::warning(sync.target.clone(), "SelectingAll", text));
            sync.finish = Finish::Observed;
        } else if spec.selector.error().is_some() {
            sync.finish = Finish::Nothing;
        } else if deployment.meta.deleting() {
            sync.update_new_set();
            sync.finish = Finish::Counts;
        } else {
            sync.check_paused_conditions();
            sync.update_new_set();
            sync.step();
        }
        sync
    }

    fn step(&mut self) {
        let deployment = &*self.observed.deployment;
        if deployment.spec.paused {
            scale::scale(self);
            if annotations::rollback_to(&deployment.meta.annotations).is_none() {
                self.cleanup_deployment();
            }
            self.finish = Finish::Counts;
        } else if let Some(revision) = annotations::rollback_to(&deployment.meta.annotations) {
            rollback::rollback(self, revision);
        } else if scale::is_scaling_event(self) {
            scale::scale(self);
            self.finish = Finish::Counts;
        } else {
            match &*deployment.spec.strategy.type_ {
                ROLLING_UPDATE => rolling::roll_out(self),
                RECREATE => recreate::roll_out(self),
                // The API server rejects other strategies.
                _ => self.finish = Finish::Nothing,
            }
        }
    }
}
