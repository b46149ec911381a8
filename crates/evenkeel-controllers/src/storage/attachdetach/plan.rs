//! Attaches and detaches volumes of a node by comparing the desired with the actual state of world. Upstream:
//! `reconciler.go`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | VolumeAttachments are created | `create_attachments`, `new_attachment` |
//! | iSCSI and Fibre Channel | `network_devices_to_report` |
//! | VolumeAttachments of this controller are deleted | `attachments_to_delete`, `is_own` |
//! | `accessModes`: `ReadWriteOnce`, `ReadWriteOncePod` | `is_multi_attach` |
//! | `status.volumesAttached` | `update_node_status` |
//! | `status.volumesInUse` | `is_mounted` |
//! | forced detach after 6 minutes, `--disable-force-detach-on-timeout` | `decide_detach` |
//! | taint `node.kubernetes.io/out-of-service` | `decide_detach`; the node's pods in `../../core/podgc/plan.rs` |
//! | `volumes.kubernetes.io/controller-managed-attach-detach` | `is_managed` |
//! | `--attach-detach-reconcile-sync-period` | `plan` |

use super::Options;
use crate::{
    storage::{iscsi_fc, persistentvolumeclaimprotection},
    wire,
};
use evenkeel_api::{
    Text, View,
    time::{SignedDuration, Timestamp, saturating_add},
    views::{Node, PersistentVolume, Pod, VolumeAttachment},
};
use evenkeel_component_helpers::{
    scheduling::corev1::OUT_OF_SERVICE_TAINT,
    storage::{attach, csi_translation},
};
use evenkeel_runtime::plan::{Create, Delete, EventRecord, OnError, Patch, PatchType, Plan};
use ring::digest;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

/// Annotation of nodes whose volumes the controller attaches.
const MANAGED_ANNOTATION: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// Time after which a volume is force-detached from a node that is not ready. Upstream: `maxWaitForUnmountDuration`.
const MAX_WAIT_FOR_UNMOUNT: Duration = Duration::from_secs(360);
/// Time after which the controller records an event if a CSI driver has not attached a volume. Upstream: `csiTimeout`.
const CSI_TIMEOUT: Duration = Duration::from_secs(120);
/// Lifetime of a reservation. It suffices for the caches to show the attachment.
const RESERVATION_LIFETIME: Duration = Duration::from_secs(10);
/// Delay until the controller checks again a volume that is attached to or reserved for another node.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Observed state of a node and its volumes.
pub(super) struct Observed {
    pub(super) name: Arc<str>,
    /// The node. `None` if it was deleted.
    pub(super) node: Option<Arc<Node>>,
    /// Last observed version of a deleted node, if known.
    pub(super) last_node: Option<Arc<Node>>,
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
    /// The PersistentVolume. `None` for an inline volume.
    pub(super) volume: Option<Arc<PersistentVolume>>,
    pub(super) pods: Vec<Arc<Pod>>,
    /// Other nodes to which the volume is attached.
    pub(super) other_nodes: Vec<Text>,
    /// Pods on other nodes that use the volume. Empty unless it is attached to another node.
    pub(super) pods_elsewhere: Vec<Arc<Pod>>,
}

impl DesiredVolume {
    /// Returns whether the volume can be attached to only one node. False for an inline volume, whose access modes are
    /// unknown.
    fn is_exclusive(&self) -> bool {
        self.volume.as_deref().is_some_and(is_exclusive)
    }
}

/// A VolumeAttachment in the actual state of world.
pub(super) struct AttachedVolume {
    /// Unique volume name. `None` if the PersistentVolume was deleted.
    pub(super) name: Option<Text>,
    pub(super) attachment: Arc<VolumeAttachment>,
}

/// State of a node that is kept between reconciliations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// Unused attachments and network devices that the node may still have mounted, each with the time of the first
    /// attempt to detach.
    pub(super) detaching: BTreeMap<Text, Timestamp>,
    /// Attachments that drivers have not completed, each with the time of its request or of the last event about a
    /// timeout.
    pub(super) requested: BTreeMap<Text, Timestamp>,
    /// Volumes for which the event about multi-attach was recorded.
    pub(super) reported_multi_attach: BTreeSet<Text>,
    /// Exclusive volumes that this reconciliation reserves for the node.
    pub(super) reserved: Vec<Text>,
    /// Reasons of the forced detaches of this reconciliation, one for each volume.
    pub(super) forced_detaches: Vec<&'static str>,
}

