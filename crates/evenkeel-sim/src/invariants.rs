//! Invariants that must hold at every instant, in every scenario.
//!
//! | rule | checked |
//! |---|---|
//! | an ordinal of a StatefulSet has one live pod | with each pod |
//! | no two running pods or Services have the same address | with each pod and Service |
//! | a Job counts no pod and no index twice, and never counts down | with each Job |
//! | a volume is bound to one claim at most, and is released before it is bound to another | with each volume and claim |
//! | a rolling update gives sizes within `maxSurge` and `maxUnavailable` | with each size of a ReplicaSet |
//! | a controller only deletes objects that an object of its kind controls | with each deletion |

use evenkeel_api::{
    Meta, Text, View,
    int_or_string::{IntOrString, Rounding},
    views::{Deployment, Job, PersistentVolume, PersistentVolumeClaim, Pod, ReplicaSet, Service},
};
use evenkeel_runtime::cache::{CacheEvent, Caches};
use evenkeel_test::simulation::Write;
use http::Method;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Controllers by user agent, the objects that they delete, and the kind that has to control these.
const DELETERS: [(&str, &str, &str); 7] = [
    ("cronjob-controller", "jobs", "CronJob"),
    ("daemon-set-controller", "pods", "DaemonSet"),
    ("deployment-controller", "replicasets", "Deployment"),
    ("job-controller", "pods", "Job"),
    ("replicaset-controller", "pods", "ReplicaSet"),
    ("replication-controller", "pods", "ReplicationController"),
    ("statefulset-controller", "pods", "StatefulSet"),
];

/// Label with the ordinal of a StatefulSet's pod.
const ORDINAL: &str = "apps.kubernetes.io/pod-index";

/// Observer of all objects that the rules apply to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Invariants(Arc<Mutex<State>>);

/// Observed objects, and violations of the invariants.
#[derive(Debug, Default)]
struct State {
    pods: BTreeMap<Text, Arc<Pod>>,
    services: BTreeMap<Text, Arc<Service>>,
    volumes: BTreeMap<Text, Arc<PersistentVolume>>,
    claims: BTreeMap<Text, Arc<PersistentVolumeClaim>>,
    sets: BTreeMap<Text, Arc<ReplicaSet>>,
    /// The state of each Deployment, and the one before its last change of size.
    deployments: BTreeMap<Text, (Arc<Deployment>, Arc<Deployment>)>,
    jobs: BTreeMap<Text, Arc<Job>>,
    /// Pods that ended, by the Job that controls them.
    ended: BTreeMap<Text, BTreeSet<Text>>,
    /// Kinds of the controlling owners that an object has had, by its path.
    owners: BTreeMap<String, BTreeSet<Text>>,
    /// Number of writes that were checked.
    checked: usize,
    broken: Vec<String>,
}

impl Invariants {
    /// Starts to observe all objects.
    pub(crate) fn observe(caches: &Caches) -> Self {
        let this = Self::default();
        this.subscribe::<Pod>(caches, State::pod);
        this.subscribe::<Service>(caches, State::service);
        this.subscribe::<PersistentVolume>(caches, State::volume);
        this.subscribe::<PersistentVolumeClaim>(caches, State::claim);
        this.subscribe::<ReplicaSet>(caches, State::replica_set);
        this.subscribe::<Deployment>(caches, State::deployment);
        this.subscribe::<Job>(caches, State::job);
        this
    }

    fn subscribe<V: View>(&self, caches: &Caches, see: fn(&mut State, &CacheEvent<V>)) {
        let this = self.clone();
        caches.of::<V>().subscribe(move |event| see(&mut this.lock(), event));
    }

    /// Returns the number of writes that were checked, of which the first that are new have this index.
    pub(crate) fn checked(&self) -> usize {
        self.lock().checked
    }

