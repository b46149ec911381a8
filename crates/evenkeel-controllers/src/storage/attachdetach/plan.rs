//! Attaches and detaches volumes of a node by comparing the desired with the actual state of world. Upstream:
//! `reconciler.go`.
//!
//! | documented | where |
//! |---|---|
//! | VolumeAttachments are created | `create_attachments`, `new_attachment` |
//! | iSCSI and Fibre Channel | `network_devices` |
//! | VolumeAttachments of this controller are deleted | `detaching`, `is_own` |
//! | `accessModes`: `ReadWriteOnce`, `ReadWriteOncePod` | `is_multi_attach` |
//! | `status.volumesAttached` | `update_node_status` |
//! | `status.volumesInUse` | `is_mounted` |
//! | forced detach after 6 minutes, `--disable-force-detach-on-timeout` | `detaching` |
//! | taint `node.kubernetes.io/out-of-service` | `can_detach`; the node's pods in `../../core/podgc/plan.rs` |
//! | `volumes.kubernetes.io/controller-managed-attach-detach` | `is_managed` |
//! | `--attach-detach-reconcile-sync-period` | `plan` |

use super::{Options, iscsi_fc};
use crate::{storage::persistentvolumeclaimprotection, wire};
use evenkeel_api::{
    Text, View,
    time::{SignedDuration, Timestamp, saturating_add},
    views::{Node, PersistentVolume, Pod, VolumeAttachment},
};
use evenkeel_component_helpers::storage::{attach, csi_translation};
use evenkeel_runtime::plan::{Create, Delete, EventRecord, OnError, Patch, PatchForm, Plan};
use ring::digest;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

/// Annotation of nodes whose volumes the controller attaches.
const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// Time after which a volume is force-detached from a node that is not ready. Upstream: `maxWaitForUnmountDuration`.
const MAX_WAIT_FOR_UNMOUNT: Duration = Duration::from_secs(360);
/// Time that a CSI driver has to attach a volume before an event is recorded. Upstream: `csiTimeout`.
const CSI_TIMEOUT: Duration = Duration::from_secs(120);
/// Lifetime of a reservation. After it, the caches show the attachment.
const RESERVATION_LIFETIME: Duration = Duration::from_secs(10);
/// Delay until a volume that is attached or reserved elsewhere is checked again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Observed state of a node and its volumes.
pub(super) struct Observed {
    pub(super) name: Arc<str>,
    /// The node; `None` if it was deleted.
    pub(super) node: Option<Arc<Node>>,
    /// Last observed version of a deleted node, if known.
    pub(super) last: Option<Arc<Node>>,
    /// Desired state of world: volumes that the node's pods use, sorted by name. Upstream: `DesiredStateOfWorld`.
    pub(super) desired: Vec<DesiredVolume>,
    /// Actual state of world: attachments to the node, sorted by name. Upstream: `ActualStateOfWorld`.
    pub(super) actual: Vec<AttachedVolume>,
    pub(super) memory: Memory,
    /// Reservations of all nodes.
    pub(super) reserved: ReservedVolumes,
}

/// A volume in the desired state of world.
pub(super) struct DesiredVolume {
    /// Unique volume name in the form of the node's status.
    pub(super) name: Text,
    /// Name of the PersistentVolume or of the pod's inline volume, for messages.
    pub(super) volume_name: Text,
    /// The PersistentVolume; `None` for an inline volume.
    pub(super) volume: Option<Arc<PersistentVolume>>,
    pub(super) pods: Vec<Arc<Pod>>,
    /// Other nodes that the volume is attached to.
    pub(super) elsewhere: Vec<Text>,
    /// Pods on other nodes that use the volume.
    pub(super) others: Vec<Arc<Pod>>,
}

impl DesiredVolume {
    /// Reports whether the volume can be attached to only one node. Returns false for an inline volume, whose access
    /// modes are unknown.
    fn is_exclusive(&self) -> bool {
        self.volume.as_deref().is_some_and(is_exclusive)
    }
}

/// A VolumeAttachment in the actual state of world.
pub(super) struct AttachedVolume {
    /// Unique volume name; `None` if the PersistentVolume was deleted.
    pub(super) name: Option<Text>,
    pub(super) attachment: Arc<VolumeAttachment>,
}

