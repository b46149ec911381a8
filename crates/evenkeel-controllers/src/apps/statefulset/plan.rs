//! Pods and claims that a StatefulSet creates, updates and deletes. Upstream: `updateStatefulSet` in
//! `stateful_set_control.go`.
//!
//! With `OrderedReady`, a reconciliation makes one change. The first replica, by ordinal, that is not running and
//! ready
//! blocks the later ones. Condemned pods are deleted from the last, once all replicas are available. With `Parallel`,
//! replicas do not wait for each other. Then the rolling update replaces pods of old revisions ([`super::rolling`]).
//!
//! | documented | where |
//! |---|---|
//! | `podManagementPolicy`: `OrderedReady` | `process_ordered`, `process_replica` |
//! | `podManagementPolicy`: `Parallel` | `process_parallel` |
//! | `replicas`, scaling down from the last | `identity::replicas`, `process_ordered` |
//! | `ordinals.start` | `identity::ordinals_start` |
//! | names, `serviceName` (`hostname`, `subdomain`), labels `statefulset.kubernetes.io/pod-name`, `apps.kubernetes.io/pod-index` | `identity::pod_json`, `identity::repair` |
//! | `volumeClaimTemplates` | `create_claims`, `identity::claim_name` |
//! | `persistentVolumeClaimRetentionPolicy`: `whenDeleted`, `whenScaled` | `retention::owner` |
//! | `minReadySeconds` | `is_available` |
//! | Failed or Succeeded pods are deleted and recreated (`isFailed`, `isSucceeded`) | `process_replica` |
//! | `updateStrategy.type`: `RollingUpdate`, `OnDelete`, `Recreate` | `strategy::Strategy` |
//! | `rollingUpdate.partition` | `template_by_partition`, `rolling::roll_out` |
//! | `rollingUpdate.maxUnavailable` | `limits::max_unavailable`, `rolling::roll_out` |
//! | a broken rollout of an `OrderedReady` set (forced rollback) | `process_replica` |
//! | `revisionHistoryLimit` | `status::beyond_history_limit` |
//! | `status.currentRevision`, `status.updateRevision`, `status.collisionCount` | `observed::update`, `status::counted` |

use super::{
    identity, limits,
    observed::{Observed, Update},
    recreate::{self, Progress},
    retention::Owners,
    rolling,
    strategy::Strategy,
};
use crate::{
    apps::revisions,
    pods::{self, revision_of},
    wire,
};
use evenkeel_api::{
    View,
    template::{ClaimTemplate, Template},
    time::Timestamp,
    views::{PersistentVolumeClaim, Pod, StatefulSet},
};
use evenkeel_runtime::plan::{
    Action, BURST_LIMIT, Create, Delete, EventRecord, OnError, PatchForm, Plan, Rewrite, Target,
};
use serde_json::json;
use std::sync::Arc;

/// Value of `podManagementPolicy` with which pods wait for each other.
pub(crate) const ORDERED_READY: &str = "OrderedReady";
/// Label of a revision with its hash. Upstream: `ControllerRevisionHashLabel`.
const HASH_LABEL: &str = "controller.kubernetes.io/hash";

/// Decides the actions of one reconciliation.
pub(crate) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    Plan::of(StatefulSetSync::decide(observed, now).actions)
}

/// A replica that the set should have.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Replica<'a> {
    /// The replica's pod exists.
    Existing(&'a Arc<Pod>),
    /// No pod with this ordinal exists.
    Missing(i32),
}

/// Effect of a replica on the rest of the reconciliation, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    /// Continue with the next replica.
    Continue,
    /// With `OrderedReady`, stop here; with `Parallel`, continue.
    Wait,
    /// A claim is missing or stale: with either policy, neither scale down nor update in this reconciliation.
    Blocked,
}

/// Occasion for updating the owner references of claims by the retention policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimUpdate {
    /// Their pod is created or pending.
    Created,
    /// Their pod is updated; success records the pod's `SuccessfulUpdate`.
    Updated,
    /// Their pod is condemned: a failure records no event.
    Condemned,
}