impl Memory {
    /// Returns the memory without `reserved` and `forced_detaches`, which concern only this reconciliation. `None` if
    /// both are empty.
    pub(super) fn for_next_reconciliation(&self) -> Option<Self> {
        let is_changed = !self.reserved.is_empty() || !self.forced_detaches.is_empty();
        is_changed.then(|| Self {
            reserved: Vec::new(),
            forced_detaches: Vec::new(),
            ..self.clone()
        })
    }
}

/// Exclusive volumes, by unique name, that are reserved for a node until the caches show the attachment.
#[derive(Debug, Clone, Default)]
pub(super) struct ReservedVolumes(HashMap<Text, Reservation>);

/// Node for which a volume is reserved, because a reconciliation decided to attach it there.
#[derive(Debug, Clone)]
struct Reservation {
    node: Arc<str>,
    reserved_at: Timestamp,
}

impl ReservedVolumes {
    /// Adds the reservations of a decision, and drops those that expired or whose node no longer needs the volume.
    pub(super) fn record(&mut self, observed: &Observed, memory: &Memory, now: Timestamp) {
        let needs = |name: &Text| observed.desired.iter().any(|desired| desired.name == *name);
        self.0.retain(|name, reservation| {
            reservation.is_valid(now) && (reservation.node != observed.name || needs(name))
        });
        for name in &memory.reserved {
            let reservation = Reservation { node: observed.name.clone(), reserved_at: now };
            self.0.insert(name.clone(), reservation);
        }
    }

    /// Returns whether an exclusive volume is reserved for another node.
    fn is_reserved_elsewhere(&self, desired: &DesiredVolume, node: &str, now: Timestamp) -> bool {
        let is_for_other_node =
            |reservation: &Reservation| *reservation.node != *node && reservation.is_valid(now);
        desired.is_exclusive() && self.0.get(&desired.name).is_some_and(is_for_other_node)
    }
}

impl Reservation {
    /// Returns whether the reservation is not too old.
    fn is_valid(&self, now: Timestamp) -> bool {
        Duration::try_from(now.duration_since(self.reserved_at))
            .is_ok_and(|age| age < RESERVATION_LIFETIME)
    }
}

/// Decision of a reconciliation.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Decision {
    pub(super) plan: Plan,
    pub(super) memory: Memory,
}

/// Returns whether this controller, and not the kubelet, attaches the node's volumes. The annotation may have any
/// value.
pub(super) fn is_managed(node: &Node) -> bool {
    node.meta.annotations.contains(MANAGED_ANNOTATION)
}

/// Returns whether an update of a node has no effect on its volumes.
pub(super) fn is_irrelevant_update(old: &Node, new: &Node) -> bool {
    old.status.volumes_in_use == new.status.volumes_in_use
        && old.status.volumes_attached == new.status.volumes_attached
        && is_managed(old) == is_managed(new)
        && is_ready(old) == is_ready(new)
        && is_out_of_service(old) == is_out_of_service(new)
}

/// Returns whether the node has the taint `out-of-service`.
fn is_out_of_service(node: &Node) -> bool {
    node.spec.taints.iter().any(|taint| &*taint.key == OUT_OF_SERVICE_TAINT)
}

/// Returns whether the node's condition `Ready` is `True`.
fn is_ready(node: &Node) -> bool {
    let mut conditions = node.status.conditions.iter();
    conditions.any(|condition| &*condition.type_ == "Ready" && &*condition.status == "True")
}

/// Returns whether the pod needs its volumes, because it is not terminated. Upstream: `IsPodTerminated`.
pub(super) fn needs_volumes(pod: &Pod) -> bool {
    !persistentvolumeclaimprotection::is_terminated(pod)
}

/// Returns whether the volume is exclusive and attached to another node. Upstream: `IsMultiAttachAllowed`.
pub(super) fn is_multi_attach(desired: &DesiredVolume) -> bool {
    desired.is_exclusive() && !desired.other_nodes.is_empty()
}

/// Returns whether the volume can be attached to only one node. Returns false for a volume without access modes.
/// Upstream: `IsMultiAttachAllowed`.
fn is_exclusive(volume: &PersistentVolume) -> bool {
    let modes = &volume.spec.access_modes;
    if volume.spec.source.gce_persistent_disk.is_some() {
        // A GCE persistent disk can be attached to several nodes only for reading, whatever its access modes.
        return modes.iter().any(|mode| &**mode != "ReadOnlyMany");
    }
    let is_for_many_nodes = |mode: &Text| matches!(&**mode, "ReadWriteMany" | "ReadOnlyMany");
    !modes.is_empty() && !modes.iter().any(is_for_many_nodes)
}

