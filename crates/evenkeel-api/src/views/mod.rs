//! Lean views of kinds, with only the fields that are read. One definition decodes a view from JSON and from
//! protobuf.
//!
//! Fields have the API's names in snake case, and an absent string is empty. A view cannot be written back, because
//! it lacks fields; clients send patches instead.

mod affinity;
mod clusterrole;
mod config;
mod container;
mod controllerrevision;
mod cronjob;
mod daemonset;
mod deployment;
mod endpoints;
mod endpointslice;
mod horizontalpodautoscaler;
mod job;
mod lease;
mod metadata;
mod namespace;
mod node;
mod persistentvolume;
mod persistentvolumeclaim;
mod pod;
mod pod_command;
mod poddisruptionbudget;
mod replicaset;
mod replicationcontroller;
mod resourceclaim;
mod resourcequota;
mod resourceslice;
mod service;
mod servicecidr;
mod statefulset;
mod storage;
mod volume;

#[cfg(test)]
mod tests;

pub use affinity::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodAffinity,
    PodAffinityTerm, PodAntiAffinity, PreferredSchedulingTerm, Toleration,
    TopologySpreadConstraint, WeightedPodAffinityTerm,
};
pub use clusterrole::{AggregationRule, ClusterRole, PolicyRule};
pub use config::{ConfigMap, ObjectReference, Secret, ServiceAccount};
pub use container::{
    BindMountOptions, Container, ContainerPort, ContainerRestartRule, ContainerState,
    ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    EphemeralContainer, EphemeralContainerCommon, Probe, ResourceRequirements, VolumeMountOptions,
};
pub use controllerrevision::ControllerRevision;
pub use cronjob::{CronJob, CronJobSpec, CronJobStatus};
pub use daemonset::{
    DaemonSet, DaemonSetCondition, DaemonSetSpec, DaemonSetStatus, DaemonSetUpdateStrategy,
    RollingUpdateDaemonSet,
};
pub use deployment::{
    Deployment, DeploymentCondition, DeploymentSpec, DeploymentStatus, DeploymentStrategy,
    RollingUpdateDeployment,
};
pub use endpoints::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints};
pub use endpointslice::{
    Endpoint, EndpointConditions, EndpointHints, EndpointSlice, ForNode, ForZone, SlicePort,
};
pub use horizontalpodautoscaler::{
    ContainerResourceMetricSource, ContainerResourceMetricStatus, CrossVersionObjectReference,
    ExternalMetricSource, ExternalMetricStatus, HorizontalPodAutoscaler,
    HorizontalPodAutoscalerBehavior, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerSpec,
    HorizontalPodAutoscalerStatus, HpaScalingPolicy, HpaScalingRules, MetricIdentifier, MetricSpec,
    MetricStatus, MetricTarget, MetricValueStatus, ObjectMetricSource, ObjectMetricStatus,
    PodsMetricSource, PodsMetricStatus, ResourceMetricSource, ResourceMetricStatus,
};
pub use job::{
    Job, JobCondition, JobSpec, JobStatus, OnExitCodes, OnPodCondition, PodFailurePolicy,
    PodFailurePolicyRule, SuccessPolicy, SuccessPolicyRule, UncountedTerminatedPods,
};
pub use lease::{Lease, LeaseSpec};
pub use metadata::{Identity, IdentityMeta, Metadata};
pub use namespace::{Namespace, NamespaceCondition, NamespaceSpec, NamespaceStatus};
pub use node::{
    AttachedVolume, ContainerImage, Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus,
    NodeSystemInfo, Taint,
};
pub use persistentvolume::{
    CinderPersistentVolumeSource, CsiPersistentVolumeSource, IscsiPersistentVolumeSource,
    NfsVolumeSource, PersistentVolume, PersistentVolumeSource, PersistentVolumeSpec,
    PersistentVolumeStatus, VolumeNodeAffinity,
};
pub use persistentvolumeclaim::{
    ModifyVolumeStatus, PersistentVolumeClaim, PersistentVolumeClaimCondition,
    PersistentVolumeClaimSpec, PersistentVolumeClaimStatus, VolumeResourceRequirements,
};
pub use pod::{
    CommonPodSpec, Pod, PodCondition, PodExtendedResourceClaimStatus, PodIp, PodReadinessGate,
    PodResourceClaim, PodResourceClaimStatus, PodSchedulingGate, PodSchedulingGroup, PodSpec,
    PodStatus,
};
pub use pod_command::{
    CommandProbe, ContainerCommand, EnvVar, EnvVarSource, EphemeralCommonCommand,
    EphemeralContainerCommand, ExecAction, ObjectFieldSelector, PodCommand, PodCommandSpec,
    ProbeHandler, VolumeMount,
};
pub use poddisruptionbudget::{
    MetaCondition, PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus,
};
pub use replicaset::{ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus};
pub use replicationcontroller::{
    ReplicationController, ReplicationControllerCondition, ReplicationControllerSpec,
    ReplicationControllerStatus,
};
pub use resourceclaim::{
    AllocatedDeviceStatus, AllocationResult, CapacityRequirements, CelDeviceSelector,
    DeviceAllocationResult, DeviceClaim, DeviceClaimConfiguration, DeviceClass,
    DeviceClassConfiguration, DeviceClassSpec, DeviceConfiguration, DeviceConstraint,
    DeviceRequest, DeviceRequestAllocationResult, DeviceSelector, DeviceSubRequest,
    DeviceToleration, ExactDeviceRequest, OpaqueDeviceConfiguration, ResourceClaim,
    ResourceClaimConsumerReference, ResourceClaimSpec, ResourceClaimStatus,
};
pub use resourcequota::{
    LimitRange, LimitRangeItem, LimitRangeSpec, ResourceQuota, ResourceQuotaSpec,
    ResourceQuotaStatus, ScopeSelector, ScopedResourceSelectorRequirement,
};
pub use resourceslice::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Counter, CounterSet, Device,
    DeviceAttribute, DeviceCapacity, DeviceCounterConsumption, DeviceTaint, DeviceTaintRule,
    DeviceTaintRuleSpec, DeviceTaintSelector, ResourcePool, ResourceSlice, ResourceSliceSpec,
};
pub use service::{
    ClientIpConfig, LoadBalancerIngress, LoadBalancerStatus, PortStatus, Service, ServicePort,
    ServiceSpec, ServiceStatus, SessionAffinityConfig,
};
pub use servicecidr::{ServiceCidr, ServiceCidrSpec, ServiceCidrStatus};
pub use statefulset::{
    RollingUpdateStatefulSetStrategy, StatefulSet, StatefulSetCondition, StatefulSetOrdinals,
    StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec, StatefulSetStatus,
    StatefulSetUpdateStrategy,
};
pub use storage::{
    CsiDriver, CsiDriverSpec, CsiNode, CsiNodeDriver, CsiNodeSpec, CsiStorageCapacity,
    StorageClass, TopologySelectorLabelRequirement, TopologySelectorTerm, VolumeAttachment,
    VolumeAttachmentSource, VolumeAttachmentSpec, VolumeAttachmentStatus, VolumeAttributesClass,
    VolumeError, VolumeNodeResources,
};
pub use volume::{
    AwsElasticBlockStoreVolumeSource, AzureDiskVolumeSource, CinderVolumeSource,
    ConfigMapVolumeSource, CsiVolumeSource, EmptyDirVolumeSource, EphemeralVolumeSource,
    FcVolumeSource, GcePersistentDiskVolumeSource, HostPathVolumeSource, IscsiVolumeSource,
    LocalObjectReference, PersistentVolumeClaimVolumeSource, PortworxVolumeSource, RbdVolumeSource,
    SecretVolumeSource, Volume, VolumeSource, VsphereVirtualDiskVolumeSource,
};

/// Calls a macro with the names of all views, for tests that hold for each.
#[cfg(test)]
macro_rules! with_all_views {
    ($check:ident) => {
        $check! {
            ClusterRole, ConfigMap, ControllerRevision, CronJob, CsiDriver, CsiNode,
            CsiStorageCapacity, DaemonSet, Deployment, DeviceClass, DeviceTaintRule,
            EndpointSlice, Endpoints, HorizontalPodAutoscaler, Job, Lease, LimitRange,
            Metadata, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod,
            PodCommand, PodDisruptionBudget, ReplicaSet, ReplicationController, ResourceClaim,
            ResourceQuota, ResourceSlice, Secret, Service, ServiceAccount, ServiceCidr,
            StatefulSet, StorageClass, VolumeAttachment, VolumeAttributesClass
        }
    };
}
#[cfg(test)]
pub(crate) use with_all_views;
