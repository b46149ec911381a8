//! Which pods and claims a set makes, mends and deletes, one after another or all at once.
//!
//! With `OrderedReady` a pass makes one change: the first pod, by number, that is not as it should be holds up those after
//! it; those beyond the set's size go from the last, and only when all others are available. With `Parallel` all are
//! seen to at once. When that is done, pods of old revisions give way to new ones ([`super::rolling`]).
//!
//! | documented | where |
//! |---|---|
//! | `podManagementPolicy`: `OrderedReady` | `in_order`, `see_to` |
//! | `podManagementPolicy`: `Parallel` | `all_at_once` |
//! | `replicas`, scaling down from the last | `identity::replicas`, `in_order` |
//! | `ordinals.start` | `identity::ordinals_start` |
//! | names, `serviceName` (`hostname`, `subdomain`), labels `statefulset.kubernetes.io/pod-name`, `apps.kubernetes.io/pod-index` | `identity::pod_json`, `identity::repair` |
//! | `volumeClaimTemplates` | `make_claims`, `identity::claim_name` |
//! | `persistentVolumeClaimRetentionPolicy`: `whenDeleted`, `whenScaled` | `retention::owner` |
//! | `minReadySeconds` | `is_available` |
//! | `updateStrategy.type`: `RollingUpdate`, `OnDelete`, `Recreate` | `strategy::Strategy` |
//! | `rollingUpdate.partition` | `template_by_partition`, `rolling::roll_out` |
//! | `rollingUpdate.maxUnavailable` | `budget::max_unavailable`, `rolling::roll_out` |
//! | a broken rollout of an `OrderedReady` set (forced rollback) | `see_to` |
//! | `revisionHistoryLimit` | `status::beyond_history_limit` |
//! | `status.currentRevision`, `status.updateRevision`, `status.collisionCount` | `seen::update`, `status::counted` |

use super::{
    budget, identity,
    recreate::{self, Progress},
    retention::Owners,
    rolling,
    seen::{Seen, Update},
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
    Action, BURST_LIMIT, Create, Delete, Note, OnError, PatchForm, Plan, Rewrite, Target,
};
use serde_json::json;
use std::sync::Arc;

/// The policy by which pods wait for one another.
pub(crate) const ORDERED_READY: &str = "OrderedReady";
/// The label of a revision that holds its hash.
const HASH_LABEL: &str = "controller.kubernetes.io/hash";

/// What to do.
pub(crate) fn plan(seen: &Seen, now: Timestamp) -> Plan {
    Plan { actions: Pass::decide(seen, now).actions, requeue: None }
}

/// A pod that the set should have.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Slot<'a> {
    /// It is there.
    There(&'a Arc<Pod>),
    /// The pod of this number is not.
    Missing(i32),
}

/// What a pod means for those after it, in ascending order of how much it holds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    /// They may be looked at.
    Go,
    /// With `OrderedReady` they wait for it; with `Parallel` nobody does.
    Wait,
    /// Something that it needs cannot be had now: with either policy the set gets neither smaller nor newer in this pass.
    Blocked,
}

/// On which occasion claims get the owners that the policy asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settling {
    /// Their pod was made, or is pending.
    Made,
    /// Their pod is mended.
    Mended,
    /// Their pod is condemned: a failure records no event.
    Condemned,
}

/// One pass over a set, as far as it is decided.
pub(crate) struct Pass<'a> {
    /// What is looked at.
    pub(crate) seen: &'a Seen,
    /// When.
    pub(crate) now: Timestamp,
    /// The set, for events and owner references.
    pub(crate) target: Target,
    /// Pods that the set should have, by number.
    pub(crate) replicas: Vec<Slot<'a>>,
    /// Pods beyond those, the last first.
    condemned: Vec<(i32, &'a Arc<Pod>)>,
    /// What is done.
    pub(crate) actions: Vec<Action>,
    /// Which actions delete pods of old revisions.
    pub(crate) replaced: Vec<usize>,
    /// Which actions make what of which pod, for telling of those that fail.
    pub(crate) made: Vec<(usize, Made)>,
    /// How far the strategy `Recreate` is, while it is at work.
    pub(crate) progress: Option<Progress>,
    /// Objects made so far.
    n_created: u64,
}

