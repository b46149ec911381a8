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
pub use pods::{grace_period_end, is_charged, is_terminating, limits};
pub use usage::Usage;

use evenkeel_api::text::Text;
use evenkeel_api::{
    quantity::Quantity,
    time::Timestamp,
    views::{PersistentVolumeClaim, Pod, ResourceClaim, ResourceQuotaSpec, Service},
};

/// Resources that quotas ignore, because their objects are not stored or expire by themselves.
const IGNORED_RESOURCES: [(&str, &str); 10] = [
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

/// Resources that quotas also count under their plain names, which predate the prefix `count/`.
const ALIASES: [&str; 4] = ["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];

/// Evaluator of one resource's objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluator {
    kind: EvaluatorKind,
    /// Quota resource that counts the objects, such as `count/pods` or `count/deployments.apps`.
    count: Text,
    /// Plain name of the same quota resource, for resources in [`ALIASES`].
    alias: Option<&'static str>,
}

/// Properties of a resource's objects that quotas measure besides their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvaluatorKind {
    /// Resource requests and limits of pods.
    Pods,
    /// Node ports and load balancers of Services.
    Services,
    /// Requested storage of claims.
    VolumeClaims,
    /// Requested devices of ResourceClaims.
    DeviceClaims,
    /// Only the number of objects.
    Plain,
}

impl Evaluator {
    /// Returns the evaluator of a resource, or `None` for one that quotas ignore.
    pub fn new(group: &str, resource: &str) -> Option<Self> {
        if IGNORED_RESOURCES.contains(&(group, resource)) {
            return None;
        }
        let kind = match (group, resource) {
            ("", "pods") => EvaluatorKind::Pods,
            ("", "services") => EvaluatorKind::Services,
            ("", "persistentvolumeclaims") => EvaluatorKind::VolumeClaims,
            ("resource.k8s.io", "resourceclaims") => EvaluatorKind::DeviceClaims,
            _ => EvaluatorKind::Plain,
        };
        let count = if group.is_empty() {
            format!("count/{resource}")
        } else {
            format!("count/{resource}.{group}")
        };
        let alias = ALIASES.into_iter().find(|alias| group.is_empty() && *alias == resource);
        Some(Self { kind, count: count.into(), alias })
    }

    /// Returns the properties that quotas measure besides the number of objects.
    pub fn kind(&self) -> EvaluatorKind {
        self.kind
    }

    /// Returns the quota resource that counts the objects, such as `count/pods`.
    pub fn count(&self) -> &str {
        &self.count
    }

    /// Returns whether objects of this resource count towards the quota resource `name`.
    pub fn matches_resource(&self, name: &str, classes: &Classes) -> bool {
        name == &*self.count
            || self.alias == Some(name)
            || match self.kind {
                EvaluatorKind::Pods => pods::matches_resource(name),
                EvaluatorKind::Services => objects::services_match_resource(name),
                EvaluatorKind::VolumeClaims => objects::volume_claims_match_resource(name),
                EvaluatorKind::DeviceClaims => devices::matches_resource(name, classes),
                EvaluatorKind::Plain => false,
            }
    }

    /// Returns the usage that every object has: a count of one.
    fn count_of_one(&self) -> Usage {
        let one = Quantity::from_units(1);
        [&*self.count].into_iter().chain(self.alias).map(|name| (name, one)).collect()
    }
}

/// Object with the fields that quotas evaluate.
#[derive(Debug, Clone, Copy)]
pub enum Item<'a> {
    /// Pod with its requests and limits.
    Pod(&'a Pod),
    /// Service with its node ports and its load balancer.
    Service(&'a Service),
    /// PersistentVolumeClaim with its storage, in total and by class.
    VolumeClaim(&'a PersistentVolumeClaim),
    /// ResourceClaim, with the pod for whose extended resources it was generated (see [`is_claim_of`]).
    DeviceClaim(&'a ResourceClaim, Option<&'a Pod>),
    /// Object of another kind. Quotas only count such objects.
    Plain,
}

impl Item<'_> {
    /// Returns the usage of the object, by quota resource.
    pub fn usage(&self, evaluator: &Evaluator, classes: &Classes, now: Timestamp) -> Usage {
        let mut usage = evaluator.count_of_one();
        match self {
            Item::Pod(pod) => pods::usage(pod, now, &mut usage),
            Item::Service(service) => objects::service_usage(service, &mut usage),
            Item::VolumeClaim(claim) => objects::volume_claim_usage(claim, &mut usage),
            Item::DeviceClaim(claim, pod) => {
                devices::usage(claim, *pod, classes, now, &mut usage);
            }
            Item::Plain => {}
        }
        usage
    }

    /// Returns whether the object matches all scopes of a quota with this spec, so that the quota counts it.
    pub fn is_within(&self, spec: &ResourceQuotaSpec) -> bool {
        scope::requirements(spec).all(|requirement| scope::matches(&requirement, self))
    }
}