    /// Checks these further writes. Returns all that was wrong so far.
    pub(crate) fn check(&self, new: &[Write], checked: usize) -> Vec<String> {
        let mut state = self.lock();
        state.checked = checked;
        for write in new.iter().filter(|write| write.method == Method::DELETE) {
            state.deletion(write);
        }
        state.broken.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Replaces or removes the object of an event.
fn keep<V: View>(map: &mut BTreeMap<Text, Arc<V>>, event: &CacheEvent<V>) {
    let object = event.object();
    match event {
        CacheEvent::Deleted(_) => map.remove(&object.meta().uid),
        _ => map.insert(object.meta().uid.clone(), Arc::clone(object)),
    };
}

fn path(plural: &str, namespace: &str, name: &str) -> String {
    format!("{plural}/{namespace}/{name}")
}

/// Returns whether a pod's containers have not ended.
fn is_live(pod: &Pod) -> bool {
    !matches!(&*pod.status.phase, "Succeeded" | "Failed")
}

/// Returns the IP addresses that no other object may have; none if the pod has ended or uses the host network.
fn addresses(pod: &Pod) -> impl Iterator<Item = &Text> {
    let own = is_live(pod) && !pod.spec.host_network;
    pod.status.pod_ips.iter().map(|one| &one.ip).filter(move |ip| own && !ip.is_empty())
}

impl State {
    fn breaks(&mut self, rule: String) {
        self.broken.push(rule);
    }

    fn note_owner(&mut self, plural: &str, meta: &Meta) {
        let kinds = self.owners.entry(path(plural, &meta.namespace, &meta.name)).or_default();
        kinds.extend(meta.controller().map(|owner| owner.kind.clone()));
    }

    fn pod(&mut self, event: &CacheEvent<Pod>) {
        let pod = event.object();
        self.note_owner("pods", &pod.meta);
        if let Some(owner) = pod.meta.controller().filter(|owner| &*owner.kind == "Job")
            && (!is_live(pod) || pod.meta.deleting() || matches!(event, CacheEvent::Deleted(_)))
        {
            self.ended.entry(owner.uid.clone()).or_default().insert(pod.meta.uid.clone());
        }
        keep(&mut self.pods, event);
        if matches!(event, CacheEvent::Deleted(_)) || !is_live(pod) {
            return;
        }
        let mut broken = Vec::new();
        for other in self.pods.values().filter(|other| other.meta.uid != pod.meta.uid) {
            let (one, two) = (&pod.meta.name, &other.meta.name);
            if addresses(pod).any(|ip| addresses(other).any(|its| its == ip)) {
                broken.push(format!("pods {one} and {two} have one address"));
            }
            let set = pod.meta.controller().filter(|owner| &*owner.kind == "StatefulSet");
            let ordinal = |pod: &Pod| pod.meta.labels.get(ORDINAL).map(str::to_owned);
            if let Some(set) = set
                && is_live(other)
                && other.meta.controller().is_some_and(|owner| owner.uid == set.uid)
                && ordinal(pod).is_some_and(|number| ordinal(other) == Some(number))
            {
                broken.push(format!("pods {one} and {two} have one ordinal"));
            }
        }
        self.broken.extend(broken);
    }

    fn service(&mut self, event: &CacheEvent<Service>) {
        keep(&mut self.services, event);
        if matches!(event, CacheEvent::Deleted(_)) {
            return;
        }
        let service = event.object();
        let own = service.spec.cluster_ips.iter().filter(|ip| !matches!(&***ip, "" | "None"));
        for ip in own {
            let others = self.services.values().filter(|other| other.meta.uid != service.meta.uid);
            if let Some(other) = others.into_iter().find(|o| o.spec.cluster_ips.contains(ip)) {
                let (one, two) = (&service.meta.name, &other.meta.name);
                self.broken.push(format!("Services {one} and {two} have the address {ip}"));
                return;
            }
        }
    }

    fn volume(&mut self, event: &CacheEvent<PersistentVolume>) {
        keep(&mut self.volumes, event);
        if let CacheEvent::Updated { old, new } = event {
            let claim = |volume: &PersistentVolume| {
                let uid = volume.spec.claim_ref.as_ref().map(|claim| claim.uid.clone());
                uid.filter(|uid| !uid.is_empty())
            };
            if let (Some(before), Some(after)) = (claim(old), claim(new))
                && before != after
            {
                self.breaks(format!("volume {} goes from a claim to another", new.meta.name));
            }
        }
    }

    fn claim(&mut self, event: &CacheEvent<PersistentVolumeClaim>) {
        keep(&mut self.claims, event);
        let claim = event.object();
        let is_bound = |claim: &PersistentVolumeClaim| &*claim.status.phase == "Bound";
        if matches!(event, CacheEvent::Deleted(_)) || !is_bound(claim) {
            return;
        }
        let others = self.claims.values().filter(|other| other.meta.uid != claim.meta.uid);
        let same = others.filter(|other| is_bound(other));
        let same: Vec<String> = same
            .filter(|other| other.spec.volume_name == claim.spec.volume_name)
            .map(|other| {
                format!("claims {} and {} have one volume", claim.meta.name, other.meta.name)
            })
            .collect();
        self.broken.extend(same);
    }

    fn job(&mut self, event: &CacheEvent<Job>) {
        let job = event.object();
        self.note_owner("jobs", &job.meta);
        let (name, status) = (&job.meta.name, &job.status);
        let before = self.jobs.get(&job.meta.uid).map(|old| old.status.clone());
        keep(&mut self.jobs, event);
        if let Some(before) = before
            && (before.succeeded > status.succeeded || before.failed > status.failed)
        {
            let counts =
                |status: &evenkeel_api::views::JobStatus| (status.succeeded, status.failed);
            let (before, after) = (counts(&before), counts(status));
            self.breaks(format!("Job {name} counts down from {before:?} to {after:?}"));
        }
        let ended = self.ended.get(&job.meta.uid).map_or(0, BTreeSet::len);
        if usize::try_from(status.succeeded + status.failed).is_ok_and(|counted| counted > ended) {
            let (succeeded, failed) = (status.succeeded, status.failed);
            self.breaks(format!("Job {name} counts {succeeded} and {failed} of {ended} pods"));
        }
        if &*job.spec.completion_mode == "Indexed" {
            let completed = indexes(&status.completed_indexes);
            let failed = indexes(status.failed_indexes.as_ref().map_or("", |text| text));
            if usize::try_from(status.succeeded) != Ok(completed.len()) {
                let (counted, text) = (status.succeeded, &status.completed_indexes);
                self.breaks(format!("Job {name} counts {counted} of the indexes {text}"));
            }
            if !completed.is_disjoint(&failed) {
                self.breaks(format!("Job {name} has an index that succeeded and failed"));
            }
        }
    }

    fn deployment(&mut self, event: &CacheEvent<Deployment>) {
        let deployment = event.object();
        let uid = deployment.meta.uid.clone();
        if matches!(event, CacheEvent::Deleted(_)) {
            self.deployments.remove(&uid);
            return;
        }
        let former = match self.deployments.remove(&uid) {
            Some((former, last)) if last.spec.replicas == deployment.spec.replicas => former,
            Some((_, last)) => last,
            None => Arc::clone(deployment),
        };
        self.deployments.insert(uid, (former, Arc::clone(deployment)));
    }

    fn replica_set(&mut self, event: &CacheEvent<ReplicaSet>) {
        let set = event.object();
        self.note_owner("replicasets", &set.meta);
        let size = |set: &ReplicaSet| set.spec.replicas.unwrap_or(1);
        let before = self.sets.get(&set.meta.uid).map_or(0, |before| size(before));
        keep(&mut self.sets, event);
        let Some(owner) = set.meta.controller() else { return };
        let Some((former, last)) = self.deployments.get(&owner.uid) else { return };
        if matches!(event, CacheEvent::Deleted(_)) || last.meta.deleting() || size(set) == before {
            return;
        }
        let (Some(former), Some(last)) = (sizes(former), sizes(last)) else { return };
        let of_owner = self.sets.values().filter(|set| set.meta.is_controlled_by(&owner.uid));
        let sum: i32 = of_owner.map(|set| size(set)).sum();
        let (least, most) = (*former.start().min(last.start()), *former.end().max(last.end()));
        if size(set) > before && sum > most {
            self.breaks(format!("{} grows: {sum} pods of {most} at most", set.meta.name));
        }
        // The first ReplicaSet may be smaller if its Deployment was scaled down.
        if size(set) < before && sum < least {
            self.breaks(format!("{} shrinks: {sum} pods of {least} at least", set.meta.name));
        }
    }

    fn deletion(&mut self, write: &Write) {
        let actor = write.actor.rsplit('/').next().unwrap_or_default();
        let segments: Vec<&str> = write.path().rsplit('/').take(4).collect();
        let [name, plural, namespace, "namespaces"] = segments[..] else { return };
        let of_actor = |(agent, deletes, _): &&(&str, &str, &str)| {
            *agent == actor && *deletes == plural && write.is_executed()
        };
        let Some((_, _, owner)) = DELETERS.iter().find(of_actor) else { return };
        // An object that was deleted before it was observed has no owners here.
        let Some(kinds) = self.owners.get(&path(plural, namespace, name)) else { return };
        if !kinds.iter().any(|kind| &**kind == *owner) {
            self.breaks(format!("{actor} deletes {plural} {name}, which {kinds:?} controls"));
        }
    }
}

/// Returns the permitted total size of a Deployment's ReplicaSets during a rolling update; `None` for another strategy.
fn sizes(deployment: &Deployment) -> Option<RangeInclusive<i32>> {
    let strategy = &deployment.spec.strategy;
    let rolling =
        strategy.rolling_update.as_ref().filter(|_| &*strategy.type_ == "RollingUpdate")?;
    let replicas = deployment.spec.replicas.unwrap_or(1);
    let scaled = |value: &Option<IntOrString>, rounding| {
        value.as_ref().and_then(|value| value.scaled(replicas, rounding).ok()).unwrap_or(0)
    };
    let surge = scaled(&rolling.max_surge, Rounding::Up);
    let unavailable = scaled(&rolling.max_unavailable, Rounding::Down);
    let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
    Some(replicas - unavailable..=replicas + surge)
}

/// Parses indexes such as `0,2-5`.
fn indexes(text: &str) -> BTreeSet<u32> {
    let ranges = text.split(',').filter(|range| !range.is_empty());
    let ranges = ranges.filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_read_from_ranges() {
        assert_eq!(indexes(""), BTreeSet::new());
        assert_eq!(indexes("0,2-4"), BTreeSet::from([0, 2, 3, 4]));
    }
}
