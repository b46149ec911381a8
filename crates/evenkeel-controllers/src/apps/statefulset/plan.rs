//! Pods and claims that a StatefulSet creates, updates and deletes. Upstream: `updateStatefulSet` in
//! `stateful_set_control.go`.
//!
//! With `OrderedReady`, a reconciliation makes one change. The first replica by ordinal that is not running and ready
//! blocks the later replicas. Once all replicas are available, the controller deletes condemned pods (pods beyond
//! `replicas`), starting with the last. With `Parallel`, replicas do not wait for each other. Afterwards, the rolling
//! update replaces pods of old revisions ([`super::rolling`]).
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `podManagementPolicy`: `OrderedReady` | `process_ordered`, `process_replica` |
//! | `podManagementPolicy`: `Parallel` | `process_parallel` |
//! | `replicas`, scaling down from the last | `identity::replicas`, `process_ordered` |
//! | `ordinals.start` | `identity::ordinals_start` |
//! | names, `serviceName` (`hostname`, `subdomain`), labels `statefulset.kubernetes.io/pod-name`, `apps.kubernetes.io/pod-index` | `identity::pod_json`, `identity::repair_patch` |
//! | `volumeClaimTemplates` | `create_claims`, `identity::claim_name` |
//! | `persistentVolumeClaimRetentionPolicy`: `whenDeleted`, `whenScaled` | `retention::assigned_owner` |
//! | `minReadySeconds` | `is_available` |
//! | Failed or Succeeded pods are deleted and recreated (`isFailed`, `isSucceeded`) | `process_replica` |
//! | `updateStrategy.type`: `RollingUpdate`, `OnDelete`, `Recreate` | `strategy::Strategy` |
//! | `rollingUpdate.partition` | `template_by_partition`, `rolling::roll_out` |
//! | `rollingUpdate.maxUnavailable` | `limits::max_unavailable`, `rolling::roll_out` |
//! | a broken rollout of an `OrderedReady` set (forced rollback) | `process_replica` |
//! | `revisionHistoryLimit` | `status::deletions_beyond_history_limit` |
//! | `status.currentRevision`, `status.updateRevision`, `status.collisionCount` | `observed::find_update_revision`, `status::new_status` |

use super::{
    identity, limits,
    observed::{Observed, UpdateRevision},
    recreate::{self, Progress},
    retention::PossibleOwners,
    rolling,
    strategy::Strategy,
};
use crate::{apps::revisions, pods, wire};
use evenkeel_api::{
    StrMap, View,
    template::{ClaimTemplate, Template},
    time::Timestamp,
    views::{PersistentVolumeClaim, Pod, StatefulSet},
};
use evenkeel_runtime::plan::{
    Action, BURST_LIMIT, Create, Delete, EventRecord, OnError, PatchType, Plan, Rewrite, Target,
};
use serde_json::json;
use std::sync::Arc;

/// Value of `podManagementPolicy` with which a pod waits until the earlier ones are available.
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

/// Effect of a replica on the rest of the reconciliation, from the weakest to the strongest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    /// Continue with the next replica.
    Continue,
    /// With `OrderedReady`, stop here. With `Parallel`, continue.
    Wait,
    /// A claim is missing or stale. With both policies, this reconciliation neither scales down nor updates.
    Blocked,
}

/// Reason why the owner references of a pod's claims are updated by the retention policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimUpdate {
    /// The pod is created or pending.
    Creation,
    /// The pod is updated. A successful update of a claim records the event `SuccessfulUpdate`.
    PodUpdate,
    /// The pod is condemned. A failed update of a claim records no event.
    Condemnation,
}

/// A pod beyond `spec.replicas`.
#[derive(Debug, Clone, Copy)]
struct CondemnedPod<'a> {
    ordinal: i32,
    pod: &'a Arc<Pod>,
}

/// A claim that a replica needs.
struct ReplicaClaim<'a> {
    template: &'a ClaimTemplate,
    name: String,
    existing: Option<&'a Arc<PersistentVolumeClaim>>,
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
    /// Pods beyond `spec.replicas`, in descending order of their ordinals. Upstream: `condemned`.
    condemned: Vec<CondemnedPod<'a>>,
    /// Actions decided so far.
    pub(crate) actions: Vec<Action>,
    /// Indexes of the rolling update's deletions in `actions`.
    pub(crate) old_pod_deletions: Vec<usize>,
    /// Creations of pods and claims, for events about failures.
    pub(crate) creations: Vec<Creation>,
    /// Progress of the strategy `Recreate`, while it applies.
    pub(crate) progress: Option<Progress>,
    /// Number of creations so far.
    n_created: u64,
}