/// What an action makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Made {
    /// The pod of this name.
    Pod(String),
    /// The claim of this name, of this pod.
    Claim { claim: String, pod: String },
}

impl<'a> Pass<'a> {
    /// Decides the whole pass.
    pub(crate) fn decide(seen: &'a Seen, now: Timestamp) -> Self {
        let mut pass = Self::begin(seen, now);
        if seen.set.spec.selector.error().is_some() {
            return pass;
        }
        pass.actions.extend(seen.revisions.actions(&pass.target));
        pass.actions.extend(seen.pods.actions(&pass.target));
        // What is only just being adopted is changed and deleted when it is seen as the set's own.
        if seen.revisions.adopt + seen.pods.adopt > 0 {
            return pass;
        }
        pass.keep_history();
        if recreate::is_unknown(seen) {
            pass.actions.push(recreate::unknown(&pass).into());
            return pass;
        }
        if seen.set.meta.deleting() {
            return pass;
        }
        let strategy = Strategy::of(&seen.set);
        if strategy == Strategy::Recreate && recreate::clear(&mut pass) {
            return pass;
        }
        let next = if seen.is_ordered() { pass.in_order() } else { pass.all_at_once() };
        match strategy {
            Strategy::RollingUpdate if next == Next::Go => rolling::roll_out(&mut pass),
            Strategy::RollingUpdate | Strategy::OnDelete | Strategy::Recreate => {}
        }
        pass
    }

    /// Sorts pods into those that the set should have and those beyond.
    pub(crate) fn begin(seen: &'a Seen, now: Timestamp) -> Self {
        let set = &*seen.set;
        let mut replicas: Vec<Slot<'_>> = (0..identity::replicas(set))
            .map(|n| Slot::Missing(identity::ordinals_start(set).saturating_add(n)))
            .collect();
        let mut condemned = Vec::new();
        for pod in &seen.pods.owned {
            // A pod whose number is none is nobody's concern.
            let Some(ordinal) = identity::ordinal(pod) else { continue };
            match identity::place(set, ordinal) {
                Some(place) => replicas[place] = Slot::There(pod),
                None => condemned.push((ordinal, pod)),
            }
        }
        condemned.sort_by(|(a, x), (b, y)| b.cmp(a).then_with(|| x.meta.name.cmp(&y.meta.name)));
        Self {
            seen,
            now,
            target: wire::target(set),
            replicas,
            condemned,
            actions: Vec::new(),
            replaced: Vec::new(),
            made: Vec::new(),
            progress: None,
            n_created: 0,
        }
    }

    /// The revision of the set's template is there, and the newest, before pods are made from it.
    fn keep_history(&mut self) {
        let set = &*self.seen.set;
        match &self.seen.update {
            Update::Present(_) | Update::Gone(_) => {}
            Update::Renumbered(revision, number) => {
                self.actions
                    .push(revisions::change(revision, &json!({ "revision": number })).into());
            }
            Update::Made(draft, number) => {
                let labels = &set.spec.template.labels;
                let create =
                    draft.clone().create(&self.target, &set.meta, labels, HASH_LABEL, *number);
                self.n_created += 1;
                self.actions.push(create.into());
            }
        }
    }

