//! Pods, as controllers, the scheduler and simulated nodes read them.

use super::affinity::Affinity;
use super::affinity::Toleration;
use super::affinity::TopologySpreadConstraint;
use super::container::Container;
use super::container::ContainerStatus;
use super::container::ResourceRequirements;
use super::volume::{Volume, VolumeSource};
use crate::Meta;
use crate::StrMap;
use crate::decode::{Field, Reader, Shape, Wire, WireError, message, view};
use crate::map::Map;
use crate::quantity::Quantity;
use crate::shared::{Recent, fingerprint};
use crate::text::Text;
use crate::time::Timestamp;
use serde::Deserializer;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, LazyLock};

message! {
    /// Pod, with the fields that controllers, scheduler and simulated nodes read.
    pub struct Pod("k8s.io.api.core.v1.Pod") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: PodSpec = 2 "spec",
        /// Observed state of the object.
        status: PodStatus = 3 "status",
    }
}

view!(Pod, "", "v1", "Pod", "pods", true);

/// Desired state of a pod. Equal pods share one [`Arc`] of all fields except those that are particular to each pod; it
/// derefs to the shared part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSpec {
    /// Its node, empty while unscheduled.
    pub node_name: Text,
    /// Host name; empty when it is the pod's name.
    pub hostname: Text,
    common: Arc<CommonPodSpec>,
}

static NOTHING: LazyLock<Arc<CommonPodSpec>> = LazyLock::new(Arc::default);

impl Default for PodSpec {
    fn default() -> Self {
        let (node_name, hostname) = (Text::new(), Text::new());
        Self { node_name, hostname, common: Arc::clone(&NOTHING) }
    }
}

impl Deref for PodSpec {
    type Target = CommonPodSpec;

    fn deref(&self) -> &CommonPodSpec {
        &self.common
    }
}

impl DerefMut for PodSpec {
    fn deref_mut(&mut self) -> &mut CommonPodSpec {
        Arc::make_mut(&mut self.common)
    }
}

impl From<CommonPodSpec> for PodSpec {
    fn from(mut spec: CommonPodSpec) -> Self {
        let [node_name, hostname] = [&mut spec.node_name, &mut spec.hostname].map(std::mem::take);
        // The token volume has a different name in each pod, and no reader needs it.
        if spec.volumes.iter().any(|volume| volume.source == VolumeSource::default()) {
            let mut volumes = std::mem::take(&mut spec.volumes).into_vec();
            volumes.retain(|volume| volume.source != VolumeSource::default());
            spec.volumes = volumes.into();
        }
        Self { node_name, hostname, common: recall(spec) }
    }
}

thread_local! {
    static RECENT: RefCell<Recent<Arc<CommonPodSpec>>> = RefCell::default();
}

/// This spec, shared with an equal one that this thread read lately.
fn recall(spec: CommonPodSpec) -> Arc<CommonPodSpec> {
    let containers = spec.containers.first().map(|container| (&container.name, &container.image));
    let fingerprint =
        fingerprint(&(containers, spec.containers.len(), &spec.node_selector, spec.priority));
    RECENT.with_borrow_mut(|recent| {
        recent.recall(fingerprint, spec, |known, new| **known == *new, Arc::new)
    })
}

impl Field for PodSpec {
    const SHAPE: Shape = CommonPodSpec::SHAPE;
    type Partial = CommonPodSpec;

    fn absent() -> Self {
        Self::default()
    }

    fn from_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        CommonPodSpec::from_json(deserializer).map(Self::from)
    }

    fn open(self) -> CommonPodSpec {
        if Arc::ptr_eq(&self.common, &NOTHING) {
            return CommonPodSpec::default();
        }
        let Self { node_name, hostname, common } = self;
        CommonPodSpec { node_name, hostname, ..Arc::unwrap_or_clone(common) }
    }

    fn merge(
        partial: &mut CommonPodSpec,
        wire: Wire,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        CommonPodSpec::merge(partial, wire, reader)
    }

    fn close(partial: CommonPodSpec) -> Result<Self, WireError> {
        Ok(partial.into())
    }
}