/// State of a node that is kept between passes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// Attachments and network devices to detach, with the time of the first attempt to detach each.
    pub(super) detaching: BTreeMap<Text, Timestamp>,
    /// Attachments that drivers have not completed, with the time of the request or of the last event about it.
    pub(super) requested: BTreeMap<Text, Timestamp>,
    /// Volumes for which the event about multi-attach was recorded.
    pub(super) reported_multi_attach: BTreeSet<Text>,
    /// Exclusive volumes that this plan reserves for the node. It is cleared after the pass.
    pub(super) reserved: Vec<Text>,
    /// Reasons of this plan's forced detaches, one for each volume. It is cleared after the pass.
    pub(super) forced: Vec<&'static str>,
}

impl Memory {
    /// Returns the memory without the parts that concern only this pass, or `None` if it has no such parts.
    pub(super) fn of_next_pass(&self) -> Option<Self> {
        let is_changed = !self.reserved.is_empty() || !self.forced.is_empty();
        is_changed.then(|| Self { reserved: Vec::new(), forced: Vec::new(), ..self.clone() })
    }
}

/// Exclusive volumes that are reserved for a node until the caches show the attachment.
#[derive(Debug, Clone, Default)]
pub(super) struct ReservedVolumes(HashMap<Text, (Arc<str>, Timestamp)>);

impl ReservedVolumes {
    /// Adds the reservations of a decision, and drops those that expired or whose node no longer needs the volume.
    pub(super) fn record(&mut self, observed: &Observed, memory: &Memory, now: Timestamp) {
        let wants = |name: &Text| observed.desired.iter().any(|one| one.name == *name);
        self.0.retain(|name, (node, since)| {
            is_fresh(*since, now) && (*node != observed.name || wants(name))
        });
        let fresh = memory.reserved.iter().map(|name| (name.clone(), (observed.name.clone(), now)));
        self.0.extend(fresh);
    }

    /// Reports whether an exclusive volume is reserved for another node.
    fn is_reserved_elsewhere(&self, desired: &DesiredVolume, node: &str, now: Timestamp) -> bool {
        desired.is_exclusive()
            && (self.0.get(&desired.name))
                .is_some_and(|(other, since)| **other != *node && is_fresh(*since, now))
    }
}

fn is_fresh(since: Timestamp, now: Timestamp) -> bool {
    Duration::try_from(now.duration_since(since)).is_ok_and(|age| age < RESERVATION_LIFETIME)
}

/// Decision of a reconciliation.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Decision {
    pub(super) plan: Plan,
    pub(super) memory: Memory,
}

/// Reports whether this controller, and not the kubelet, attaches the node's volumes. The annotation may have any
/// value.
pub(super) fn is_managed(node: &Node) -> bool {
    node.meta.annotations.contains(MANAGED)
}

/// Reports whether a node's update does not matter for its volumes.
pub(super) fn is_irrelevant_update(old: &Node, new: &Node) -> bool {
    old.status.volumes_in_use == new.status.volumes_in_use
        && old.status.volumes_attached == new.status.volumes_attached
        && is_managed(old) == is_managed(new)
        && is_ready(old) == is_ready(new)
        && is_out_of_service(old) == is_out_of_service(new)
}

fn is_out_of_service(node: &Node) -> bool {
    node.spec.taints.iter().any(|taint| &*taint.key == OUT_OF_SERVICE)
}

fn is_ready(node: &Node) -> bool {
    let mut conditions = node.status.conditions.iter();
    conditions.any(|condition| &*condition.type_ == "Ready" && &*condition.status == "True")
}

/// Reports whether the pod needs its volumes, because it is not terminated. Upstream: `IsPodTerminated`.
pub(super) fn needs_volumes(pod: &Pod) -> bool {
    !persistentvolumeclaimprotection::is_terminated(pod)
}

/// Reports whether the volume is exclusive and attached to another node. Upstream: `IsMultiAttachAllowed`.
pub(super) fn is_multi_attach(desired: &DesiredVolume) -> bool {
    desired.is_exclusive() && !desired.elsewhere.is_empty()
}