/// State of one reconciliation.
pub(crate) struct StatefulSetSync<'a> {
    /// The observed state.
    pub(crate) observed: &'a Observed,
    /// The current time.
    pub(crate) now: Timestamp,
    /// The StatefulSet, as the object of events and owner references.
    pub(crate) target: Target,
    /// Replicas by ordinal. Upstream: `replicas`.
    pub(crate) replicas: Vec<Replica<'a>>,
    /// Pods beyond `spec.replicas`, the last ordinal first. Upstream: `condemned`.
    condemned: Vec<(i32, &'a Arc<Pod>)>,
    /// Actions decided so far.
    pub(crate) actions: Vec<Action>,
    /// Indexes of the actions that delete pods of old revisions.
    pub(crate) replaced: Vec<usize>,
    /// Indexes of the creations, with the created object, for events about failures.
    pub(crate) created: Vec<(usize, Created)>,
    /// Progress of the strategy `Recreate`, while it applies.
    pub(crate) progress: Option<Progress>,
    /// Number of creations so far.
    n_created: u64,
}

/// An object that an action creates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Created {
    /// The pod of this name.
    Pod(String),
    /// A claim, and the pod that needs it.
    Claim { claim: String, pod: String },
}

impl<'a> StatefulSetSync<'a> {
    /// Decides all actions of a reconciliation.
    pub(crate) fn decide(observed: &'a Observed, now: Timestamp) -> Self {
        let mut sync = Self::begin(observed, now);
        if observed.set.spec.selector.error().is_some() {
            return sync;
        }
        sync.actions.extend(observed.revisions.actions(&sync.target));
        sync.actions.extend(observed.pods.actions(&sync.target));
        // Adopt first; a later reconciliation changes or deletes the adopted objects.
        if observed.revisions.n_to_adopt + observed.pods.n_to_adopt > 0 {
            return sync;
        }
        sync.ensure_update_revision();
        if recreate::is_disabled(observed) {
            sync.actions.push(recreate::unknown(&sync).into());
            return sync;
        }
        if observed.set.meta.deleting() {
            return sync;
        }
        let strategy = Strategy::of(&observed.set);
        if strategy == Strategy::Recreate && recreate::delete_old_pods(&mut sync) {
            return sync;
        }
        let next =
            if observed.is_ordered() { sync.process_ordered() } else { sync.process_parallel() };
        match strategy {
            Strategy::RollingUpdate if next == Next::Continue => rolling::roll_out(&mut sync),
            Strategy::RollingUpdate | Strategy::OnDelete | Strategy::Recreate => {}
        }
        sync
    }

    /// Returns the state before any decision, with the pods sorted into replicas and condemned pods.
    pub(crate) fn begin(observed: &'a Observed, now: Timestamp) -> Self {
        let set = &*observed.set;
        let mut replicas: Vec<Replica<'_>> = (0..identity::replicas(set))
            .map(|n| Replica::Missing(identity::ordinals_start(set).saturating_add(n)))
            .collect();
        let mut condemned = Vec::new();
        for pod in &observed.pods.owned {
            // A pod without an ordinal is ignored.
            let Some(ordinal) = identity::ordinal(pod) else { continue };
            match identity::position(set, ordinal) {
                Some(position) => replicas[position] = Replica::Existing(pod),
                None => condemned.push((ordinal, pod)),
            }
        }
        condemned.sort_by(|(a, x), (b, y)| b.cmp(a).then_with(|| x.meta.name.cmp(&y.meta.name)));
        Self {
            observed,
            now,
            target: wire::target(set),
            replicas,
            condemned,
            actions: Vec::new(),
            replaced: Vec::new(),
            created: Vec::new(),
            progress: None,
            n_created: 0,
        }
    }

    /// Creates or renumbers the update revision, before pods are created from it. Upstream: `getStatefulSetRevisions`.
    fn ensure_update_revision(&mut self) {
        let set = &*self.observed.set;
        match &self.observed.update {
            Update::Present(_) | Update::Gone(_) => {}
            Update::Renumbered(revision, number) => {
                self.actions
                    .push(revisions::change(revision, &json!({ "revision": number })).into());
            }
            Update::Created(draft, number) => {
                let labels = &set.spec.template.labels;
                let create =
                    draft.clone().create(&self.target, &set.meta, labels, HASH_LABEL, *number);
                self.n_created += 1;
                self.actions.push(create.into());
            }
        }
    }