/// The creation of a pod or claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Creation {
    /// Index of the action that creates the object.
    pub(crate) action_index: usize,
    /// The created object.
    pub(crate) object: Created,
}

/// An object that an action creates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Created {
    /// The pod with this name.
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
        // Adopt first. A later reconciliation changes or deletes the adopted objects.
        if observed.revisions.n_to_adopt + observed.pods.n_to_adopt > 0 {
            return sync;
        }
        sync.ensure_update_revision();
        if recreate::is_disabled(observed) {
            sync.actions.push(recreate::unknown_strategy_event(&sync).into());
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
        let start = identity::ordinals_start(set);
        let mut replicas: Vec<Replica<'_>> = (0..identity::replicas(set))
            .map(|position| Replica::Missing(start.saturating_add(position)))
            .collect();
        let mut condemned = Vec::new();
        for pod in &observed.pods.owned {
            // A pod without an ordinal is ignored.
            let Some(ordinal) = identity::ordinal(pod) else { continue };
            match identity::position(set, ordinal) {
                Some(position) => replicas[position] = Replica::Existing(pod),
                None => condemned.push(CondemnedPod { ordinal, pod }),
            }
        }
        condemned.sort_by(|a, b| {
            let from_last = b.ordinal.cmp(&a.ordinal);
            from_last.then_with(|| a.pod.meta.name.cmp(&b.pod.meta.name))
        });
        Self {
            observed,
            now,
            target: wire::target(set),
            replicas,
            condemned,
            actions: Vec::new(),
            old_pod_deletions: Vec::new(),
            creations: Vec::new(),
            progress: None,
            n_created: 0,
        }
    }

    /// Creates or renumbers the update revision. Pods are created from it later in the plan. Upstream:
    /// `getStatefulSetRevisions`.
    fn ensure_update_revision(&mut self) {
        let set = &*self.observed.set;
        match &self.observed.update_revision {
            UpdateRevision::Present(_) | UpdateRevision::Gone(_) => {}
            UpdateRevision::Renumbered { revision, number } => {
                self.actions
                    .push(revisions::rewrite(revision, &json!({ "revision": number })).into());
            }
            UpdateRevision::Created { draft, number } => {
                let labels = &set.spec.template.labels;
                let create =
                    draft.clone().create(&self.target, &set.meta, labels, HASH_LABEL, *number);
                self.n_created += 1;
                self.actions.push(create.into());
            }
        }
    }

    /// Processes the replicas up to the first that blocks the later ones, then the last condemned pod. Upstream:
    /// `runForAll` with `monotonic` on.
    fn process_ordered(&mut self) -> Next {
        for index in 0..self.replicas.len() {
            let next = self.process_replica(index);
            if next != Next::Continue {
                return next;
            }
        }
        self.update_condemned_claims();
        let Some(last) = self.condemned.first().map(|condemned| condemned.pod) else {
            return Next::Continue;
        };
        if self.may_delete_condemned(last) {
            self.delete(last);
        }
        Next::Wait
    }

    /// Returns whether the last condemned pod may be deleted. It must be available first, unless it is the first
    /// unavailable one. A terminal pod never becomes available, so it is deleted immediately. Upstream waits forever if two
    /// condemned pods are terminal. Upstream: `processCondemned`.
    fn may_delete_condemned(&self, last: &Arc<Pod>) -> bool {
        let mut from_first = self.condemned.iter().rev();
        let first_unavailable = from_first.find(|condemned| self.is_unavailable(condemned.pod));
        let is_first_unavailable =
            first_unavailable.is_some_and(|first| Arc::ptr_eq(first.pod, last));
        let is_available = is_running_and_ready(last) && self.is_available(last);
        !last.meta.deleting() && (is_available || is_first_unavailable || pods::is_terminal(last))
    }

    /// Updates the owner references of the claims of condemned pods.
    fn update_condemned_claims(&mut self) {
        for index in 0..self.condemned.len() {
            let CondemnedPod { ordinal, pod } = self.condemned[index];
            self.update_claim_retention(ordinal, Some(pod), ClaimUpdate::Condemnation);
        }
    }

    /// Processes all replicas without waiting. A blocked replica prevents scaling down and updates, but other replicas
    /// are still created. Like upstream, creates pods in batches by ordinal, and stops after a failed batch.
    ///
    /// Upstream: `runForAll` with `monotonic` off.
    fn process_parallel(&mut self) -> Next {
        let mut next = Next::Continue;
        let mut missing = Vec::new();
        for index in 0..self.replicas.len() {
            match self.replicas[index] {
                Replica::Missing(ordinal) => missing.push(ordinal),
                Replica::Existing(_) => next = next.max(self.process_replica(index)),
            }
        }
        missing.retain(|ordinal| !self.has_stale_claims(*ordinal));
        // Slow start: each batch is twice as large as the one before. The claims of a batch precede its pods, and a
        // failure ends the reconciliation early.
        let has_claims = !self.observed.set.spec.volume_claim_templates.is_empty();
        let mut batch_size = if has_claims { 1 } else { missing.len().max(1) };
        let mut remaining = &missing[..];
        while !remaining.is_empty() {
            let (batch, later) = remaining.split_at(batch_size.min(remaining.len()));
            next = next.max(self.create_batch(batch));
            remaining = later;
            batch_size *= 2;
        }
        self.update_condemned_claims();
        if next == Next::Blocked {
            return Next::Blocked;
        }
        for index in 0..self.condemned.len() {
            let pod = self.condemned[index].pod;
            if !pod.meta.deleting() {
                self.delete(pod);
            }
        }
        Next::Continue
    }

    /// Processes one replica. Creates it if it is missing, deletes it for recreation if it is Failed or Succeeded,
    /// and updates its identity. With `OrderedReady`, a replica that is terminating, not ready or not available blocks
    /// the replicas after it, and is not updated itself. Upstream: `processReplica`.
    ///
    /// Therefore, a rollout to a template whose pods never become ready stops here, even after the user reverts the
    /// template: the broken pod is neither ready nor terminal. As documented for upstream ("forced rollback"), the user
    /// must delete the pod. It is then recreated from the current template. A larger `maxUnavailable` does not help,
    /// but `Parallel` does.
    fn process_replica(&mut self, index: usize) -> Next {
        let pod = match self.replicas[index] {
            Replica::Existing(pod) => pod,
            Replica::Missing(ordinal) => {
                if !self.has_stale_claims(ordinal) {
                    self.create_batch(&[ordinal]);
                }
                return Next::Wait;
            }
        };
        let ordinal =
            identity::ordinals_start(&self.observed.set).saturating_add(wire::to_i32(index));
        if pods::is_terminal(pod) {
            // The pod is deleted now. A later reconciliation finds it missing and creates it again. An evicted pod may
            // be Succeeded instead of Failed, because its phase depends on the exit codes of its containers.
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
            self.update_claim_retention(ordinal, Some(pod), ClaimUpdate::Creation);
        }
        let blocks_later_replicas =
            pod.meta.deleting() || !is_running_and_ready(pod) || !self.is_available(pod);
        if self.observed.is_ordered() && blocks_later_replicas {
            return Next::Wait;
        }
        self.update_stateful_pod(ordinal, pod)
    }

    /// Returns whether an earlier pod of the same name owns a claim of the replica. The garbage collector deletes such
    /// a claim with that pod.
    fn has_stale_claims(&self, ordinal: i32) -> bool {
        let owners = PossibleOwners::new(&self.observed.set, ordinal, None);
        self.claims(ordinal)
            .filter_map(|claim| claim.existing)
            .any(|existing| owners.is_stale(existing))
    }

    /// Returns the claims that the replica needs.
    fn claims(&self, ordinal: i32) -> impl Iterator<Item = ReplicaClaim<'a>> + use<'a> {
        let observed = self.observed;
        observed.set.spec.volume_claim_templates.iter().map(move |template| {
            let name = identity::claim_name(&observed.set, &template.name, ordinal);
            let existing = observed.claims.get(&*name);
            ReplicaClaim { template, name, existing }
        })
    }

    /// Creates the claims and then the pods of these ordinals. Returns `Blocked` if a claim is terminating. Upstream:
    /// `slowStartBatch`, `CreateStatefulPod`.
    fn create_batch(&mut self, ordinals: &[i32]) -> Next {
        let mut next = Next::Continue;
        let mut with_claims = Vec::new();
        for ordinal in ordinals {
            match self.create_claims(*ordinal) {
                Next::Blocked => {
                    next = Next::Blocked;
                    self.record_claim_errors(*ordinal, PodOperation::Create);
                }
                Next::Continue | Next::Wait => with_claims.push(*ordinal),
            }
        }
        for (index, ordinal) in with_claims.into_iter().enumerate() {
            // The first pod waits for the claims of the batch. The other pods are created together with it.
            let waits_for_earlier_creates = index == 0;
            self.create_pod(ordinal, waits_for_earlier_creates);
            self.update_claim_retention(ordinal, None, ClaimUpdate::Creation);
        }
        next
    }

    /// Records an event about terminating claims that block a pod.
    fn record_claim_errors(&mut self, ordinal: i32, operation: PodOperation) {
        let terminating: Vec<String> = self
            .claims(ordinal)
            .filter(|claim| claim.existing.is_some_and(|existing| existing.meta.deleting()))
            .map(|claim| format!("pvc {} is being deleted", claim.name))
            .collect();
        let error = match &terminating[..] {
            [] => return,
            [error] => error.clone(),
            errors => format!("[{}]", errors.join(", ")),
        };
        let pod = identity::pod_name(&self.observed.set, ordinal);
        self.actions.push(failure_event(&self.target, operation, &pod, &error).into());
    }

    /// Creates missing claims. Returns `Blocked` if the burst limit is reached, or if a claim is terminating, because
    /// its successor has the same name. Upstream: `createPersistentVolumeClaims`.
    fn create_claims(&mut self, ordinal: i32) -> Next {
        let set = &*self.observed.set;
        let pod = identity::pod_name(set, ordinal);
        let mut next = Next::Continue;
        for ReplicaClaim { template, name, existing } in self.claims(ordinal) {
            match existing {
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

    /// Plans the creation of the pod with this ordinal, unless the plan already creates the maximum number of objects.
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
            done: Some(success_event(&self.target, PodOperation::Create, &name)),
            ..Create::new(Pod::kind(), &set.meta.namespace, body)
        };
        self.create(create, Created::Pod(name));
    }

    /// Adds a creation, and records which object it creates.
    fn create(&mut self, create: Create, object: Created) {
        self.n_created += 1;
        self.creations.push(Creation { action_index: self.actions.len(), object });
        self.actions.push(Create { on_error: OnError::SkipRest, ..create }.into());
    }

    /// Returns the template and the revision name for a replica. Replicas below `partition` keep the current revision.
    /// Upstream: `newVersionedStatefulSetPod`.
    pub(crate) fn template_by_partition(&self, ordinal: i32) -> (&'a Template, &'a str) {
        let observed = self.observed;
        let set = &*observed.set;
        let position = i64::from(ordinal) - i64::from(identity::ordinals_start(set));
        let keeps_current_revision = match set.spec.update_strategy.rolling_update.as_deref() {
            Some(rolling) => position < i64::from(rolling.partition.unwrap_or(0)),
            None => {
                Strategy::of(set) == Strategy::RollingUpdate
                    && position < i64::from(set.status.current_replicas)
            }
        };
        if keeps_current_revision
            && let Some(current) = observed.current_revision()
            && let Some(template) = &current.data.0
        {
            return (template, &current.meta.name);
        }
        (&set.spec.template, observed.update_revision.name())
    }

    /// Sets the owner references of a replica's claims by the retention policy. A reconciliation writes each claim at
    /// most once. Upstream: `UpdatePodClaimForRetentionPolicy` and its callers.
    fn update_claim_retention(&mut self, ordinal: i32, pod: Option<&Pod>, update: ClaimUpdate) {
        let is_pod_updated = update == ClaimUpdate::PodUpdate;
        let set = &*self.observed.set;
        let owners = PossibleOwners::new(set, ordinal, pod);
        let pod_name = identity::pod_name(set, ordinal);
        let mut changes: Vec<Rewrite> = Vec::new();
        for ReplicaClaim { name: claim_name, existing, .. } in self.claims(ordinal) {
            let Some(claim) = existing else { continue };
            let corrected = owners.corrected_references(claim);
            if owners.has_conflict(claim) && (!is_pod_updated || corrected.is_some()) {
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
                let failed = match update {
                    ClaimUpdate::Condemnation => None,
                    ClaimUpdate::Creation | ClaimUpdate::PodUpdate => {
                        Some(failure_event(&self.target, PodOperation::Update, &pod_name, &error))
                    }
                };
                changes.push(Rewrite {
                    failed,
                    on_error: OnError::SkipRest,
                    ..Rewrite::new(
                        target,
                        &claim.meta.resource_version,
                        PatchType::Merge,
                        wire::owners_patch(&corrected),
                    )
                });
            }
        }
        if is_pod_updated && let Some(last) = changes.last_mut() {
            last.done = Some(success_event(&self.target, PodOperation::Update, &pod_name));
        }
        self.actions.extend(changes.into_iter().map(Action::Rewrite));
    }

    /// Restores the labels and volumes of a replica's identity. Upstream: `UpdateStatefulPod`.
    fn update_stateful_pod(&mut self, ordinal: i32, pod: &Pod) -> Next {
        let changes = identity::repair_patch(&self.observed.set, pod, ordinal);
        let adds_volume = changes.iter().any(|change| change["path"] == identity::ADD_VOLUME_PATH);
        if adds_volume && self.create_claims(ordinal) == Next::Blocked {
            self.record_claim_errors(ordinal, PodOperation::Update);
            return Next::Blocked;
        }
        self.update_claim_retention(ordinal, Some(pod), ClaimUpdate::PodUpdate);
        if changes.is_empty() {
            return Next::Continue;
        }
        let name = &pod.meta.name;
        self.actions.push(Action::Rewrite(Rewrite {
            done: Some(success_event(&self.target, PodOperation::Update, name)),
            failed: Some(failure_event(&self.target, PodOperation::Update, name, "{error}")),
            retries_on_conflict: true,
            on_error: OnError::SkipRest,
            ..Rewrite::new(
                wire::target(pod),
                &pod.meta.resource_version,
                PatchType::Json,
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
            done: Some(success_event(&self.target, PodOperation::Delete, name)),
            failed: Some(failure_event(&self.target, PodOperation::Delete, name, "{error}")),
            on_error: OnError::SkipRest,
            ..Delete::new(target)
        }));
    }

    /// Returns whether the pod has been ready for `minReadySeconds`.
    pub(crate) fn is_available(&self, pod: &Pod) -> bool {
        pods::is_available(pod, self.observed.set.spec.min_ready_seconds, self.now)
    }

    /// Returns whether the pod is not available, or is terminating. Upstream: `isUnavailable`.
    pub(crate) fn is_unavailable(&self, pod: &Pod) -> bool {
        !self.is_available(pod) || pod.meta.deleting()
    }

    /// Returns the number of unavailable replicas.
    pub(crate) fn n_unavailable(&self) -> i32 {
        let unavailable = self.replicas.iter().filter(|replica| match replica {
            Replica::Existing(pod) => self.is_unavailable(pod),
            Replica::Missing(_) => true,
        });
        wire::to_i32(unavailable.count())
    }

    /// Returns `maxUnavailable`, or 1 if the feature gate is off.
    pub(crate) fn max_unavailable(&self) -> i32 {
        if self.observed.features.max_unavailable {
            limits::max_unavailable(&self.observed.set)
        } else {
            1
        }
    }
}

/// Returns whether the pod is running and ready. Upstream: `isRunningAndReady`.
pub(crate) fn is_running_and_ready(pod: &Pod) -> bool {
    &*pod.status.phase == "Running" && pods::is_ready(pod)
}

/// Returns the selector's `matchLabels`, which are copied to claims.
fn match_labels(set: &StatefulSet) -> StrMap {
    set.spec.selector.match_labels().collect()
}

/// Operation on a pod that the reasons and messages of events name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodOperation {
    Create,
    Update,
    Delete,
}

