//! Quota evaluation: usage of objects, shared by the quota controller and by admission.
//!
//! Upstream: `pkg/quota/v1/evaluator/core` and `k8s.io/apiserver/pkg/quota/v1`.

pub mod charge;
mod devices;
mod objects;
mod pods;
mod scope;
#[cfg(test)]
mod tests;
mod usage;

pub use devices::{Classes, is_claim_of};
pub use objects::{service_type, volume_classes};
pub use pods::{grace_ends, is_charged, is_terminating, limits};
pub use usage::Usage;

use crate::text::Text;
use crate::{
    quantity::Quantity,
    time::Timestamp,
    views::{PersistentVolumeClaim, Pod, ResourceClaim, ResourceQuotaSpec, Service},
};

/// Kinds of which quotas take no notice: they are not stored, or expire by themselves.
const IGNORED: [(&str, &str); 10] = [
    ("", "bindings"),
    ("", "componentstatuses"),
    ("", "events"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
    ("events.k8s.io", "events"),
];

/// Kinds that were counted by their plain names before there was `count/`.
const ALIASES: [&str; 4] = ["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];

/// Evaluator of one kind of object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tracked {
    sort: Sort,
    /// `count/pods`, `count/deployments.apps`.
    count: Text,
    alias: Option<&'static str>,
}

/// How a kind is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// By what pods may use.
    Pods,
    /// By ports and load balancers.
    Services,
    /// By storage.
    VolumeClaims,
    /// By devices.
    DeviceClaims,
    /// By number alone.
    Plain,
}

impl Tracked {
    /// The kind with this group and plural name; `None` for one that quotas take no notice of.
    pub fn new(group: &str, resource: &str) -> Option<Self> {
        if IGNORED.contains(&(group, resource)) {
            return None;
        }
        let sort = match (group, resource) {
            ("", "pods") => Sort::Pods,
            ("", "services") => Sort::Services,
            ("", "persistentvolumeclaims") => Sort::VolumeClaims,
            ("resource.k8s.io", "resourceclaims") => Sort::DeviceClaims,
            _ => Sort::Plain,
        };
        let count = if group.is_empty() {
            format!("count/{resource}")
        } else {
            format!("count/{resource}.{group}")
        };
        let alias = ALIASES.into_iter().find(|alias| group.is_empty() && *alias == resource);
        Some(Self { sort, count: count.into(), alias })
    }

    /// How it is measured.
    pub fn sort(&self) -> Sort {
        self.sort
    }

    /// The name under which its objects are counted.
    pub fn count(&self) -> &str {
        &self.count
    }

    /// Whether objects of this kind count towards the quota resource `name`.
    pub fn tracks(&self, name: &str, classes: &Classes) -> bool {
        name == &*self.count
            || self.alias == Some(name)
            || match self.sort {
                Sort::Pods => pods::tracks(name),
                Sort::Services => objects::services_track(name),
                Sort::VolumeClaims => objects::volume_claims_track(name),
                Sort::DeviceClaims => devices::tracks(name, classes),
                Sort::Plain => false,
            }
    }

    /// Usage of one object that is only counted.
    fn one(&self) -> Usage {
        let one = Quantity::from_units(1);
        [&*self.count].into_iter().chain(self.alias).map(|name| (name, one)).collect()
    }
}

/// An object, as far as quotas look into it.
#[derive(Debug, Clone, Copy)]
pub enum Item<'a> {
    /// A pod.
    Pod(&'a Pod),
    /// A Service.
    Service(&'a Service),
    /// A PersistentVolumeClaim.
    VolumeClaim(&'a PersistentVolumeClaim),
    /// A ResourceClaim, with the pod whose extended resources it stands for, where that [is so](is_claim_of).
    DeviceClaim(&'a ResourceClaim, Option<&'a Pod>),
    /// Anything else.
    Plain,
}

impl Item<'_> {
    /// Usage of the object, by quota resource.
    pub fn usage(&self, tracked: &Tracked, classes: &Classes, now: Timestamp) -> Usage {
        let mut usage = tracked.one();
        match self {
            Item::Pod(pod) => pods::usage(pod, now, &mut usage),
            Item::Service(service) => objects::service(service, &mut usage),
            Item::VolumeClaim(claim) => objects::volume_claim(claim, &mut usage),
            Item::DeviceClaim(claim, pod) => {
                devices::usage(claim, *pod, classes, now, &mut usage);
            }
            Item::Plain => {}
        }
        usage
    }

    /// Whether a quota with this spec counts the object: it matches all of its scopes.
    pub fn is_within(&self, spec: &ResourceQuotaSpec) -> bool {
        scope::all(spec).all(|requirement| scope::holds(&requirement, self))
    }
}
