//! Pods with the fields that controllers, the scheduler and simulated nodes read.

use super::affinity::Affinity;
use super::affinity::Toleration;
use super::affinity::TopologySpreadConstraint;
use super::container::Container;
use super::container::ContainerStatus;
use super::container::EphemeralContainer;
use super::container::ResourceRequirements;
use super::volume::{Volume, VolumeSource};
use crate::Meta;
use crate::StrMap;
use crate::decode::{DecodedAs, Field, Reader, Shape, Slot, Wire, WireError, message, view};
use crate::map::Map;
use crate::quantity::Quantity;
use crate::shared::{Recent, fingerprint_of};
use crate::text::Text;
use crate::time::Timestamp;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, LazyLock};

message! {
    /// Pod with the fields that controllers, the scheduler and simulated nodes read.
    pub struct Pod("k8s.io.api.core.v1.Pod") {
        /// Metadata; the controlling owner is the workload that created the pod.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: PodSpec = 2 "spec",
        /// Observed state of the object.
        status: PodStatus = 3 "status",
    }
}

view!(Pod, "", "v1", "Pod", "pods", namespaced);

/// Desired state of a pod. Equal pods share one [`Arc`] with the fields that do not differ between pods. The type
/// dereferences to these shared fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSpec {
    /// Name of the pod's node; empty while the pod is unscheduled.
    pub node_name: Text,
    /// Host name; empty for the pod's name.
    pub hostname: Text,
    common: Arc<CommonPodSpec>,
}

/// Shared fields of the default spec.
static DEFAULT_SPEC: LazyLock<Arc<CommonPodSpec>> = LazyLock::new(Arc::default);

impl Default for PodSpec {
    fn default() -> Self {
        let (node_name, hostname) = (Text::new(), Text::new());
        Self { node_name, hostname, common: Arc::clone(&DEFAULT_SPEC) }
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
        // Drop volumes whose source is not decoded. The token volume has a different name in each pod, and no reader
        // needs it.
        if spec.volumes.iter().any(|volume| volume.source == VolumeSource::default()) {
            let mut volumes = std::mem::take(&mut spec.volumes).into_vec();
            volumes.retain(|volume| volume.source != VolumeSource::default());
            spec.volumes = volumes.into();
        }
        Self { node_name, hostname, common: intern(spec) }
    }
}

thread_local! {
    static RECENT: RefCell<Recent<Arc<CommonPodSpec>>> = RefCell::default();
}

/// Returns the spec, which is shared with an equal one that this thread decoded recently.
fn intern(spec: CommonPodSpec) -> Arc<CommonPodSpec> {
    let containers = spec.containers.first().map(|container| (&container.name, &container.image));
    let fingerprint =
        fingerprint_of(&(containers, spec.containers.len(), &spec.node_selector, spec.priority));
    RECENT.with_borrow_mut(|recent| {
        recent.intern(fingerprint, spec, |known, new| **known == *new, Arc::new)
    })
}

impl DecodedAs for PodSpec {
    type Source = CommonPodSpec;
}

impl Field for PodSpec {
    const SHAPE: Shape = CommonPodSpec::SHAPE;
    type Partial = CommonPodSpec;

    fn absent() -> Self {
        Self::default()
    }