/// Reports whether the volume can be attached to only one node. Returns false for a volume without access modes.
/// Upstream: `IsMultiAttachAllowed`.
fn is_exclusive(volume: &PersistentVolume) -> bool {
    let modes = &volume.spec.access_modes;
    let many_nodes = |mode: &str| matches!(mode, "ReadWriteMany" | "ReadOnlyMany");
    let only_read = |mode: &str| mode == "ReadOnlyMany";
    if volume.spec.source.gce_persistent_disk.is_some() {
        // A GCE persistent disk can be attached to several nodes only for reading, whatever its access modes.
        return !modes.iter().all(|mode| only_read(mode));
    }
    !modes.is_empty() && !modes.iter().any(|mode| many_nodes(mode))
}

/// Decides about the volumes of a node. Upstream: `reconcile`.
pub(super) fn plan(observed: &Observed, options: &Options, now: Timestamp) -> Decision {
    let mut decision = Decision::default();
    let detaching = detaching(observed, options, now, &mut decision);
    let network_devices = network_devices(observed, options, now, &mut decision);
    update_node_status(observed, &detaching, &network_devices, &mut decision.plan);
    for attached_volume in &detaching {
        decision.plan.push(Delete::new(wire::target(&*attached_volume.attachment)));
    }
    create_attachments(observed, now, &mut decision);
    if let Some(period) = options.sync_period.filter(|_| !observed.actual.is_empty()) {
        decision.plan.requeue_after(period);
    }
    decision
}

/// Reports whether this controller created the attachment, judging by its name. It does not touch other attachments.
fn is_own(attached_volume: &AttachedVolume) -> bool {
    let attachment = &attached_volume.attachment;
    let Some(name) = &attached_volume.name else {
        // Without the PersistentVolume, the expected name cannot be computed.
        return is_attachment_name(&attachment.meta.name);
    };
    attach::split_attached_name(name).is_some_and(|(driver, handle)| {
        attachment_name(handle, driver, &attachment.spec.node_name) == *attachment.meta.name
    })
}

/// Returns the attachments to delete. Upstream: `reconcile`, its detach part.
fn detaching<'a>(
    observed: &'a Observed,
    options: &Options,
    now: Timestamp,
    decision: &mut Decision,
) -> Vec<&'a AttachedVolume> {
    let mut detaching = Vec::new();
    for attached_volume in &observed.actual {
        let desired =
            observed.desired.iter().any(|one| Some(&one.name) == attached_volume.name.as_ref());
        if desired || attached_volume.attachment.meta.deleting() || !is_own(attached_volume) {
            continue;
        }
        let (id, mounted) = (
            &attached_volume.attachment.meta.name,
            is_mounted(observed, attached_volume.name.as_ref()),
        );
        if can_detach(observed, id, mounted, options, now, decision) {
            detaching.push(attached_volume);
        }
    }
    detaching
}

/// Returns the network devices to report as attached. These are the devices that pods use and no other node has, and
/// the devices that the node may still have mounted.
fn network_devices<'a>(
    observed: &'a Observed,
    options: &Options,
    now: Timestamp,
    decision: &mut Decision,
) -> Vec<&'a Text> {
    let Some(node) = observed.node.as_deref() else { return Vec::new() };
    let known = node.status.volumes_attached.iter().map(|one| &one.name);
    let known: Vec<&Text> = known.filter(|name| iscsi_fc::is_iscsi_or_fc(name)).collect();
    let desired = || observed.desired.iter().filter(|one| iscsi_fc::is_iscsi_or_fc(&one.name));
    let mut network_devices = Vec::new();
    for name in &known {
        let mounted = is_mounted(observed, Some(*name));
        if desired().any(|one| one.name == **name)
            || !can_detach(observed, name, mounted, options, now, decision)
        {
            network_devices.push(*name);
        }
    }
    let new = desired().filter(|one| !known.contains(&&one.name) && !is_multi_attach(one));
    network_devices.extend(
        new.filter(|one| !observed.reserved.is_reserved_elsewhere(one, &observed.name, now))
            .map(|one| &one.name),
    );
    network_devices
}

