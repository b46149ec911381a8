//! Which volumes a node gets, and which are taken from it.
//!
//! | documented | where |
//! |---|---|
//! | VolumeAttachments are made | `attach`, `ask` |
//! | iSCSI and Fibre Channel | `devices` |
//! | VolumeAttachments go, those that are its own | `leaving`, `is_own` |
//! | `accessModes`: `ReadWriteOnce`, `ReadWriteOncePod` | `is_taken` |
//! | `status.volumesAttached` | `report` |
//! | `status.volumesInUse` | `is_mounted` |
//! | forced detach after 6 minutes, `--disable-force-detach-on-timeout` | `leaving` |
//! | taint `node.kubernetes.io/out-of-service` | `leaving`, its pods in `../../core/podgc/plan.rs` |
//! | `volumes.kubernetes.io/controller-managed-attach-detach` | `is_managed` |
//! | `--attach-detach-reconcile-sync-period` | `plan` |

use super::{Options, network};
use crate::{storage::claim_protection, wire};
use evenkeel_api::{
    Text, View, migrated, storage,
    time::{SignedDuration, Timestamp},
    views::{Node, PersistentVolume, Pod, VolumeAttachment},
};
use evenkeel_runtime::plan::{Create, Delete, Note, OnError, Patch, PatchForm, Plan};
use ring::digest;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// How long a node that is not ready may hold a volume (upstream's `maxWaitForUnmountDuration`).
const PATIENCE: Duration = Duration::from_secs(360);
/// So long a driver may take before it is told that it has not attached (upstream's `csiTimeout`).
const DRIVERS_PATIENCE: Duration = Duration::from_secs(120);
/// By then what was asked for shows in the caches.
const SHOWS: Duration = Duration::from_secs(10);
/// How long until it is looked again what became of a volume that another node has or was given.
const PAUSE: Duration = Duration::from_secs(1);

/// A node and its volumes.
pub(super) struct Seen {
    pub(super) name: Arc<str>,
    /// `None` where it is gone.
    pub(super) node: Option<Arc<Node>>,
    /// How it was when it went, if that is known.
    pub(super) last: Option<Arc<Node>>,
    /// What its pods use, by name.
    pub(super) wanted: Vec<Wanted>,
    /// What is attached to it, or is to be, by the attachment's name.
    pub(super) held: Vec<Held>,
    pub(super) memory: Memory,
}

/// A volume that pods of the node use.
pub(super) struct Wanted {
    /// As nodes name it.
    pub(super) name: Text,
    /// As people name it.
    pub(super) called: Text,
    /// `None` where pods name it themselves.
    pub(super) volume: Option<Arc<PersistentVolume>>,
    pub(super) pods: Vec<Arc<Pod>>,
    /// Other nodes that it is attached to.
    pub(super) elsewhere: Vec<Text>,
    /// Pods there that use it.
    pub(super) others: Vec<Arc<Pod>>,
}

impl Wanted {
    /// Whether only one node can have it. Where pods name it themselves, nothing is known of it.
    fn is_exclusive(&self) -> bool {
        self.volume.as_deref().is_some_and(is_exclusive)
    }
}

/// An attachment to the node.
pub(super) struct Held {
    /// The volume as nodes name it; `None` where the volume is gone.
    pub(super) name: Option<Text>,
    pub(super) attachment: Arc<VolumeAttachment>,
}

/// What is remembered of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// Attachments and devices of the network that are to go, each since when.
    pub(super) leaving: BTreeMap<Text, Timestamp>,
    /// Attachments that their drivers have not seen to, each since when that was told or else since it was asked for.
    pub(super) asked: BTreeMap<Text, Timestamp>,
    /// Volumes that were told to be another node's.
    pub(super) told: BTreeSet<Text>,
}

/// Volumes for one node alone that were given to one, where the caches may not show it yet.
#[derive(Debug, Default)]
pub(super) struct Given(HashMap<Text, (Arc<str>, Timestamp)>);

impl Given {
    /// Notes what was decided of a node, and forgets what shows by now or is not wanted any more.
    pub(super) fn note(&mut self, seen: &Seen, decision: &Decision, now: Timestamp) {
        let wants = |name: &Text| seen.wanted.iter().any(|one| one.name == *name);
        self.0.retain(|name, (node, since)| {
            is_fresh(*since, now) && (*node != seen.name || wants(name))
        });
        let fresh = decision.given.iter().map(|name| (name.clone(), (seen.name.clone(), now)));
        self.0.extend(fresh);
    }

    /// Whether another node was just given the volume, and it can only be one's.
    fn is_others(&self, wanted: &Wanted, node: &str, now: Timestamp) -> bool {
        wanted.is_exclusive()
            && (self.0.get(&wanted.name))
                .is_some_and(|(other, since)| **other != *node && is_fresh(*since, now))
    }
}