impl PodOperation {
    /// Returns the verb in the messages of events.
    fn verb(self) -> &'static str {
        match self {
            Self::Create => "Create",
            Self::Update => "Update",
            Self::Delete => "Delete",
        }
    }
}

/// Returns the event of a successful operation on a pod. Upstream: `recordPodEvent`.
fn success_event(target: &Target, operation: PodOperation, pod: &str) -> EventRecord {
    let verb = operation.verb();
    let text = format!("{verb} Pod {pod} in StatefulSet {} successful", target.name);
    let reason = match operation {
        PodOperation::Create => "SuccessfulCreate",
        PodOperation::Update => "SuccessfulUpdate",
        PodOperation::Delete => "SuccessfulDelete",
    };
    EventRecord::normal(target.clone(), reason, text)
}

/// Returns the event of a failed operation on a pod. Upstream: `recordPodEvent`.
pub(crate) fn failure_event(
    target: &Target,
    operation: PodOperation,
    pod: &str,
    error: &str,
) -> EventRecord {
    let verb = operation.verb();
    let text = format!("{verb} Pod {pod} in StatefulSet {} failed error: {error}", target.name);
    let reason = match operation {
        PodOperation::Create => "FailedCreate",
        PodOperation::Update => "FailedUpdate",
        PodOperation::Delete => "FailedDelete",
    };
    EventRecord::warning(target.clone(), reason, text)
}