/// Reports whether an unused volume can be detached now. If not, schedules the forced detach. Upstream: `reconcile`.
fn can_detach(
    observed: &Observed,
    id: &Text,
    mounted: bool,
    options: &Options,
    now: Timestamp,
    decision: &mut Decision,
) -> bool {
    if !mounted {
        return true;
    }
    let since = observed.memory.detaching.get(id).copied().unwrap_or(now);
    let timeout = SignedDuration::try_from(MAX_WAIT_FOR_UNMOUNT).unwrap_or_default();
    let until = saturating_add(since, timeout);
    let node = observed.node.as_deref();
    let ready = node.is_some_and(is_ready);
    if !ready && options.force && now >= until {
        decision.memory.forced.push("timeout");
        return true;
    }
    if node.is_some_and(is_out_of_service) {
        decision.memory.forced.push("out-of-service");
        return true;
    }
    decision.memory.detaching.insert(id.clone(), since);
    let remaining = Duration::try_from(until.duration_since(now)).unwrap_or_default();
    if !remaining.is_zero() && !ready && options.force {
        decision.plan.requeue_after(remaining);
    }
    false
}

/// Reports whether the node may have the volume mounted. For a deleted node, its last known status decides.
fn is_mounted(observed: &Observed, name: Option<&Text>) -> bool {
    let node = observed.node.as_deref().or(observed.last.as_deref());
    let in_use = node.map(|node| &*node.status.volumes_in_use).unwrap_or_default();
    name.is_some_and(|name| in_use.contains(name))
}

/// Updates `volumesAttached` before any detach, so that the kubelet does not mount a volume that is about to be
/// detached. Upstream: `UpdateNodeStatuses`.
fn update_node_status(
    observed: &Observed,
    detaching: &[&AttachedVolume],
    network_devices: &[&Text],
    plan: &mut Plan,
) {
    let Some(node) = observed.node.as_deref() else { return };
    let stays = |attached_volume: &&AttachedVolume| {
        attached_volume.attachment.status.attached
            && !attached_volume.attachment.meta.deleting()
            && !detaching.iter().any(|detached| {
                detached.attachment.meta.name == attached_volume.attachment.meta.name
            })
    };
    let attached_volume = observed
        .actual
        .iter()
        .filter(stays)
        .filter_map(|attached_volume| attached_volume.name.as_ref());
    let attached: Vec<&str> =
        attached_volume.chain(network_devices.iter().copied()).map(|name| &**name).collect();
    let known: Vec<&str> = node.status.volumes_attached.iter().map(|one| &*one.name).collect();
    let mut still_attached: Vec<&str> =
        known.iter().copied().filter(|name| attached.contains(name)).collect();
    let new: Vec<&str> = attached.into_iter().filter(|name| !known.contains(name)).collect();
    if new.is_empty() && still_attached.len() == known.len() {
        return;
    }
    still_attached.extend(&new);
    let list: Vec<Value> =
        still_attached.iter().map(|name| json!({"name": name, "devicePath": ""})).collect();
    let mut body = json!({"metadata": {"uid": node.meta.uid}, "status": {"volumesAttached": list}});
    if still_attached.len() < known.len() + new.len() {
        // The kubelet may have mounted a removed volume in the meantime. In that case, the resource version makes the
        // write conflict.
        body["metadata"]["resourceVersion"] = (*node.meta.resource_version).into();
    }
    plan.push(Patch {
        subresource: "status",
        on_error: OnError::SkipRest,
        ..Patch::new(wire::target(node), PatchForm::Strategic, body.to_string())
    });
    for one in observed.desired.iter().filter(|one| new.contains(&&*one.name)) {
        let message = format!("AttachVolume.Attach succeeded for volume \"{}\" ", one.volume_name);
        for pod in &one.pods {
            let target = wire::target(&**pod);
            plan.push(EventRecord::normal(target, "SuccessfulAttachVolume", message.clone()));
        }
    }
}

