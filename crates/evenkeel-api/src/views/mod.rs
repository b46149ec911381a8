//! Lean views: kinds as their readers see them, each from one definition for JSON and protobuf.
//!
//! Fields are named as in the API, in snake case; a string that is absent is empty; what nobody reads is not there. A
//! view cannot be written back: changes go out as patches.

mod affinity;
mod autoscaler;
mod cluster_role;
mod config;
mod container;
mod controller_revision;
mod cron_job;
mod daemon_set;
mod deployment;
mod disruption;
mod endpoint_slice;
mod endpoints;
mod job;
mod lease;
mod metadata;
mod namespace;
mod node;
mod persistent_volume;
mod persistent_volume_claim;
mod pod;
mod pod_command;
mod replica_set;
mod replication_controller;
mod resource_claim;
mod resource_quota;
mod resource_slice;
mod service;
mod service_cidr;
mod stateful_set;
mod storage;
mod volume;

#[cfg(test)]
mod tests;

pub use affinity::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodAffinity,
    PodAffinityTerm, PodAntiAffinity, PreferredSchedulingTerm, Toleration,
    TopologySpreadConstraint, WeightedPodAffinityTerm,
};
pub use autoscaler::{
    ContainerResourceMetricSource, ContainerResourceMetricStatus, CrossVersionObjectReference,
    ExternalMetricSource, ExternalMetricStatus, HorizontalPodAutoscaler,
    HorizontalPodAutoscalerBehavior, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerSpec,
    HorizontalPodAutoscalerStatus, HpaScalingPolicy, HpaScalingRules, MetricIdentifier, MetricSpec,
    MetricStatus, MetricTarget, MetricValueStatus, ObjectMetricSource, ObjectMetricStatus,
    PodsMetricSource, PodsMetricStatus, ResourceMetricSource, ResourceMetricStatus,
};
pub use cluster_role::{AggregationRule, ClusterRole, PolicyRule};
pub use config::{ConfigMap, ObjectReference, Secret, ServiceAccount};
pub use container::{
    BindMountOptions, Container, ContainerPort, ContainerRestartRule, ContainerState,
    ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, Probe,
    ResourceRequirements, VolumeMountOptions,
};
pub use controller_revision::ControllerRevision;
pub use cron_job::{CronJob, CronJobSpec, CronJobStatus};
pub use daemon_set::{
    DaemonSet, DaemonSetCondition, DaemonSetSpec, DaemonSetStatus, DaemonSetUpdateStrategy,
    RollingUpdateDaemonSet,
};
pub use deployment::{
    Deployment, DeploymentCondition, DeploymentSpec, DeploymentStatus, DeploymentStrategy,
    RollingUpdateDeployment,
};
pub use disruption::{
    MetaCondition, PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus,
};
pub use endpoint_slice::{
    Endpoint, EndpointConditions, EndpointHints, EndpointSlice, ForNode, ForZone, SlicePort,
};
pub use endpoints::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints};
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
pub use persistent_volume::{
    CinderPersistentVolumeSource, CsiPersistentVolumeSource, IscsiPersistentVolumeSource,
    NfsVolumeSource, PersistentVolume, PersistentVolumeSource, PersistentVolumeSpec,
    PersistentVolumeStatus, VolumeNodeAffinity,
};
pub use persistent_volume_claim::{
    ModifyVolumeStatus, PersistentVolumeClaim, PersistentVolumeClaimCondition,
    PersistentVolumeClaimSpec, PersistentVolumeClaimStatus, VolumeResourceRequirements,
};
pub use pod::{
    CommonPodSpec, Pod, PodCondition, PodExtendedResourceClaimStatus, PodIp, PodReadinessGate,
    PodResourceClaim, PodResourceClaimStatus, PodSchedulingGate, PodSchedulingGroup, PodSpec,
    PodStatus,
};
pub use pod_command::{
    ContainerCommand, EnvVar, EnvVarSource, ExecAction, ExecHandler, ObjectFieldSelector,
    PodCommand, PodCommandSpec, ProbeHandler, VolumeMount,
};
pub use replica_set::{ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus};
pub use replication_controller::{
    ReplicationController, ReplicationControllerCondition, ReplicationControllerSpec,
    ReplicationControllerStatus,
};
pub use resource_claim::{
    AllocatedDeviceStatus, AllocationResult, CapacityRequirements, CelDeviceSelector,
    DeviceAllocationResult, DeviceClaim, DeviceClaimConfiguration, DeviceClass,
    DeviceClassConfiguration, DeviceClassSpec, DeviceConfiguration, DeviceConstraint,
    DeviceRequest, DeviceRequestAllocationResult, DeviceSelector, DeviceSubRequest,
    DeviceToleration, ExactDeviceRequest, OpaqueDeviceConfiguration, ResourceClaim,
    ResourceClaimConsumerReference, ResourceClaimSpec, ResourceClaimStatus,
};
pub use resource_quota::{
    LimitRange, LimitRangeItem, LimitRangeSpec, ResourceQuota, ResourceQuotaSpec,
    ResourceQuotaStatus, ScopeSelector, ScopedResourceSelectorRequirement,
};
pub use resource_slice::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Counter, CounterSet, Device,
    DeviceAttribute, DeviceCapacity, DeviceCounterConsumption, DeviceTaint, DeviceTaintRule,
    DeviceTaintRuleSpec, DeviceTaintSelector, ResourcePool, ResourceSlice, ResourceSliceSpec,
};
pub use service::{
    ClientIpConfig, LoadBalancerIngress, LoadBalancerStatus, PortStatus, Service, ServicePort,
    ServiceSpec, ServiceStatus, SessionAffinityConfig,
};
pub use service_cidr::{ServiceCidr, ServiceCidrSpec, ServiceCidrStatus};
pub use stateful_set::{
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