fn is_fresh(since: Timestamp, now: Timestamp) -> bool {
    Duration::try_from(now.duration_since(since)).is_ok_and(|age| age < SHOWS)
}

/// What is to be done.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Decision {
    pub(super) plan: Plan,
    pub(super) memory: Memory,
    /// Volumes for one node alone that this one is given.
    pub(super) given: Vec<Text>,
    /// Why volumes were taken that the node may still use, a reason for each.
    pub(super) forced: Vec<&'static str>,
}

/// Whether this controller, and not the kubelet, attaches the node's volumes: that it is said counts, not what is said.
pub(super) fn is_managed(node: &Node) -> bool {
    node.meta.annotations.contains(MANAGED)
}

/// Whether a node's change is of no concern.
pub(super) fn looks_alike(old: &Node, new: &Node) -> bool {
    old.status.volumes_in_use == new.status.volumes_in_use
        && old.status.volumes_attached == new.status.volumes_attached
        && is_managed(old) == is_managed(new)
        && is_ready(old) == is_ready(new)
        && is_out(old) == is_out(new)
}

fn is_out(node: &Node) -> bool {
    node.spec.taints.iter().any(|taint| &*taint.key == OUT_OF_SERVICE)
}

fn is_ready(node: &Node) -> bool {
    let mut conditions = node.status.conditions.iter();
    conditions.any(|condition| &*condition.type_ == "Ready" && &*condition.status == "True")
}

/// Whether the pod needs its volumes.
pub(super) fn counts(pod: &Pod) -> bool {
    !claim_protection::is_terminated(pod)
}

/// Whether the volume is another node's, and can only be one's.
pub(super) fn is_taken(wanted: &Wanted) -> bool {
    wanted.is_exclusive() && !wanted.elsewhere.is_empty()
}

/// Whether only one node can have the volume. Without a mode nothing is known of it.
fn is_exclusive(volume: &PersistentVolume) -> bool {
    let modes = &volume.spec.access_modes;
    let all = |mode: &str| matches!(mode, "ReadWriteMany" | "ReadOnlyMany");
    let only_read = |mode: &str| mode == "ReadOnlyMany";
    if volume.spec.source.gce_persistent_disk.is_some() {
        // These never could be written to from several, whatever they were said to be.
        return !modes.iter().all(|mode| only_read(mode));
    }
    !modes.is_empty() && !modes.iter().any(|mode| all(mode))
}

/// Decides.
pub(super) fn plan(seen: &Seen, options: &Options, given: &Given, now: Timestamp) -> Decision {
    let mut decision = Decision::default();
    let leaving = leaving(seen, options, now, &mut decision);
    let devices = devices(seen, options, given, now, &mut decision);
    report(seen, &leaving, &devices, &mut decision.plan);
    for held in &leaving {
        decision.plan.push(Delete::new(wire::target(&*held.attachment)));
    }
    attach(seen, given, now, &mut decision);
    if let Some(period) = options.sync_period.filter(|_| !seen.held.is_empty()) {
        decision.plan.requeue_after(period);
    }
    decision
}

/// Whether this controller asked for the attachment, by its name: those that others made, for whatever end, are theirs.
fn is_own(held: &Held) -> bool {
    let attachment = &held.attachment;
    let Some(name) = &held.name else {
        // Of a volume that is gone the name cannot be worked out anew.
        return is_attachment_name(&attachment.meta.name);
    };
    storage::split_attached_name(name).is_some_and(|(driver, handle)| {
        attachment_name(handle, driver, &attachment.spec.node_name) == *attachment.meta.name
    })
}

/// The attachments that go now.
fn leaving<'a>(
    seen: &'a Seen,
    options: &Options,
    now: Timestamp,
    decision: &mut Decision,
) -> Vec<&'a Held> {
    let mut leaving = Vec::new();
    for held in &seen.held {
        let wanted = seen.wanted.iter().any(|one| Some(&one.name) == held.name.as_ref());
        if wanted || held.attachment.meta.deleting() || !is_own(held) {
            continue;
        }
        let (id, mounted) = (&held.attachment.meta.name, is_mounted(seen, held.name.as_ref()));
        if may_go(seen, id, mounted, options, now, decision) {
            leaving.push(held);
        }
    }
    leaving
}