message! {
    /// Desired state of a CommonPod.
    pub struct CommonPodSpec("k8s.io.api.core.v1.PodSpec") {
        /// Volumes.
        volumes: Box<[Volume]> = 1 "volumes",
        /// Run before the containers, in order.
        init_containers: Box<[Container]> = 20 "initContainers",
        /// Containers.
        containers: Box<[Container]> = 2 "containers",
        /// `Always`, `OnFailure` or `Never`.
        restart_policy: Text = 3 "restartPolicy",
        /// Seconds between asking the containers to end and killing them.
        termination_grace_period_seconds: Option<i64> = 4 "terminationGracePeriodSeconds",
        /// Seconds after its start when it is failed.
        active_deadline_seconds: Option<i64> = 5 "activeDeadlineSeconds",
        /// Labels that its node must have.
        node_selector: StrMap = 7 "nodeSelector",
        /// Service account of the pod.
        service_account_name: Text = 8 "serviceAccountName",
        /// Read [`PodSpec::node_name`]; empty here.
        node_name: Text = 10 "nodeName",
        /// Whether it shares the node's network.
        host_network: bool = 11 "hostNetwork",
        /// `false` when the pod has its own user namespace.
        host_users: Option<bool> = 37 "hostUsers",
        /// Read [`PodSpec::hostname`]; empty here.
        hostname: Text = 16 "hostname",
        /// Domain under which the host name is found.
        subdomain: Text = 17 "subdomain",
        /// Affinity of the pod.
        affinity: Option<Box<Affinity>> = 18 "affinity",
        /// Which scheduler places it.
        scheduler_name: Text = 19 "schedulerName",
        /// Tolerations of node taints.
        tolerations: Box<[Toleration]> = 22 "tolerations",
        /// Name its priority came from.
        priority_class_name: Text = 24 "priorityClassName",
        /// Importance among pods.
        priority: Option<i32> = 25 "priority",
        /// Readiness gates.
        readiness_gates: Box<[PodReadinessGate]> = 28 "readinessGates",
        /// `Never`, or `PreemptLowerPriority` (also when empty).
        preemption_policy: Text = 31 "preemptionPolicy",
        /// Overhead of the pod sandbox.
        overhead: Map<Quantity> = 32 "overhead",
        /// How evenly its group must spread.
        topology_spread_constraints: Box<[TopologySpreadConstraint]> = 33 "topologySpreadConstraints",
        /// Scheduling gates.
        scheduling_gates: Box<[PodSchedulingGate]> = 38 "schedulingGates",
        /// Claims to devices.
        resource_claims: Box<[PodResourceClaim]> = 39 "resourceClaims",
        /// Pod-level resources.
        resources: Option<Box<ResourceRequirements>> = 40 "resources",
        /// The group it is scheduled with.
        scheduling_group: Option<Box<PodSchedulingGroup>> = 43 "schedulingGroup",
    }
}