/// Creates missing attachments, and records events about those that failed. Upstream: `attachDesiredVolumes`.
fn create_attachments(observed: &Observed, now: Timestamp, decision: &mut Decision) {
    for one in &observed.desired {
        let device = iscsi_fc::is_iscsi_or_fc(&one.name);
        if device && is_reported_attached(observed, &one.name) {
            continue;
        }
        let attached_volume = observed
            .actual
            .iter()
            .find(|attached_volume| attached_volume.name.as_ref() == Some(&one.name));
        match attached_volume {
            // The driver has attached the volume. If the attachment is terminating, a new one can only be created
            // after its deletion.
            Some(attached_volume) if attached_volume.attachment.status.attached => {}
            Some(attached_volume) => {
                let volume = &one.volume_name;
                let failed = format!("AttachVolume.Attach failed for volume \"{volume}\" : ");
                if let Some(error) = attached_volume.attachment.status.attach_error.as_deref() {
                    record_attach_failure(
                        one,
                        &mut decision.plan,
                        &format!("{failed}{}", error.message),
                    );
                } else if !attached_volume.attachment.meta.deleting()
                    && let Some(timeout) = attach_timeout(observed, attached_volume, now, decision)
                {
                    record_attach_failure(one, &mut decision.plan, &format!("{failed}{timeout}"));
                }
            }
            None if is_multi_attach(one) => {
                if !observed.memory.reported_multi_attach.contains(&one.name) {
                    for pod in &one.pods {
                        let target = wire::target(&**pod);
                        let message = multi_attach_message(one, pod);
                        decision.plan.push(EventRecord::warning(
                            target,
                            "FailedAttachVolume",
                            message,
                        ));
                    }
                }
                decision.memory.reported_multi_attach.insert(one.name.clone());
                if device {
                    decision.plan.requeue_after(RETRY_INTERVAL);
                }
            }
            // The caches will soon show the attachment to the other node.
            None if observed.reserved.is_reserved_elsewhere(one, &observed.name, now) => {
                decision.plan.requeue_after(RETRY_INTERVAL);
            }
            None if observed.node.is_some() => {
                if one.is_exclusive() {
                    decision.memory.reserved.push(one.name.clone());
                }
                let requested =
                    one.volume.as_deref().and_then(|volume| new_attachment(volume, &observed.name));
                decision.plan.actions.extend(requested.map(Into::into));
            }
            None => {}
        }
    }
}

/// Returns the event message for an attachment that the driver did not complete, once per [`CSI_TIMEOUT`].
fn attach_timeout(
    observed: &Observed,
    attached_volume: &AttachedVolume,
    now: Timestamp,
    decision: &mut Decision,
) -> Option<String> {
    let id = &attached_volume.attachment.meta.name;
    let mut since = observed.memory.requested.get(id).copied().unwrap_or(now);
    let waited = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    let timed_out = waited >= CSI_TIMEOUT;
    if timed_out {
        since = now;
    }
    decision.memory.requested.insert(id.clone(), since);
    let left = CSI_TIMEOUT.checked_sub(waited).filter(|left| !left.is_zero());
    decision.plan.requeue_after(left.unwrap_or(CSI_TIMEOUT));
    let (driver, handle) = attach::split_attached_name(attached_volume.name.as_deref()?)?;
    timed_out.then(|| {
        format!("timed out waiting for external-attacher of {driver} CSI driver to attach volume {handle}")
    })
}

/// Reports whether the node's status shows the volume as attached.
fn is_reported_attached(observed: &Observed, name: &Text) -> bool {
    observed
        .node
        .as_deref()
        .is_some_and(|node| node.status.volumes_attached.iter().any(|one| one.name == *name))
}

fn record_attach_failure(one: &DesiredVolume, plan: &mut Plan, message: &str) {
    for pod in &one.pods {
        plan.push(EventRecord::warning(wire::target(&**pod), "FailedAttachVolume", message));
    }
}

/// Returns the message about a volume that is attached elsewhere. Upstream: `reportMultiAttachError`.
fn multi_attach_message(one: &DesiredVolume, pod: &Pod) -> String {
    let volume = &one.volume_name;
    let is_same_namespace = |other: &&Arc<Pod>| other.meta.namespace == pod.meta.namespace;
    let local: Vec<&str> =
        one.others.iter().filter(is_same_namespace).map(|pod| &*pod.meta.name).collect();
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

fn new_attachment(volume: &PersistentVolume, node: &str) -> Option<Create> {
    let (driver, handle) = csi_translation::driver_and_handle(volume)?;
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

/// Returns the name of a VolumeAttachment. Kubelets compute the same name. Upstream: `getAttachmentName`.
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
