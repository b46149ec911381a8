//! Which volumes a node gets, and which are taken from it.
//!
//! | documented | where |
//! |---|---|
//! | VolumeAttachments are made | `attach`, `ask` |
//! | VolumeAttachments go, those that are its own | `leaving`, `is_own` |
//! | `accessModes`: `ReadWriteOnce`, `ReadWriteOncePod` | `is_taken` |
//! | `status.volumesAttached` | `report` |
//! | `status.volumesInUse` | `is_mounted` |
//! | forced detach after 6 minutes, `--disable-force-detach-on-timeout` | `leaving` |
//! | taint `node.kubernetes.io/out-of-service` | `leaving`, its pods in `../../core/pod_gc/plan.rs` |
//! | `volumes.kubernetes.io/controller-managed-attach-detach` | `is_managed` |
//! | `--attach-detach-reconcile-sync-period` | `plan` |

use super::Options;
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
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// How long a node that is not ready may hold a volume (upstream's `maxWaitForUnmountDuration`).
const PATIENCE: Duration = Duration::from_secs(360);

/// A node and its volumes.
pub(super) struct Seen {
    pub(super) name: Arc<str>,
    /// `None` where it is gone.
    pub(super) node: Option<Arc<Node>>,
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
    pub(super) volume: Arc<PersistentVolume>,
    pub(super) pods: Vec<Arc<Pod>>,
    /// Other nodes that it is attached to.
    pub(super) elsewhere: Vec<Text>,
    /// Pods there that use it.
    pub(super) others: Vec<Arc<Pod>>,
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
    /// Attachments that are to go, each since when.
    pub(super) leaving: BTreeMap<Text, Timestamp>,
    /// Volumes that were told to be another node's.
    pub(super) told: BTreeSet<Text>,
}

/// What is to be done.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Decision {
    pub(super) plan: Plan,
    pub(super) memory: Memory,
    /// Why volumes were taken that the node may still use, a reason for each.
    pub(super) forced: Vec<&'static str>,
}

/// Whether this controller, and not the kubelet, attaches the node's volumes: that it is said counts, not what is said.
pub(super) fn is_managed(node: &Node) -> bool {
    node.meta.annotations.contains(MANAGED)
}

/// Whether a node's change is of no concern.
pub(super) fn looks_alike(old: &Node, new: &Node) -> bool {
    let out = |node: &Node| node.spec.taints.iter().any(|taint| &*taint.key == OUT_OF_SERVICE);
    old.status.volumes_in_use == new.status.volumes_in_use
        && old.status.volumes_attached == new.status.volumes_attached
        && is_managed(old) == is_managed(new)
        && is_ready(old) == is_ready(new)
        && out(old) == out(new)
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
    is_exclusive(&wanted.volume) && !wanted.elsewhere.is_empty()
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
pub(super) fn plan(seen: &Seen, options: &Options, now: Timestamp) -> Decision {
    let mut decision = Decision::default();
    let leaving = leaving(seen, options, now, &mut decision);
    report(seen, &leaving, &mut decision.plan);
    for held in &leaving {
        decision.plan.push(Delete::new(wire::target(&*held.attachment)));
    }
    attach(seen, &mut decision);
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
        let id = &held.attachment.meta.name;
        let since = seen.memory.leaving.get(id).copied().unwrap_or(now);
        if !is_mounted(seen, held) {
            leaving.push(held);
            continue;
        }
        let patience = SignedDuration::try_from(PATIENCE).unwrap_or_default();
        let until = since.checked_add(patience).unwrap_or(Timestamp::MAX);
        let ready = seen.node.as_deref().is_some_and(is_ready);
        let out_of_service = seen
            .node
            .as_deref()
            .is_some_and(|node| node.spec.taints.iter().any(|taint| &*taint.key == OUT_OF_SERVICE));
        if !ready && options.force && now >= until {
            decision.forced.push("timeout");
            leaving.push(held);
        } else if out_of_service {
            decision.forced.push("out-of-service");
            leaving.push(held);
        } else {
            decision.memory.leaving.insert(id.clone(), since);
            let left = Duration::try_from(until.duration_since(now)).unwrap_or_default();
            if !left.is_zero() && !ready && options.force {
                decision.plan.requeue_after(left);
            }
        }
    }
    leaving
}

/// Whether the node may still use the volume. Of one that is gone nothing is known.
fn is_mounted(seen: &Seen, held: &Held) -> bool {
    let Some(node) = seen.node.as_deref() else { return true };
    held.name.as_ref().is_some_and(|name| node.status.volumes_in_use.contains(name))
}

/// Tells the node what is attached to it: before anything is taken away, so that nothing mounts it meanwhile.
fn report(seen: &Seen, leaving: &[&Held], plan: &mut Plan) {
    let Some(node) = seen.node.as_deref() else { return };
    let stays = |held: &&Held| {
        held.attachment.status.attached
            && !held.attachment.meta.deleting()
            && !leaving.iter().any(|gone| gone.attachment.meta.name == held.attachment.meta.name)
    };
    let attached: Vec<&str> =
        seen.held.iter().filter(stays).filter_map(|held| held.name.as_deref()).collect();
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
        let volume = &one.volume.meta.name;
        let message = format!("AttachVolume.Attach succeeded for volume \"{volume}\" ");
        for pod in &one.pods {
            let of = wire::target(&**pod);
            plan.push(Note::normal(of, "SuccessfulAttachVolume", message.clone()));
        }
    }
}

/// Asks for what is missing.
fn attach(seen: &Seen, decision: &mut Decision) {
    for one in &seen.wanted {
        let held = seen.held.iter().find(|held| held.name.as_ref() == Some(&one.name));
        match held {
            // One that goes must be gone first.
            Some(held) => {
                let error = held.attachment.status.attach_error.as_deref();
                if let Some(error) = error.filter(|_| !held.attachment.status.attached) {
                    let volume = &one.volume.meta.name;
                    tell(
                        one,
                        &mut decision.plan,
                        &format!(
                            "AttachVolume.Attach failed for volume \"{volume}\" : {}",
                            error.message
                        ),
                    );
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
            }
            None if seen.node.is_some() => {
                decision.plan.actions.extend(ask(&one.volume, &seen.name).map(Into::into));
            }
            None => {}
        }
    }
}

fn tell(one: &Wanted, plan: &mut Plan, message: &str) {
    for pod in &one.pods {
        plan.push(Note::warning(wire::target(&**pod), "FailedAttachVolume", message));
    }
}

/// Why a pod waits for another node to let go.
fn taken(one: &Wanted, pod: &Pod) -> String {
    let volume = &one.volume.meta.name;
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

fn is_attachment_name(name: &str) -> bool {
    let digits = name.strip_prefix("csi-").unwrap_or_default();
    digits.len() == 2 * digest::SHA256_OUTPUT_LEN
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}