message! {
    /// Observed state of a pod: phase, conditions, containers, addresses.
    pub struct PodStatus("k8s.io.api.core.v1.PodStatus") {
        /// Generation of the spec that this status is of; 0 where unknown.
        observed_generation: i64 = 17 "observedGeneration",
        /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
        phase: Text = 1 "phase",
        /// Conditions.
        conditions: Box<[PodCondition]> = 2 "conditions",
        /// Human-readable reason of the phase.
        message: Text = 3 "message",
        /// Why it is in this phase, in one word.
        reason: Text = 4 "reason",
        /// Node on which preemption makes room for the pod.
        nominated_node_name: Text = 11 "nominatedNodeName",
        /// Address of its node.
        host_ip: Text = 5 "hostIP",
        /// Its address.
        pod_ip: Text = 6 "podIP",
        /// Its addresses, one for each family.
        pod_ips: Box<[PodIp]> = 12 "podIPs",
        /// When its node took it on.
        start_time: Option<Timestamp> = 7 "startTime",
        /// Of its init containers.
        init_container_statuses: Box<[ContainerStatus]> = 10 "initContainerStatuses",
        /// Statuses of the containers.
        container_statuses: Box<[ContainerStatus]> = 8 "containerStatuses",
        /// Of those that were put into it to look around.
        ephemeral_container_statuses: Box<[ContainerStatus]> = 13 "ephemeralContainerStatuses",
        /// `Guaranteed`, `Burstable` or `BestEffort`.
        qos_class: Text = 9 "qosClass",
        /// State of an in-place resize.
        resize: Text = 14 "resize",
        /// ResourceClaims generated for the pod, by their names in the pod spec.
        resource_claim_statuses: Box<[PodResourceClaimStatus]> = 15 "resourceClaimStatuses",
        /// ResourceClaim generated for extended resources that a device class provides.
        extended_resource_claim_status: Option<Box<PodExtendedResourceClaimStatus>> = 18 "extendedResourceClaimStatus",
        /// Actual pod-level resources.
        resources: Option<Box<ResourceRequirements>> = 20 "resources",
        /// Allocated pod-level resources.
        allocated_resources: Map<Quantity> = 19 "allocatedResources",
    }
}

message! {
    /// Condition of a pod, such as `Ready` or `PodScheduled`.
    pub struct PodCondition("k8s.io.api.core.v1.PodCondition") {
        /// Type of the condition.
        type_: Text = 1 "type",
        /// Generation of the spec that it is of; 0 where unknown.
        observed_generation: i64 = 7 "observedGeneration",
        /// `True`, `False` or `Unknown`.
        status: Text = 2 "status",
        /// When the status last changed.
        last_transition_time: Option<Timestamp> = 4 "lastTransitionTime",
        /// Why, in one CamelCase word.
        reason: Text = 5 "reason",
        /// Human-readable message.
        message: Text = 6 "message",
    }
}

message! {
    /// Condition that a pod needs in order to be ready, besides its containers.
    pub struct PodReadinessGate("k8s.io.api.core.v1.PodReadinessGate") {
        /// Type of the condition.
        condition_type: Text = 1 "conditionType",
    }
}

message! {
    /// Gate that holds a pod back from scheduling until it is removed.
    pub struct PodSchedulingGate("k8s.io.api.core.v1.PodSchedulingGate") {
        /// Name of the gate.
        name: Text = 1 "name",
    }
}

message! {
    /// IP address of a pod; one for each IP family.
    pub struct PodIp("k8s.io.api.core.v1.PodIP") {
        /// The address.
        ip: Text = 1 "ip",
    }
}

message! {
    /// ResourceClaim, or template of one, that a pod's containers use.
    pub struct PodResourceClaim("k8s.io.api.core.v1.PodResourceClaim") {
        /// Name within the pod.
        name: Text = 1 "name",
        /// An existing claim.
        resource_claim_name: Text = 3 "resourceClaimName",
        /// ResourceClaimTemplate of the claim.
        resource_claim_template_name: Text = 4 "resourceClaimTemplateName",
    }
}

message! {
    /// ResourceClaim that was created from a template for a pod.
    pub struct PodResourceClaimStatus("k8s.io.api.core.v1.PodResourceClaimStatus") {
        /// Name within the pod.
        name: Text = 1 "name",
        /// The claim's own; none where none is needed.
        resource_claim_name: Option<Text> = 2 "resourceClaimName",
    }
}

message! {
    /// ResourceClaim that the scheduler created for extended resources of a pod.
    pub struct PodExtendedResourceClaimStatus("k8s.io.api.core.v1.PodExtendedResourceClaimStatus") {
        /// Its name.
        resource_claim_name: Text = 2 "resourceClaimName",
    }
}

message! {
    /// Group of pods that are scheduled together (gang scheduling).
    pub struct PodSchedulingGroup("k8s.io.api.core.v1.PodSchedulingGroup") {
        /// Name of the group.
        pod_group_name: Text = 1 "podGroupName",
    }
}