    fn in_order(&mut self) -> Next {
        for at in 0..self.replicas.len() {
            let next = self.see_to(at);
            if next != Next::Go {
                return next;
            }
        }
        for at in 0..self.condemned.len() {
            let (ordinal, pod) = self.condemned[at];
            self.settle_claims(ordinal, Some(pod), Settling::Condemned);
        }
        // All others are available; those beyond the set's size go one by one, and each waits to be available unless it is
        // the first that is not. One that has ended never will be (upstream waits for two such for ever).
        let Some(&(_, last)) = self.condemned.first() else { return Next::Go };
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

    /// A pod that is blocked does not keep others from being made (upstream, which makes them in batches by number, makes
    /// none of those in batches after it), but the set gets neither smaller nor newer before it can go on.
    fn all_at_once(&mut self) -> Next {
        let (mut missing, mut next) = (Vec::new(), Next::Go);
        for at in 0..self.replicas.len() {
            match self.replicas[at] {
                Slot::Missing(ordinal) => missing.push(ordinal),
                Slot::There(_) => next = next.max(self.see_to(at)),
            }
        }
        missing.retain(|ordinal| !self.waits_for_claims(*ordinal));
        // In batches, so that claims of a batch are there before its pods, and a failure ends it all early.
        let mut size = if self.seen.set.spec.volume_claim_templates.is_empty() {
            missing.len().max(1)
        } else {
            1
        };
        let mut rest = &missing[..];
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(size.min(rest.len()));
            next = next.max(self.make_batch(batch));
            rest = later;
            size *= 2;
        }
        for at in 0..self.condemned.len() {
            let (ordinal, pod) = self.condemned[at];
            self.settle_claims(ordinal, Some(pod), Settling::Condemned);
        }
        if next == Next::Blocked {
            return Next::Blocked;
        }
        for at in 0..self.condemned.len() {
            let (_, pod) = self.condemned[at];
            if !pod.meta.deleting() {
                self.delete(pod);
            }
        }
        Next::Go
    }

    /// Sees to one pod that the set should have.
    ///
    /// A rollout to a template whose pods never become ready gets stuck here with `OrderedReady`, and stays so when the old
    /// template is back: the broken pod, which is neither ready nor ended, holds up all others, itself included, since none
    /// is replaced while one is not available. As with upstream (and as documented: "forced rollback"), somebody must delete
    /// it by hand; it then comes back from the set's template. `maxUnavailable` does not help, `Parallel` does.
    fn see_to(&mut self, at: usize) -> Next {
        let ordered = self.seen.is_ordered();
        let pod = match self.replicas[at] {
            Slot::There(pod) => pod,
            Slot::Missing(ordinal) => {
                if !self.waits_for_claims(ordinal) {
                    self.make_batch(&[ordinal]);
                }
                return Next::Wait;
            }
        };
        let ordinal = identity::ordinals_start(&self.seen.set)
            .saturating_add(i32::try_from(at).unwrap_or(i32::MAX));
        if pods::is_terminal(pod) {
            // It is made anew when it is gone, however it ended.
            if !pod.meta.deleting() {
                self.delete(pod);
            }
            return Next::Wait;
        }
        if &*pod.status.phase == "Pending" {
            // A claim may have been deleted before the pod could use it.
            if self.make_claims(ordinal) == Next::Blocked {
                return Next::Blocked;
            }
            self.settle_claims(ordinal, Some(pod), Settling::Made);
        }
        let holds_up = pod.meta.deleting() || !is_running_and_ready(pod) || !self.is_available(pod);
        if ordered && holds_up {
            return Next::Wait;
        }
        self.mend(ordinal, pod)
    }

    /// Whether a pod cannot be made yet because its claims belong to the pod before it.
    fn waits_for_claims(&self, ordinal: i32) -> bool {
        let owners = Owners::new(&self.seen.set, ordinal, None);
        self.claims(ordinal).any(|(_, _, claim)| claim.is_some_and(|claim| owners.is_stale(claim)))
    }