/// The devices of the network that the node has from now on: those that its pods use and that are not another's, and those
/// that it may still use.
fn devices<'a>(
    seen: &'a Seen,
    options: &Options,
    given: &Given,
    now: Timestamp,
    decision: &mut Decision,
) -> Vec<&'a Text> {
    let Some(node) = seen.node.as_deref() else { return Vec::new() };
    let known = node.status.volumes_attached.iter().map(|one| &one.name);
    let known: Vec<&Text> = known.filter(|name| network::is_name(name)).collect();
    let wanted = || seen.wanted.iter().filter(|one| network::is_name(&one.name));
    let mut devices = Vec::new();
    for name in &known {
        let mounted = is_mounted(seen, Some(*name));
        if wanted().any(|one| one.name == **name)
            || !may_go(seen, name, mounted, options, now, decision)
        {
            devices.push(*name);
        }
    }
    let new = wanted().filter(|one| !known.contains(&&one.name) && !is_taken(one));
    devices.extend(new.filter(|one| !given.is_others(one, &seen.name, now)).map(|one| &one.name));
    devices
}

/// Whether what no pod of the node uses any more can go now, or is waited for.
fn may_go(
    seen: &Seen,
    id: &Text,
    mounted: bool,
    options: &Options,
    now: Timestamp,
    decision: &mut Decision,
) -> bool {
    if !mounted {
        return true;
    }
    let since = seen.memory.leaving.get(id).copied().unwrap_or(now);
    let patience = SignedDuration::try_from(PATIENCE).unwrap_or_default();
    let until = since.checked_add(patience).unwrap_or(Timestamp::MAX);
    let node = seen.node.as_deref();
    let ready = node.is_some_and(is_ready);
    if !ready && options.force && now >= until {
        decision.forced.push("timeout");
        return true;
    }
    if node.is_some_and(is_out) {
        decision.forced.push("out-of-service");
        return true;
    }
    decision.memory.leaving.insert(id.clone(), since);
    let left = Duration::try_from(until.duration_since(now)).unwrap_or_default();
    if !left.is_zero() && !ready && options.force {
        decision.plan.requeue_after(left);
    }
    false
}

/// Whether the node may still use the volume, which one that is gone may if it did last.
fn is_mounted(seen: &Seen, name: Option<&Text>) -> bool {
    let node = seen.node.as_deref().or(seen.last.as_deref());
    let in_use = node.map(|node| &*node.status.volumes_in_use).unwrap_or_default();
    name.is_some_and(|name| in_use.contains(name))
}

/// Tells the node what is attached to it: before anything is taken away, so that nothing mounts it meanwhile.
fn report(seen: &Seen, leaving: &[&Held], devices: &[&Text], plan: &mut Plan) {
    let Some(node) = seen.node.as_deref() else { return };
    let stays = |held: &&Held| {
        held.attachment.status.attached
            && !held.attachment.meta.deleting()
            && !leaving.iter().any(|gone| gone.attachment.meta.name == held.attachment.meta.name)
    };
    let held = seen.held.iter().filter(stays).filter_map(|held| held.name.as_ref());
    let attached: Vec<&str> = held.chain(devices.iter().copied()).map(|name| &**name).collect();
    let known: Vec<&str> = node.status.volumes_attached.iter().map(|one| &*one.name).collect();
    let mut kept: Vec<&str> =
        known.iter().copied().filter(|name| attached.contains(name)).collect();
    let new: Vec<&str> = attached.into_iter().filter(|name| !known.contains(name)).collect();
    if new.is_empty() && kept.len() == known.len() {
        return;
    }
    kept.extend(&new);
    let list: Vec<Value> =
        kept.iter().map(|name| json!({"name": name, "devicePath": ""})).collect();
    let mut body = json!({"metadata": {"uid": node.meta.uid}, "status": {"volumesAttached": list}});
    if kept.len() < known.len() + new.len() {
        // It may have begun to use what is taken away, and the cache not know: then nothing is taken.
        body["metadata"]["resourceVersion"] = (*node.meta.resource_version).into();
    }
    plan.push(Patch {
        subresource: "status",
        on_error: OnError::SkipRest,
        ..Patch::new(wire::target(node), PatchForm::Strategic, body.to_string())
    });
    for one in seen.wanted.iter().filter(|one| new.contains(&&*one.name)) {
        let message = format!("AttachVolume.Attach succeeded for volume \"{}\" ", one.called);
        for pod in &one.pods {
            let of = wire::target(&**pod);
            plan.push(Note::normal(of, "SuccessfulAttachVolume", message.clone()));
        }
    }
}