/// Decides about the volumes of a node. Upstream: `reconcile`.
pub(super) fn plan(observed: &Observed, options: &Options, now: Timestamp) -> Decision {
    let mut decision = Decision::default();
    let to_delete = attachments_to_delete(observed, options, now, &mut decision);
    let network_devices = network_devices_to_report(observed, options, now, &mut decision);
    update_node_status(observed, &to_delete, &network_devices, &mut decision.plan);
    for attached_volume in &to_delete {
        decision.plan.push(Delete::new(wire::target(&*attached_volume.attachment)));
    }
    create_attachments(observed, now, &mut decision);
    if let Some(period) = options.sync_period
        && !observed.actual.is_empty()
    {
        decision.plan.requeue_after(period);
    }
    decision
}

/// Returns whether this controller created the attachment, according to its name. The controller does not delete other
/// attachments.
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

/// Returns the attachments to delete, because no pod uses their volumes. Upstream: the first part of `reconcile`.
fn attachments_to_delete<'a>(
    observed: &'a Observed,
    options: &Options,
    now: Timestamp,
    decision: &mut Decision,
) -> Vec<&'a AttachedVolume> {
    let mut to_delete = Vec::new();
    for attached_volume in &observed.actual {
        let name = attached_volume.name.as_ref();
        let is_desired = observed.desired.iter().any(|desired| Some(&desired.name) == name);
        if is_desired || attached_volume.attachment.meta.deleting() || !is_own(attached_volume) {
            continue;
        }
        let id = &attached_volume.attachment.meta.name;
        let is_mounted = is_mounted(observed, name);
        if decide_detach(observed, id, is_mounted, options, now, decision) == Detach::Now {
            to_delete.push(attached_volume);
        }
    }
    to_delete
}

/// Returns the network devices to report as attached. These are the devices that pods use and that are not attached to
/// another node, and the devices that the node may still have mounted.
fn network_devices_to_report<'a>(
    observed: &'a Observed,
    options: &Options,
    now: Timestamp,
    decision: &mut Decision,
) -> Vec<&'a Text> {
    let Some(node) = observed.node.as_deref() else { return Vec::new() };
    let reported = node.status.volumes_attached.iter().map(|volume| &volume.name);
    let reported: Vec<&Text> = reported.filter(|name| iscsi_fc::is_iscsi_or_fc(name)).collect();
    let is_desired = |name: &Text| observed.desired.iter().any(|desired| desired.name == *name);
    let mut to_report = Vec::new();
    for name in &reported {
        let is_mounted = is_mounted(observed, Some(*name));
        if is_desired(name)
            || decide_detach(observed, name, is_mounted, options, now, decision) == Detach::Later
        {
            to_report.push(*name);
        }
    }
    for desired in &observed.desired {
        let is_new = iscsi_fc::is_iscsi_or_fc(&desired.name) && !reported.contains(&&desired.name);
        if !is_new {
            continue;
        }
        let is_free = !is_multi_attach(desired)
            && !observed.reserved.is_reserved_elsewhere(desired, &observed.name, now);
        if is_free {
            to_report.push(&desired.name);
        }
    }
    to_report
}

/// Decision about an unused volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detach {
    /// Detach the volume.
    Now,
    /// Keep the volume attached, because the node may have it mounted.
    Later,
}

/// Decides about an unused volume. Records a forced detach, or the time since which the volume waits for it. `id` is
/// the name of the attachment or of the network device. Upstream: `reconcile`.
fn decide_detach(
    observed: &Observed,
    id: &Text,
    is_mounted: bool,
    options: &Options,
    now: Timestamp,
    decision: &mut Decision,
) -> Detach {
    if !is_mounted {
        return Detach::Now;
    }
    let since = observed.memory.detaching.get(id).copied().unwrap_or(now);
    let timeout = SignedDuration::try_from(MAX_WAIT_FOR_UNMOUNT).unwrap_or_default();
    let deadline = saturating_add(since, timeout);
    let node = observed.node.as_deref();
    let is_forced_at_deadline = options.force_detach && !node.is_some_and(is_ready);
    if is_forced_at_deadline && now >= deadline {
        decision.memory.forced_detaches.push("timeout");
        return Detach::Now;
    }
    if node.is_some_and(is_out_of_service) {
        decision.memory.forced_detaches.push("out-of-service");
        return Detach::Now;
    }
    decision.memory.detaching.insert(id.clone(), since);
    let remaining = Duration::try_from(deadline.duration_since(now)).unwrap_or_default();
    if is_forced_at_deadline && !remaining.is_zero() {
        decision.plan.requeue_after(remaining);
    }
    Detach::Later
}

