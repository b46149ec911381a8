//! Conditions of workloads, as their status writes them.

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

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub(crate) type_: Text,
    /// `True`, `False` or `Unknown`.
    pub(crate) status: Text,
    /// When it was last looked at, for the kinds that say so.
    #[serde(serialize_with = "wire::time", skip_serializing_if = "Option::is_none")]
    pub(crate) last_probe_time: Option<Timestamp>,
    /// When it was last written, for the kinds that say so.
    #[serde(serialize_with = "wire::time", skip_serializing_if = "Option::is_none")]
    pub(crate) last_update_time: Option<Timestamp>,
    /// When the status last changed.
    #[serde(serialize_with = "wire::time", skip_serializing_if = "Option::is_none")]
    pub(crate) last_transition_time: Option<Timestamp>,
    /// Why, in one CamelCase word.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) reason: Text,
    /// Why, for people.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) message: Text,
}

impl Condition {
    /// A condition without times.
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

    /// The same, having come about now.
    pub(crate) fn transitioned(mut self, now: Timestamp) -> Self {
        self.last_transition_time = Some(wire::whole_second(now));
        self
    }

    /// The same, looked at now.
    pub(crate) fn probed(mut self, now: Timestamp) -> Self {
        self.last_probe_time = Some(wire::whole_second(now));
        self
    }

    /// Whether both say the same, whenever it came about.
    pub(crate) fn says_as(&self, other: &Self) -> bool {
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