    /// The claims of the pod of this number: templates, names, and what is there.
    fn claims(
        &self,
        ordinal: i32,
    ) -> impl Iterator<Item = (&'a ClaimTemplate, String, Option<&'a Arc<PersistentVolumeClaim>>)>
    + use<'a> {
        let seen = self.seen;
        seen.set.spec.volume_claim_templates.iter().map(move |template| {
            let name = identity::claim_name(&seen.set, &template.name, ordinal);
            let claim = seen.volumes.get(&*name);
            (template, name, claim)
        })
    }

    /// Makes pods, after their claims. `Blocked` where one cannot be made for want of a claim.
    fn make_batch(&mut self, ordinals: &[i32]) -> Next {
        let mut next = Next::Go;
        let mut ready = Vec::new();
        for ordinal in ordinals {
            match self.make_claims(*ordinal) {
                Next::Blocked => {
                    next = Next::Blocked;
                    self.tell_of_claims(*ordinal, "Create");
                }
                Next::Go | Next::Wait => ready.push(*ordinal),
            }
        }
        for (n, ordinal) in ready.into_iter().enumerate() {
            self.make_pod(ordinal, n == 0);
            self.settle_claims(ordinal, None, Settling::Made);
        }
        next
    }

    /// Says which claims are in a pod's way.
    fn tell_of_claims(&mut self, ordinal: i32, verb: &str) {
        let going: Vec<String> = self
            .claims(ordinal)
            .filter(|(_, _, claim)| claim.is_some_and(|claim| claim.meta.deleting()))
            .map(|(_, name, _)| format!("pvc {name} is being deleted"))
            .collect();
        let error = match &going[..] {
            [] => return,
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let pod = identity::pod_name(&self.seen.set, ordinal);
        self.actions.push(failed(&self.target, verb, &pod, &error).into());
    }

    /// Makes claims that are missing. `Blocked` if one is on its way out: its successor cannot be made before it is gone.
    fn make_claims(&mut self, ordinal: i32) -> Next {
        let set = &*self.seen.set;
        let pod = identity::pod_name(set, ordinal);
        let mut next = Next::Go;
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
                    let done = Note::normal(self.target.clone(), "SuccessfulCreate", text);
                    self.create(
                        Create {
                            done: Some(done),
                            ..Create::new(PersistentVolumeClaim::kind(), &set.meta.namespace, body)
                        },
                        Made::Claim { claim: name, pod: pod.clone() },
                    );
                }
                None => next = Next::Blocked,
            }
        }
        next
    }

    fn make_pod(&mut self, ordinal: i32, apart: bool) {
        if self.n_created >= BURST_LIMIT {
            return;
        }
        let set = &*self.seen.set;
        let (template, revision) = self.template_by_partition(ordinal);
        let owner = wire::controller_reference(&self.target);
        let body = identity::pod_json(set, template, revision, ordinal, &owner);
        let name = identity::pod_name(set, ordinal);
        let create = Create {
            apart,
            done: Some(done(&self.target, "Create", &name)),
            ..Create::new(Pod::kind(), &set.meta.namespace, body)
        };
        self.create(create, Made::Pod(name));
    }

    fn create(&mut self, create: Create, made: Made) {
        self.n_created += 1;
        self.made.push((self.actions.len(), made));
        self.actions.push(Create { on_error: OnError::SkipRest, ..create }.into());
    }

    /// What the pod of this number is made from, and of which revision that is: those below `partition` keep the old one.
    pub(crate) fn template_by_partition(&self, ordinal: i32) -> (&'a Template, &'a str) {
        let seen = self.seen;
        let set = &*seen.set;
        let place = i64::from(ordinal) - i64::from(identity::ordinals_start(set));
        let keeps_old = match set.spec.update_strategy.rolling_update.as_deref() {
            Some(rolling) => place < i64::from(rolling.partition.unwrap_or(0)),
            None => {
                Strategy::of(set) == Strategy::RollingUpdate
                    && place < i64::from(set.status.current_replicas)
            }
        };
        match seen.current().filter(|_| keeps_old) {
            Some(current) => match &current.data.0 {
                Some(template) => (template, &current.meta.name),
                None => (&set.spec.template, seen.update.name()),
            },
            None => (&set.spec.template, seen.update.name()),
        }
    }

    /// Gives claims the owners that the policy asks for, once in a pass. When a pod is mended, that counts as an update of it.
    ///
    /// Upstream: `UpdatePodClaimForRetentionPolicy` and its callers.
    fn settle_claims(&mut self, ordinal: i32, pod: Option<&Pod>, when: Settling) {
        let mending = when == Settling::Mended;
        let set = &*self.seen.set;
        let owners = Owners::new(set, ordinal, pod);
        let name = identity::pod_name(set, ordinal);
        let mut changes: Vec<Rewrite> = Vec::new();
        for (_, claim_name, claim) in self.claims(ordinal) {
            let Some(claim) = claim else { continue };
            let corrected = owners.corrected(claim);
            if owners.conflict(claim) && (!mending || corrected.is_some()) {
                let text = format!(
                    "PersistentVolumeClaim {claim_name} has a conflicting OwnerReference that acts as a manging controller, the retention policy is ignored for this claim"
                );
                let note = Note::warning(self.target.clone(), "ConflictingController", text);
                self.actions.push(note.into());
            }
            let target = wire::target(&**claim);
            let again = |action: &Action| matches!(action, Action::Rewrite(change) if change.target == target);
            // A second write of the version that was seen could only be a conflict.
            if self.actions.iter().any(again) {
                continue;
            }
            if let Some(corrected) = corrected {
                let error = format!(
                    "could not update claim {claim_name} for delete policy ownerRefs: {{error}}"
                );
                let failed = failed(&self.target, "Update", &name, &error);
                changes.push(Rewrite {
                    failed: Some(failed).filter(|_| when != Settling::Condemned),
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
        if let Some(last) = changes.last_mut().filter(|_| mending) {
            last.done = Some(done(&self.target, "Update", &name));
        }
        self.actions.extend(changes.into_iter().map(Action::Rewrite));
    }

    /// Gives a pod the labels and claims that its name asks for.
    fn mend(&mut self, ordinal: i32, pod: &Pod) -> Next {
        let changes = identity::repair(&self.seen.set, pod, ordinal);
        if changes.iter().any(|change| change["path"] == "/spec/volumes/-")
            && self.make_claims(ordinal) == Next::Blocked
        {
            self.tell_of_claims(ordinal, "Update");
            return Next::Blocked;
        }
        self.settle_claims(ordinal, Some(pod), Settling::Mended);
        if changes.is_empty() {
            return Next::Go;
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
        Next::Go
    }

    /// Deletes a pod, once in a pass.
    pub(crate) fn delete(&mut self, pod: &Pod) {
        let target = wire::target(pod);
        let again =
            |action: &Action| matches!(action, Action::Delete(delete) if delete.target == target);
        if self.actions.iter().any(again) {
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

    /// The revision that a pod is of, or will be.
    pub(crate) fn revision(&self, slot: Slot<'a>) -> &'a str {
        match slot {
            Slot::There(pod) => revision_of(pod),
            Slot::Missing(ordinal) => self.template_by_partition(ordinal).1,
        }
    }

    /// Whether the pod is ready for long enough.
    pub(crate) fn is_available(&self, pod: &Pod) -> bool {
        pods::is_available(pod, self.seen.set.spec.min_ready_seconds, self.now)
    }

    /// Whether the pod is not, or not for long.
    pub(crate) fn is_unavailable(&self, pod: &Pod) -> bool {
        !self.is_available(pod) || pod.meta.deleting()
    }

    /// How many of the pods that the set should have are not available.
    pub(crate) fn n_unavailable(&self) -> i32 {
        let unavailable = self.replicas.iter().filter(|slot| match slot {
            Slot::There(pod) => self.is_unavailable(pod),
            Slot::Missing(_) => true,
        });
        i32::try_from(unavailable.count()).unwrap_or(i32::MAX)
    }

    /// How many may be: one by one, where `maxUnavailable` does not count.
    pub(crate) fn max_unavailable(&self) -> i32 {
        if self.seen.features.max_unavailable { budget::max_unavailable(&self.seen.set) } else { 1 }
    }
}

/// Whether the pod runs and is ready.
pub(crate) fn is_running_and_ready(pod: &Pod) -> bool {
    &*pod.status.phase == "Running" && pods::is_ready(pod)
}

/// Labels that the set's selector asks for by value: its claims get them.
fn match_labels(set: &StatefulSet) -> evenkeel_api::StrMap {
    set.spec.selector.match_labels().collect()
}

fn done(target: &Target, verb: &str, pod: &str) -> Note {
    let text = format!("{verb} Pod {pod} in StatefulSet {} successful", target.name);
    let reason = match verb {
        "Create" => "SuccessfulCreate",
        "Delete" => "SuccessfulDelete",
        _ => "SuccessfulUpdate",
    };
    Note::normal(target.clone(), reason, text)
}

/// The event of something that went wrong with a pod.
pub(crate) fn failed(target: &Target, verb: &str, pod: &str, error: &str) -> Note {
    let text = format!("{verb} Pod {pod} in StatefulSet {} failed error: {error}", target.name);
    let reason = match verb {
        "Create" => "FailedCreate",
        "Delete" => "FailedDelete",
        _ => "FailedUpdate",
    };
    Note::warning(target.clone(), reason, text)
}