/// Returns whether the node may have the volume mounted. For a deleted node, uses its last known status.
fn is_mounted(observed: &Observed, name: Option<&Text>) -> bool {
    let node = observed.node.as_deref().or(observed.last_node.as_deref());
    let in_use = node.map(|node| &*node.status.volumes_in_use).unwrap_or_default();
    name.is_some_and(|name| in_use.contains(name))
}

/// Updates `volumesAttached` before any detach, so that the kubelet does not mount a volume that is about to be
/// detached. Upstream: `UpdateNodeStatuses`.
fn update_node_status(
    observed: &Observed,
    to_delete: &[&AttachedVolume],
    network_devices: &[&Text],
    plan: &mut Plan,
) {
    let Some(node) = observed.node.as_deref() else { return };
    let stays_attached = |attached_volume: &&AttachedVolume| {
        let attachment = &attached_volume.attachment;
        let is_deleted =
            to_delete.iter().any(|deleted| deleted.attachment.meta.name == attachment.meta.name);
        attachment.status.attached && !attachment.meta.deleting() && !is_deleted
    };
    let stay_attached = observed.actual.iter().filter(stays_attached);
    let names = stay_attached.filter_map(|attached_volume| attached_volume.name.as_ref());
    let attached: Vec<&str> =
        names.chain(network_devices.iter().copied()).map(|name| &**name).collect();
    let reported: Vec<&str> =
        node.status.volumes_attached.iter().map(|volume| &*volume.name).collect();
    let mut to_report: Vec<&str> =
        reported.iter().copied().filter(|name| attached.contains(name)).collect();
    let newly_attached: Vec<&str> =
        attached.into_iter().filter(|name| !reported.contains(name)).collect();
    let has_removed = to_report.len() < reported.len();
    if newly_attached.is_empty() && !has_removed {
        return;
    }
    to_report.extend(&newly_attached);
    let list: Vec<Value> =
        to_report.iter().map(|name| json!({"name": name, "devicePath": ""})).collect();
    let mut body = json!({"metadata": {"uid": node.meta.uid}, "status": {"volumesAttached": list}});
    if has_removed {
        // The kubelet may have mounted a removed volume in the meantime. In that case, the resource version makes the
        // write conflict.
        body["metadata"]["resourceVersion"] = (*node.meta.resource_version).into();
    }
    plan.push(Patch {
        subresource: "status",
        on_error: OnError::SkipRest,
        ..Patch::new(wire::target(node), PatchType::Strategic, body.to_string())
    });
    let is_newly_attached = |desired: &&DesiredVolume| newly_attached.contains(&&*desired.name);
    for desired in observed.desired.iter().filter(is_newly_attached) {
        let volume = &desired.volume_name;
        let message = format!("AttachVolume.Attach succeeded for volume \"{volume}\" ");
        for pod in &desired.pods {
            let target = wire::target(&**pod);
            plan.push(EventRecord::normal(target, "SuccessfulAttachVolume", message.clone()));
        }
    }
}

/// Creates missing attachments, and records events about those that failed. Upstream: `attachDesiredVolumes`.
fn create_attachments(observed: &Observed, now: Timestamp, decision: &mut Decision) {
    for desired in &observed.desired {
        let is_network_device = iscsi_fc::is_iscsi_or_fc(&desired.name);
        if is_network_device && is_reported_attached(observed, &desired.name) {
            continue;
        }
        let has_name = |attached: &&AttachedVolume| attached.name.as_ref() == Some(&desired.name);
        match observed.actual.iter().find(has_name) {
            // The driver has attached the volume. If the attachment is terminating, a new one can only be created
            // after its deletion.
            Some(attached_volume) if attached_volume.attachment.status.attached => {}
            Some(attached_volume) => {
                report_attach_failure(observed, desired, attached_volume, now, decision);
            }
            None if is_multi_attach(desired) => {
                report_multi_attach(observed, desired, decision);
                // When the other node no longer reports the device, no event enqueues this node.
                if is_network_device {
                    decision.plan.requeue_after(RETRY_INTERVAL);
                }
            }
            // The caches will soon show the attachment to the other node.
            None if observed.reserved.is_reserved_elsewhere(desired, &observed.name, now) => {
                decision.plan.requeue_after(RETRY_INTERVAL);
            }
            None if observed.node.is_some() => {
                if desired.is_exclusive() {
                    decision.memory.reserved.push(desired.name.clone());
                }
                let volume = desired.volume.as_deref();
                let create = volume.and_then(|volume| new_attachment(volume, &observed.name));
                decision.plan.actions.extend(create.map(Into::into));
            }
            None => {}
        }
    }
}

