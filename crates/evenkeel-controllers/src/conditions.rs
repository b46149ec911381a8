//! Conditions in the status of workloads, claims and namespaces, as JSON.

use crate::wire;
use evenkeel_api::{
    Text,
    time::Timestamp,
    views::{
        DaemonSetCondition, DeploymentCondition, JobCondition, PersistentVolumeClaimCondition,
        ReplicaSetCondition, ReplicationControllerCondition, StatefulSetCondition,
    },
};
use serde::Serialize;

/// A condition of a workload, a claim or a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Condition {
    /// The condition's type, such as `Progressing`.
    #[serde(rename = "type")]
    pub(crate) type_: Text,
    /// `True`, `False` or `Unknown`.
    pub(crate) status: Text,
    /// Time of the last probe, for kinds with this field.
    #[serde(serialize_with = "wire::serialize_time", skip_serializing_if = "Option::is_none")]
    pub(crate) last_probe_time: Option<Timestamp>,
    /// Time of the last update, for kinds with this field.
    #[serde(serialize_with = "wire::serialize_time", skip_serializing_if = "Option::is_none")]
    pub(crate) last_update_time: Option<Timestamp>,
    /// Time of the last change of `status`.
    #[serde(serialize_with = "wire::serialize_time", skip_serializing_if = "Option::is_none")]
    pub(crate) last_transition_time: Option<Timestamp>,
    /// Machine-readable reason in CamelCase.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) reason: Text,
    /// Human-readable details of the last transition.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) message: Text,
}

impl Condition {
    /// Returns a condition without times.
    pub(crate) fn new(type_: &str, status: &str, reason: &str, message: &str) -> Self {
        Self {
            type_: type_.into(),
            status: status.into(),
            last_probe_time: None,
            last_update_time: None,
            last_transition_time: None,
            reason: reason.into(),
            message: message.into(),
        }
    }

    pub(crate) fn with_transition_time(mut self, now: Timestamp) -> Self {
        self.last_transition_time = Some(wire::whole_second(now));
        self
    }

    pub(crate) fn with_probe_time(mut self, now: Timestamp) -> Self {
        self.last_probe_time = Some(wire::whole_second(now));
        self
    }

    /// Returns whether type, status, reason and message are equal. Times are ignored.
    pub(crate) fn equal_apart_from_times(&self, other: &Self) -> bool {
        (&self.type_, &self.status, &self.reason, &self.message)
            == (&other.type_, &other.status, &other.reason, &other.message)
    }
}

impl From<&JobCondition> for Condition {
    fn from(c: &JobCondition) -> Self {
        Self {
            last_probe_time: c.last_probe_time,
            last_transition_time: c.last_transition_time,
            ..Self::new(&c.type_, &c.status, &c.reason, &c.message)
        }
    }
}

impl From<&PersistentVolumeClaimCondition> for Condition {
    fn from(c: &PersistentVolumeClaimCondition) -> Self {
        Self {
            last_probe_time: c.last_probe_time,
            last_transition_time: c.last_transition_time,
            ..Self::new(&c.type_, &c.status, &c.reason, &c.message)
        }
    }
}

impl From<&ReplicaSetCondition> for Condition {
    fn from(c: &ReplicaSetCondition) -> Self {
        Self {
            last_transition_time: c.last_transition_time,
            ..Self::new(&c.type_, &c.status, &c.reason, &c.message)
        }
    }
}

impl From<&ReplicationControllerCondition> for Condition {
    fn from(c: &ReplicationControllerCondition) -> Self {
        Self {
            last_transition_time: c.last_transition_time,
            ..Self::new(&c.type_, &c.status, &c.reason, &c.message)
        }
    }
}

impl From<&StatefulSetCondition> for Condition {
    fn from(c: &StatefulSetCondition) -> Self {
        Self {
            last_transition_time: c.last_transition_time,
            ..Self::new(&c.type_, &c.status, &c.reason, &c.message)
        }
    }
}

impl From<&DaemonSetCondition> for Condition {
    fn from(c: &DaemonSetCondition) -> Self {
        Self {
            last_transition_time: c.last_transition_time,
            ..Self::new(&c.type_, &c.status, &c.reason, &c.message)
        }
    }
}

impl From<&DeploymentCondition> for Condition {
    fn from(c: &DeploymentCondition) -> Self {
        Self {
            last_update_time: c.last_update_time,
            last_transition_time: c.last_transition_time,
            ..Self::new(&c.type_, &c.status, &c.reason, &c.message)
        }
    }
}