/// Asks for what is missing.
fn attach(seen: &Seen, given: &Given, now: Timestamp, decision: &mut Decision) {
    for one in &seen.wanted {
        let device = network::is_name(&one.name);
        if device && knows(seen, &one.name) {
            continue;
        }
        let held = seen.held.iter().find(|held| held.name.as_ref() == Some(&one.name));
        match held {
            // One that goes must be gone first.
            Some(held) if held.attachment.status.attached => {}
            Some(held) => {
                let volume = &one.called;
                let failed = format!("AttachVolume.Attach failed for volume \"{volume}\" : ");
                if let Some(error) = held.attachment.status.attach_error.as_deref() {
                    tell(one, &mut decision.plan, &format!("{failed}{}", error.message));
                } else if !held.attachment.meta.deleting()
                    && let Some(told) = is_late(seen, held, now, decision)
                {
                    tell(one, &mut decision.plan, &format!("{failed}{told}"));
                }
            }
            None if is_taken(one) => {
                if !seen.memory.told.contains(&one.name) {
                    for pod in &one.pods {
                        let of = wire::target(&**pod);
                        let message = taken(one, pod);
                        decision.plan.push(Note::warning(of, "FailedAttachVolume", message));
                    }
                }
                decision.memory.told.insert(one.name.clone());
                if device {
                    decision.plan.requeue_after(PAUSE);
                }
            }
            // What came of it shows soon.
            None if given.is_others(one, &seen.name, now) => decision.plan.requeue_after(PAUSE),
            None if seen.node.is_some() => {
                if one.is_exclusive() {
                    decision.given.push(one.name.clone());
                }
                let asked = one.volume.as_deref().and_then(|volume| ask(volume, &seen.name));
                decision.plan.actions.extend(asked.map(Into::into));
            }
            None => {}
        }
    }
}

/// What is told of an attachment that the driver has long not seen to: each time that its patience is over.
fn is_late(seen: &Seen, held: &Held, now: Timestamp, decision: &mut Decision) -> Option<String> {
    let id = &held.attachment.meta.name;
    let mut since = seen.memory.asked.get(id).copied().unwrap_or(now);
    let waited = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    let late = waited >= DRIVERS_PATIENCE;
    if late {
        since = now;
    }
    decision.memory.asked.insert(id.clone(), since);
    let left = DRIVERS_PATIENCE.checked_sub(waited).filter(|left| !left.is_zero());
    decision.plan.requeue_after(left.unwrap_or(DRIVERS_PATIENCE));
    let (driver, handle) = storage::split_attached_name(held.name.as_deref()?)?;
    late.then(|| {
        format!("timed out waiting for external-attacher of {driver} CSI driver to attach volume {handle}")
    })
}

/// Whether the node was told that it has the volume.
fn knows(seen: &Seen, name: &Text) -> bool {
    seen.node
        .as_deref()
        .is_some_and(|node| node.status.volumes_attached.iter().any(|one| one.name == *name))
}

fn tell(one: &Wanted, plan: &mut Plan, message: &str) {
    for pod in &one.pods {
        plan.push(Note::warning(wire::target(&**pod), "FailedAttachVolume", message));
    }
}

/// Why a pod waits for another node to let go.
fn taken(one: &Wanted, pod: &Pod) -> String {
    let volume = &one.called;
    let here = |other: &&Arc<Pod>| other.meta.namespace == pod.meta.namespace;
    let local: Vec<&str> = one.others.iter().filter(here).map(|pod| &*pod.meta.name).collect();
    let foreign = one.others.len() - local.len();
    let why = match (local.is_empty(), foreign) {
        (true, 0) => "Volume is already exclusively attached to one node, waiting on detach before it can be attached to another node".to_owned(),
        (true, _) => format!("Volume is already used by {foreign} pod(s) in different namespaces"),
        (false, 0) => format!("Volume is already used by pod(s) {}", local.join(", ")),
        (false, _) => format!(
            "Volume is already used by pod(s) {} and {foreign} pod(s) in different namespaces",
            local.join(", ")
        ),
    };
    format!("Waiting for detach for volume \"{volume}\" {why}")
}

fn ask(volume: &PersistentVolume, node: &str) -> Option<Create> {
    let (driver, handle) = migrated::driver_and_handle(volume)?;
    let body = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": attachment_name(&handle, &driver, node)},
        "spec": {
            "attacher": driver,
            "nodeName": node,
            "source": {"persistentVolumeName": volume.meta.name},
        },
    });
    Some(Create::new(VolumeAttachment::kind(), "", body.to_string()))
}

/// Upstream's `getAttachmentName`: kubelets work it out, too.
pub(super) fn attachment_name(handle: &str, driver: &str, node: &str) -> String {
    let hash = digest::digest(&digest::SHA256, format!("{handle}{driver}{node}").as_bytes());
    hash.as_ref().iter().fold("csi-".to_owned(), |mut name, byte| {
        for half in [byte >> 4, byte & 15] {
            name.push(char::from_digit(half.into(), 16).unwrap_or('0'));
        }
        name
    })
}

pub(super) fn is_attachment_name(name: &str) -> bool {
    let digits = name.strip_prefix("csi-").unwrap_or_default();
    digits.len() == 2 * digest::SHA256_OUTPUT_LEN
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}