/// Records events about an attachment that failed, or that the driver did not complete in time.
fn report_attach_failure(
    observed: &Observed,
    desired: &DesiredVolume,
    attached_volume: &AttachedVolume,
    now: Timestamp,
    decision: &mut Decision,
) {
    let attachment = &attached_volume.attachment;
    let reason = match attachment.status.attach_error.as_deref() {
        Some(error) => Some(error.message.to_string()),
        None if attachment.meta.deleting() => None,
        None => check_attach_timeout(observed, attached_volume, now, decision),
    };
    let Some(reason) = reason else { return };
    let volume = &desired.volume_name;
    let message = format!("AttachVolume.Attach failed for volume \"{volume}\" : {reason}");
    for pod in &desired.pods {
        let event =
            EventRecord::warning(wire::target(&**pod), "FailedAttachVolume", message.clone());
        decision.plan.push(event);
    }
}

/// Records events about a volume that is attached to another node, unless the last reconciliation did. Upstream:
/// `reportMultiAttachError`.
fn report_multi_attach(observed: &Observed, desired: &DesiredVolume, decision: &mut Decision) {
    if !observed.memory.reported_multi_attach.contains(&desired.name) {
        for pod in &desired.pods {
            let message = multi_attach_message(desired, pod);
            let event = EventRecord::warning(wire::target(&**pod), "FailedAttachVolume", message);
            decision.plan.push(event);
        }
    }
    decision.memory.reported_multi_attach.insert(desired.name.clone());
}

/// Returns a message about an attachment that the driver did not complete, once in each [`CSI_TIMEOUT`]. Records the
/// start of the current interval, and requeues the node at its end.
fn check_attach_timeout(
    observed: &Observed,
    attached_volume: &AttachedVolume,
    now: Timestamp,
    decision: &mut Decision,
) -> Option<String> {
    let id = &attached_volume.attachment.meta.name;
    let since = observed.memory.requested.get(id).copied().unwrap_or(now);
    let waited = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    let has_timed_out = waited >= CSI_TIMEOUT;
    decision.memory.requested.insert(id.clone(), if has_timed_out { now } else { since });
    let remaining = if has_timed_out { CSI_TIMEOUT } else { CSI_TIMEOUT - waited };
    decision.plan.requeue_after(remaining);
    let (driver, handle) = attach::split_attached_name(attached_volume.name.as_deref()?)?;
    has_timed_out.then(|| {
        format!("timed out waiting for external-attacher of {driver} CSI driver to attach volume {handle}")
    })
}

/// Returns whether the node's status shows the volume as attached.
fn is_reported_attached(observed: &Observed, name: &Text) -> bool {
    observed
        .node
        .as_deref()
        .is_some_and(|node| node.status.volumes_attached.iter().any(|volume| volume.name == *name))
}

/// Returns the message for a pod about a volume that is attached to another node. It names only pods of the pod's own
/// namespace. Upstream: `reportMultiAttachError`.
fn multi_attach_message(desired: &DesiredVolume, pod: &Pod) -> String {
    let volume = &desired.volume_name;
    let users = &desired.pods_elsewhere;
    let is_same_namespace = |other: &&Arc<Pod>| other.meta.namespace == pod.meta.namespace;
    let local: Vec<&str> =
        users.iter().filter(is_same_namespace).map(|pod| &*pod.meta.name).collect();
    let foreign = users.len() - local.len();
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

/// Returns the creation of a VolumeAttachment, or `None` if no CSI driver attaches the volume.
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
        for digit in [byte >> 4, byte & 15] {
            name.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
        }
        name
    })
}

/// Returns whether a VolumeAttachment's name has the form of [`attachment_name`].
pub(super) fn is_attachment_name(name: &str) -> bool {
    let digits = name.strip_prefix("csi-").unwrap_or_default();
    digits.len() == 2 * digest::SHA256_OUTPUT_LEN
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}
