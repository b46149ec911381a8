//! Reconciliation of a Deployment: one step of a rollout, of scaling, or of a rollback. Upstream: `syncDeployment`.
//!
//! A reconciliation either scales the new set up, scales old sets down, or cleans up, like upstream's. The plan models
//! its own changes, so that later decisions and the status follow from them.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `replicas`, proportional scaling | `scale::is_scaling_event`, `scale::scale` |
//! | `strategy.type`: `RollingUpdate` | `rolling::roll_out` |
//! | `strategy.type`: `Recreate` | `recreate::roll_out` |
//! | `rollingUpdate.maxSurge`, `rollingUpdate.maxUnavailable` | `limits::RolloutLimits`, `new_set::new_set_replicas` |
//! | `paused` | `take_step`, `new_set::check_paused_conditions` |
//! | `revisionHistoryLimit` | `sync::cleanup_deployment` |
//! | `progressDeadlineSeconds`, condition `Progressing` | `status::set_progressing_condition`, `status::deadline` |
//! | `minReadySeconds`, which the ReplicaSets apply | `new_set::update_new_set` |
//! | condition `Available` | `status::calculate_status` |
//! | condition `ReplicaFailure` | `status::replica_failure` |
//! | rollback: annotation `deprecated.deployment.rollback.to` | `rollback::rollback` |
//! | annotation `deployment.kubernetes.io/revision` | `annotations::for_new_set` |
//! | label `pod-template-hash`, `status.collisionCount` | `observed::template_hash`, `status::handle_failed_creation` |
//! | an empty `selector` (`SelectingAll`) | `decide` |

use super::{
    annotations,
    limits::{RECREATE, ROLLING_UPDATE},
    observed::Observed,
    recreate, rollback, rolling, scale,
    sync::{DeploymentSync, StatusPart},
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
            sync.status_part = StatusPart::ObservedGeneration;
        } else if spec.selector.error().is_some() {
            sync.status_part = StatusPart::Nothing;
        } else if deployment.meta.deleting() {
            sync.update_new_set();
            sync.status_part = StatusPart::Counts;
        } else {
            sync.check_paused_conditions();
            sync.update_new_set();
            sync.take_step();
        }
        sync
    }

    /// Scales, rolls back, or advances the rollout.
    fn take_step(&mut self) {
        let deployment = &*self.observed.deployment;
        if deployment.spec.paused {
            scale::scale(self);
            if annotations::rollback_to(&deployment.meta.annotations).is_none() {
                self.cleanup_deployment();
            }
            self.status_part = StatusPart::Counts;
        } else if let Some(revision) = annotations::rollback_to(&deployment.meta.annotations) {
            rollback::rollback(self, revision);
        } else if scale::is_scaling_event(self) {
            scale::scale(self);
            self.status_part = StatusPart::Counts;
        } else {
            match &*deployment.spec.strategy.type_ {
                ROLLING_UPDATE => rolling::roll_out(self),
                RECREATE => recreate::roll_out(self),
                // The API server rejects other strategies.
                _ => self.status_part = StatusPart::Nothing,
            }
        }
    }
}