    fn process_ordered(&mut self) -> Next {
        for index in 0..self.replicas.len() {
            let next = self.process_replica(index);
            if next != Next::Continue {
                return next;
            }
        }
        for index in 0..self.condemned.len() {
            let (ordinal, pod) = self.condemned[index];
            self.update_claim_retention(ordinal, Some(pod), ClaimUpdate::Condemned);
        }
        // All replicas are available, and condemned pods are deleted one at a time. Each must be available first,
        // unless it is the first unavailable one. A terminal pod never becomes available and is deleted too (upstream
        // waits for ever if two are terminal). Upstream: `processCondemned`.
        let Some(&(_, last)) = self.condemned.first() else { return Next::Continue };
        let first_unavailable =
            self.condemned.iter().rev().find(|(_, pod)| self.is_unavailable(pod));
        let is_first = first_unavailable.is_some_and(|(_, pod)| Arc::ptr_eq(pod, last));
        if !last.meta.deleting()
            && ((is_running_and_ready(last) && self.is_available(last))
                || is_first
                || pods::is_terminal(last))
        {
            self.delete(last);
        }
        Next::Wait
    }

    /// Processes all replicas without waiting. A blocked replica prevents scaling down and updates, but other
    /// replicas
    /// are still created. Upstream creates in batches by ordinal, and no later batch after a failure.
    ///
    /// Upstream: `runForAll` with `monotonic` off.
    fn process_parallel(&mut self) -> Next {
        let (mut missing, mut next) = (Vec::new(), Next::Continue);
        for index in 0..self.replicas.len() {
            match self.replicas[index] {
                Replica::Missing(ordinal) => missing.push(ordinal),
                Replica::Existing(_) => next = next.max(self.process_replica(index)),
            }
        }
        missing.retain(|ordinal| !self.has_stale_claims(*ordinal));
        // Slow-start batches: the claims of a batch precede its pods, and a failure ends the reconciliation early.
        let mut size = if self.observed.set.spec.volume_claim_templates.is_empty() {
            missing.len().max(1)
        } else {
            1
        };
        let mut rest = &missing[..];
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(size.min(rest.len()));
            next = next.max(self.create_batch(batch));
            rest = later;
            size *= 2;
        }
        for index in 0..self.condemned.len() {
            let (ordinal, pod) = self.condemned[index];
            self.update_claim_retention(ordinal, Some(pod), ClaimUpdate::Condemned);
        }
        if next == Next::Blocked {
            return Next::Blocked;
        }
        for index in 0..self.condemned.len() {
            let (_, pod) = self.condemned[index];
            if !pod.meta.deleting() {
                self.delete(pod);
            }
        }
        Next::Continue
    }

    /// Processes one replica. Creates it if it is missing, deletes it for recreation if it is Failed or Succeeded,
    /// and
    /// updates its identity. Upstream: `processReplica`.
    ///
    /// With `OrderedReady`, a rollout to a template whose pods never become ready stops here, even after the template
    /// is reverted. The broken pod is neither ready nor terminal and blocks all replicas, itself included. As
    /// documented for upstream ("forced rollback"), the user deletes the pod, which is then recreated from the current
    /// template. `maxUnavailable` does not help; `Parallel` does.
    fn process_replica(&mut self, index: usize) -> Next {
        let ordered = self.observed.is_ordered();
        let pod = match self.replicas[index] {
            Replica::Existing(pod) => pod,
            Replica::Missing(ordinal) => {
                if !self.has_stale_claims(ordinal) {
                    self.create_batch(&[ordinal]);
                }
                return Next::Wait;
            }
        };
        let ordinal = identity::ordinals_start(&self.observed.set)
            .saturating_add(i32::try_from(index).unwrap_or(i32::MAX));
        if pods::is_terminal(pod) {
            // Succeeded counts too: the phase of an evicted pod depends on its containers' exit codes. A later reconciliation
            // creates the replacement.
            if !pod.meta.deleting() {
                self.delete(pod);
            }
            return Next::Wait;
        }
        if &*pod.status.phase == "Pending" {
            // A claim may have been deleted before the pod used it.
            if self.create_claims(ordinal) == Next::Blocked {
                return Next::Blocked;
            }
            self.update_claim_retention(ordinal, Some(pod), ClaimUpdate::Created);
        }
        let blocks_later_replicas =
            pod.meta.deleting() || !is_running_and_ready(pod) || !self.is_available(pod);
        if ordered && blocks_later_replicas {
            return Next::Wait;
        }
        self.update_stateful_pod(ordinal, pod)
    }

    /// Whether an earlier pod of the same name owns a claim of the replica. The garbage collector deletes such a
    /// claim with that pod.
    fn has_stale_claims(&self, ordinal: i32) -> bool {
        let owners = Owners::new(&self.observed.set, ordinal, None);
        self.claims(ordinal).any(|(_, _, claim)| claim.is_some_and(|claim| owners.is_stale(claim)))
    }

    /// Returns the replica's claims: template, name, and the existing object.
    fn claims(
        &self,
        ordinal: i32,
    ) -> impl Iterator<Item = (&'a ClaimTemplate, String, Option<&'a Arc<PersistentVolumeClaim>>)>
    + use<'a> {
        let observed = self.observed;
        observed.set.spec.volume_claim_templates.iter().map(move |template| {
            let name = identity::claim_name(&observed.set, &template.name, ordinal);
            let claim = observed.volumes.get(&*name);
            (template, name, claim)
        })
    }

    /// Creates claims, then pods. Returns `Blocked` if a pod's claim is terminating. Upstream:
    /// `slowStartBatch`, `CreateStatefulPod`.
    fn create_batch(&mut self, ordinals: &[i32]) -> Next {
        let mut next = Next::Continue;
        let mut ready = Vec::new();
        for ordinal in ordinals {
            match self.create_claims(*ordinal) {
                Next::Blocked => {
                    next = Next::Blocked;
                    self.record_claim_errors(*ordinal, "Create");
                }
                Next::Continue | Next::Wait => ready.push(*ordinal),
            }
        }
        for (index, ordinal) in ready.into_iter().enumerate() {
            self.create_pod(ordinal, index == 0);
            self.update_claim_retention(ordinal, None, ClaimUpdate::Created);
        }
        next
    }

    /// Records an event about terminating claims that block a pod.
    fn record_claim_errors(&mut self, ordinal: i32, verb: &str) {
        let terminating: Vec<String> = self
            .claims(ordinal)
            .filter(|(_, _, claim)| claim.is_some_and(|claim| claim.meta.deleting()))
            .map(|(_, name, _)| format!("pvc {name} is being deleted"))
            .collect();
        let error = match &terminating[..] {
            [] => return,
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let pod = identity::pod_name(&self.observed.set, ordinal);
        self.actions.push(failed(&self.target, verb, &pod, &error).into());
    }

    /// Creates missing claims. Returns `Blocked` if one is terminating, because its successor needs the name,
    /// or if the burst limit is reached. Upstream: `createPersistentVolumeClaims`.
    fn create_claims(&mut self, ordinal: i32) -> Next {
        let set = &*self.observed.set;
        let pod = identity::pod_name(set, ordinal);
        let mut next = Next::Continue;
        for (template, name, present) in self.claims(ordinal) {
            match present {
                Some(claim) if claim.meta.deleting() => next = Next::Blocked,
                Some(_) => {}
                None if self.n_created < BURST_LIMIT => {
                    let body = template.claim_json(&name, &set.meta.namespace, &match_labels(set));
                    let text = format!(
                        "Create Claim {name} Pod {pod} in StatefulSet {} success",
                        set.meta.name
                    );
                    let done = EventRecord::normal(self.target.clone(), "SuccessfulCreate", text);
                    self.create(
                        Create {
                            done: Some(done),
                            ..Create::new(PersistentVolumeClaim::kind(), &set.meta.namespace, body)
                        },
                        Created::Claim { claim: name, pod: pod.clone() },
                    );
                }
                None => next = Next::Blocked,
            }
        }
        next
    }

    fn create_pod(&mut self, ordinal: i32, waits_for_earlier_creates: bool) {
        if self.n_created >= BURST_LIMIT {
            return;
        }
        let set = &*self.observed.set;
        let (template, revision) = self.template_by_partition(ordinal);
        let owner = wire::controller_reference(&self.target);
        let body = identity::pod_json(set, template, revision, ordinal, &owner);
        let name = identity::pod_name(set, ordinal);
        let create = Create {
            waits_for_earlier_creates,
            done: Some(done(&self.target, "Create", &name)),
            ..Create::new(Pod::kind(), &set.meta.namespace, body)
        };
        self.create(create, Created::Pod(name));
    }

    fn create(&mut self, create: Create, created: Created) {
        self.n_created += 1;
        self.created.push((self.actions.len(), created));
        self.actions.push(Create { on_error: OnError::SkipRest, ..create }.into());
    }

    /// Returns the template and the revision for a replica: replicas below `partition` keep the current revision.
    /// Upstream: `newVersionedStatefulSetPod`.
    pub(crate) fn template_by_partition(&self, ordinal: i32) -> (&'a Template, &'a str) {
        let observed = self.observed;
        let set = &*observed.set;
        let position = i64::from(ordinal) - i64::from(identity::ordinals_start(set));
        let keeps_old = match set.spec.update_strategy.rolling_update.as_deref() {
            Some(rolling) => position < i64::from(rolling.partition.unwrap_or(0)),
            None => {
                Strategy::of(set) == Strategy::RollingUpdate
                    && position < i64::from(set.status.current_replicas)
            }
        };
        match observed.current().filter(|_| keeps_old) {
            Some(current) => match &current.data.0 {
                Some(template) => (template, &current.meta.name),
                None => (&set.spec.template, observed.update.name()),
            },
            None => (&set.spec.template, observed.update.name()),
        }
    }

    /// Sets the claims' owner references by the retention policy, each once in a sync. With `Updated`,
    /// success is recorded as the pod's update. Upstream: `UpdatePodClaimForRetentionPolicy` and its callers.
    fn update_claim_retention(&mut self, ordinal: i32, pod: Option<&Pod>, when: ClaimUpdate) {
        let updating = when == ClaimUpdate::Updated;
        let set = &*self.observed.set;
        let owners = Owners::new(set, ordinal, pod);
        let name = identity::pod_name(set, ordinal);
        let mut changes: Vec<Rewrite> = Vec::new();
        for (_, claim_name, claim) in self.claims(ordinal) {
            let Some(claim) = claim else { continue };
            let corrected = owners.corrected(claim);
            if owners.conflict(claim) && (!updating || corrected.is_some()) {
                let text = format!(
                    "PersistentVolumeClaim {claim_name} has a conflicting OwnerReference that acts as a manging controller, the retention policy is ignored for this claim"
                );
                let event =
                    EventRecord::warning(self.target.clone(), "ConflictingController", text);
                self.actions.push(event.into());
            }
            let target = wire::target(&**claim);
            let is_repeated = |action: &Action| matches!(action, Action::Rewrite(change) if change.target == target);
            // A second write with the observed resource version would only conflict.
            if self.actions.iter().any(is_repeated) {
                continue;
            }
            if let Some(corrected) = corrected {
                let error = format!(
                    "could not update claim {claim_name} for delete policy ownerRefs: {{error}}"
                );
                let failed = failed(&self.target, "Update", &name, &error);
                changes.push(Rewrite {
                    failed: Some(failed).filter(|_| when != ClaimUpdate::Condemned),
                    on_error: OnError::SkipRest,
                    ..Rewrite::new(
                        target,
                        &claim.meta.resource_version,
                        PatchForm::Merge,
                        wire::owners_patch(&corrected),
                    )
                });
            }
        }
        if let Some(last) = changes.last_mut().filter(|_| updating) {
            last.done = Some(done(&self.target, "Update", &name));
        }
        self.actions.extend(changes.into_iter().map(Action::Rewrite));
    }

    /// Restores the labels and volumes of a replica's identity. Upstream: `UpdateStatefulPod`.
    fn update_stateful_pod(&mut self, ordinal: i32, pod: &Pod) -> Next {
        let changes = identity::repair(&self.observed.set, pod, ordinal);
        if changes.iter().any(|change| change["path"] == "/spec/volumes/-")
            && self.create_claims(ordinal) == Next::Blocked
        {
            self.record_claim_errors(ordinal, "Update");
            return Next::Blocked;
        }
        self.update_claim_retention(ordinal, Some(pod), ClaimUpdate::Updated);
        if changes.is_empty() {
            return Next::Continue;
        }
        let name = &pod.meta.name;
        self.actions.push(Action::Rewrite(Rewrite {
            done: Some(done(&self.target, "Update", name)),
            failed: Some(failed(&self.target, "Update", name, "{error}")),
            // Upstream: `UpdateStatefulPod`.
            retries_on_conflict: true,
            on_error: OnError::SkipRest,
            ..Rewrite::new(
                wire::target(pod),
                &pod.meta.resource_version,
                PatchForm::Json,
                wire::json(&changes),
            )
        }));
        Next::Continue
    }

    /// Deletes a pod, at most once in a reconciliation.
    pub(crate) fn delete(&mut self, pod: &Pod) {
        let target = wire::target(pod);
        let is_repeated =
            |action: &Action| matches!(action, Action::Delete(delete) if delete.target == target);
        if self.actions.iter().any(is_repeated) {
            return;
        }
        let name = &pod.meta.name;
        self.actions.push(Action::Delete(Delete {
            done: Some(done(&self.target, "Delete", name)),
            failed: Some(failed(&self.target, "Delete", name, "{error}")),
            on_error: OnError::SkipRest,
            ..Delete::new(target)
        }));
    }

    /// Returns the revision of a replica's pod, or of the pod to create.
    pub(crate) fn revision(&self, replica: Replica<'a>) -> &'a str {
        match replica {
            Replica::Existing(pod) => revision_of(pod),
            Replica::Missing(ordinal) => self.template_by_partition(ordinal).1,
        }
    }

    /// Whether the pod has been ready for `minReadySeconds`.
    pub(crate) fn is_available(&self, pod: &Pod) -> bool {
        pods::is_available(pod, self.observed.set.spec.min_ready_seconds, self.now)
    }

    /// Whether the pod is not available, or is terminating. Upstream: `isUnavailable`.
    pub(crate) fn is_unavailable(&self, pod: &Pod) -> bool {
        !self.is_available(pod) || pod.meta.deleting()
    }

    /// Returns the number of unavailable replicas.
    pub(crate) fn n_unavailable(&self) -> i32 {
        let unavailable = self.replicas.iter().filter(|replica| match replica {
            Replica::Existing(pod) => self.is_unavailable(pod),
            Replica::Missing(_) => true,
        });
        i32::try_from(unavailable.count()).unwrap_or(i32::MAX)
    }

    /// Returns `maxUnavailable`; 1 if its gate is off.
    pub(crate) fn max_unavailable(&self) -> i32 {
        if self.observed.features.max_unavailable {
            limits::max_unavailable(&self.observed.set)
        } else {
            1
        }
    }
}

/// Whether the pod is running and ready. Upstream: `isRunningAndReady`.
pub(crate) fn is_running_and_ready(pod: &Pod) -> bool {
    &*pod.status.phase == "Running" && pods::is_ready(pod)
}

/// Returns the selector's `matchLabels`, which are copied to claims.
fn match_labels(set: &StatefulSet) -> evenkeel_api::StrMap {
    set.spec.selector.match_labels().collect()
}

fn done(target: &Target, verb: &str, pod: &str) -> EventRecord {
    let text = format!("{verb} Pod {pod} in StatefulSet {} successful", target.name);
    let reason = match verb {
        "Create" => "SuccessfulCreate",
        "Delete" => "SuccessfulDelete",
        _ => "SuccessfulUpdate",
    };
    EventRecord::normal(target.clone(), reason, text)
}

/// Returns the event of a failed operation on a pod. Upstream: `recordPodEvent`.
pub(crate) fn failed(target: &Target, verb: &str, pod: &str, error: &str) -> EventRecord {
    let text = format!("{verb} Pod {pod} in StatefulSet {} failed error: {error}", target.name);
    let reason = match verb {
        "Create" => "FailedCreate",
        "Delete" => "FailedDelete",
        _ => "FailedUpdate",
    };
    EventRecord::warning(target.clone(), reason, text)
}