    fn slot(&mut self) -> Slot<'_> {
        Slot::Converted(self)
    }

    fn into_partial(self) -> CommonPodSpec {
        if Arc::ptr_eq(&self.common, &DEFAULT_SPEC) {
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

    fn finish(partial: CommonPodSpec) -> Result<Self, WireError> {
        Ok(partial.into())
    }
}

message! {
    /// Fields of a pod spec that equal pods share.
    pub struct CommonPodSpec("k8s.io.api.core.v1.PodSpec") {
        /// Volumes that the containers can mount.
        volumes: Box<[Volume]> = 1 "volumes",
        /// Containers that run one after the other before `containers`. Those with `restartPolicy: Always` are
        /// sidecars.
        init_containers: Box<[Container]> = 20 "initContainers",
        /// Main containers, which run for the pod's lifetime; at least one.
        containers: Box<[Container]> = 2 "containers",
        /// Containers that users have added for debugging.
        ephemeral_containers: Box<[EphemeralContainer]> = 34 "ephemeralContainers",
        /// `Always`, `OnFailure` or `Never`.
        restart_policy: Text = 3 "restartPolicy",
        /// Seconds from SIGTERM to SIGKILL of the containers; 30 by default.
        termination_grace_period_seconds: Option<i64> = 4 "terminationGracePeriodSeconds",
        /// Seconds after the start time at which the kubelet fails the pod; no limit if absent.
        active_deadline_seconds: Option<i64> = 5 "activeDeadlineSeconds",
        /// Labels that the pod's node must have.
        node_selector: StrMap = 7 "nodeSelector",
        /// Service account of the pod.
        service_account_name: Text = 8 "serviceAccountName",
        /// Always empty here; use [`PodSpec::node_name`].
        node_name: Text = 10 "nodeName",
        /// Whether the pod uses the node's network.
        host_network: bool = 11 "hostNetwork",
        /// Whether the pod uses the node's user namespace; if false, it has its own.
        host_users: Option<bool> = 37 "hostUsers",
        /// Always empty here; use [`PodSpec::hostname`].
        hostname: Text = 16 "hostname",
        /// DNS label in the pod's name `hostname.subdomain.namespace.svc` plus cluster domain; empty for none.
        subdomain: Text = 17 "subdomain",
        /// Affinity to nodes and pods, and anti-affinity to pods.
        affinity: Option<Box<Affinity>> = 18 "affinity",
        /// Name of the scheduler profile; `default-scheduler` by default.
        scheduler_name: Text = 19 "schedulerName",
        /// Tolerations of node taints.
        tolerations: Box<[Toleration]> = 22 "tolerations",
        /// PriorityClass whose value admission sets as the priority; empty for the default class.
        priority_class_name: Text = 24 "priorityClassName",
        /// Priority among pods, set by admission; a higher one is more important.
        priority: Option<i32> = 25 "priority",
        /// Conditions that must be true for the pod to be ready, besides ready containers.
        readiness_gates: Box<[PodReadinessGate]> = 28 "readinessGates",
        /// `Never`, or `PreemptLowerPriority` (also when empty).
        preemption_policy: Text = 31 "preemptionPolicy",
        /// Overhead of the pod sandbox.
        overhead: Map<Quantity> = 32 "overhead",
        /// Constraints on the spread of matching pods over topology domains.
        topology_spread_constraints: Box<[TopologySpreadConstraint]> = 33 "topologySpreadConstraints",
        /// Scheduling gates; the scheduler ignores the pod until all are removed.
        scheduling_gates: Box<[PodSchedulingGate]> = 38 "schedulingGates",
        /// ResourceClaims that must be allocated and reserved before the pod starts.
        resource_claims: Box<[PodResourceClaim]> = 39 "resourceClaims",
        /// Requests and limits of the whole pod; if absent, the sums over the containers apply.
        resources: Option<Box<ResourceRequirements>> = 40 "resources",
        /// PodGroup that the pod is scheduled with; absent for none.
        scheduling_group: Option<Box<PodSchedulingGroup>> = 43 "schedulingGroup",
    }
}

message! {
    /// Observed state of a pod: phase, conditions, containers, addresses.
    pub struct PodStatus("k8s.io.api.core.v1.PodStatus") {
        /// Generation of the spec that this status describes; 0 if unknown.
        observed_generation: i64 = 17 "observedGeneration",
        /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
        phase: Text = 1 "phase",
        /// Conditions such as `PodScheduled`, `ContainersReady` and `Ready`.
        conditions: Box<[PodCondition]> = 2 "conditions",
        /// Details of the phase, for people.
        message: Text = 3 "message",
        /// CamelCase reason of the phase, such as `Evicted`; mostly empty.
        reason: Text = 4 "reason",
        /// Node on which preemption makes room for the pod.
        nominated_node_name: Text = 11 "nominatedNodeName",
        /// IP address of the pod's node; empty while unscheduled.
        host_ip: Text = 5 "hostIP",
        /// Primary IP address of the pod, the first of `podIPs`; empty until the kubelet allocates it.
        pod_ip: Text = 6 "podIP",
        /// IP addresses of the pod, at most one per IP family.
        pod_ips: Box<[PodIp]> = 12 "podIPs",
        /// Time at which the kubelet acknowledged the pod, before it pulled images.
        start_time: Option<Timestamp> = 7 "startTime",
        /// Statuses of the init containers.
        init_container_statuses: Box<[ContainerStatus]> = 10 "initContainerStatuses",
        /// Statuses of the containers.
        container_statuses: Box<[ContainerStatus]> = 8 "containerStatuses",
        /// Statuses of the ephemeral containers, which users add for debugging.
        ephemeral_container_statuses: Box<[ContainerStatus]> = 13 "ephemeralContainerStatuses",
        /// QoS class: `Guaranteed`, `Burstable` or `BestEffort`.
        qos_class: Text = 9 "qosClass",
        /// State of an in-place resize; deprecated in favor of conditions.
        resize: Text = 14 "resize",
        /// ResourceClaims generated for the pod, by name in the pod spec.
        resource_claim_statuses: Box<[PodResourceClaimStatus]> = 15 "resourceClaimStatuses",
        /// ResourceClaim generated for extended resources that a DeviceClass provides.
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
        /// Generation of the spec that the condition describes; 0 if unknown.
        observed_generation: i64 = 7 "observedGeneration",
        /// `True`, `False` or `Unknown`.
        status: Text = 2 "status",
        /// Time of the last change of the status.
        last_transition_time: Option<Timestamp> = 4 "lastTransitionTime",
        /// Reason for the last transition, in CamelCase.
        reason: Text = 5 "reason",
        /// Details of the last transition, for people.
        message: Text = 6 "message",
    }
}

message! {
    /// Condition that must be true for a pod to be ready, besides ready containers.
    pub struct PodReadinessGate("k8s.io.api.core.v1.PodReadinessGate") {
        /// Type of the condition.
        condition_type: Text = 1 "conditionType",
    }
}

message! {
    /// Gate that keeps a pod from being scheduled until it is removed.
    pub struct PodSchedulingGate("k8s.io.api.core.v1.PodSchedulingGate") {
        /// Name of the gate.
        name: Text = 1 "name",
    }
}

message! {
    /// IP address of a pod, one per IP family.
    pub struct PodIp("k8s.io.api.core.v1.PodIP") {
        /// IPv4 or IPv6 address.
        ip: Text = 1 "ip",
    }
}

message! {
    /// ResourceClaim that a pod's containers use, or its template.
    pub struct PodResourceClaim("k8s.io.api.core.v1.PodResourceClaim") {
        /// Name within the pod.
        name: Text = 1 "name",
        /// Name of an existing ResourceClaim; empty if the claim has a template.
        resource_claim_name: Text = 3 "resourceClaimName",
        /// Name of the ResourceClaimTemplate; empty if the claim exists.
        resource_claim_template_name: Text = 4 "resourceClaimTemplateName",
    }
}

message! {
    /// ResourceClaim that was created from a template for a pod.
    pub struct PodResourceClaimStatus("k8s.io.api.core.v1.PodResourceClaimStatus") {
        /// Name of the entry in the pod's `resourceClaims`.
        name: Text = 1 "name",
        /// Name of the generated ResourceClaim; absent if none was needed.
        resource_claim_name: Option<Text> = 2 "resourceClaimName",
    }
}

message! {
    /// ResourceClaim that the scheduler created for extended resources of a pod.
    pub struct PodExtendedResourceClaimStatus("k8s.io.api.core.v1.PodExtendedResourceClaimStatus") {
        /// Name of the generated ResourceClaim, in the pod's namespace.
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
