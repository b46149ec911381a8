//! ResourceQuotas and LimitRanges: limits of a namespace.

use crate::Meta;
use crate::decode::{message, view};
use crate::map::Map;
use crate::quantity::Quantity;
use crate::text::Text;

message! {
    /// Limits of the total resource use of a namespace.
    pub struct ResourceQuota("k8s.io.api.core.v1.ResourceQuota") {
        /// Metadata; the quota counts objects of its namespace.
        meta: Meta = 1 "metadata",
        /// Hard limits that the administrator sets.
        spec: ResourceQuotaSpec = 2 "spec",
        /// Enforced limits and the usage that is charged to them.
        status: ResourceQuotaStatus = 3 "status",
    }
}

view!(ResourceQuota, "", "v1", "ResourceQuota", "resourcequotas", true);

message! {
    /// Hard limits of a quota, and the scopes that it counts.
    pub struct ResourceQuotaSpec("k8s.io.api.core.v1.ResourceQuotaSpec") {
        /// Limit of each quota resource, such as `pods` or `requests.cpu`.
        hard: Map<Quantity> = 1 "hard",
        /// Scopes; only objects that match all of them count.
        scopes: Box<[Text]> = 2 "scopes",
        /// Scope selector; only objects that match it count.
        scope_selector: Option<Box<ScopeSelector>> = 3 "scopeSelector",
    }
}

message! {
    /// Enforced limits of a quota, and the usage charged to it.
    pub struct ResourceQuotaStatus("k8s.io.api.core.v1.ResourceQuotaStatus") {
        /// Enforced hard limits.
        hard: Map<Quantity> = 1 "hard",
        /// Current usage of the limited resources.
        used: Map<Quantity> = 2 "used",
    }
}

message! {
    /// Scopes of objects that a quota counts, which must all match.
    pub struct ScopeSelector("k8s.io.api.core.v1.ScopeSelector") {
        /// Requirements on scopes, all of which must hold.
        match_expressions: Box<[ScopedResourceSelectorRequirement]> = 1 "matchExpressions",
    }
}

message! {
    /// Requirement on one scope, such as `PriorityClass`: operator and values.
    pub struct ScopedResourceSelectorRequirement("k8s.io.api.core.v1.ScopedResourceSelectorRequirement") {
        /// Name of the scope, such as `PriorityClass`.
        scope_name: Text = 1 "scopeName",
        /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
        operator: Text = 2 "operator",
        /// Values that the scope is compared with.
        values: Box<[Text]> = 3 "values",
    }
}

message! {
    /// Limits and defaults of single objects in a namespace.
    pub struct LimitRange("k8s.io.api.core.v1.LimitRange") {
        /// Metadata; the limits hold for objects of its namespace.
        meta: Meta = 1 "metadata",
        /// Limits and defaults, which admission applies to new objects.
        spec: LimitRangeSpec = 2 "spec",
    }
}

view!(LimitRange, "", "v1", "LimitRange", "limitranges", true);

message! {
    /// Limits of a LimitRange, one item for each type.
    pub struct LimitRangeSpec("k8s.io.api.core.v1.LimitRangeSpec") {
        /// Limits, by type of object.
        limits: Box<[LimitRangeItem]> = 1 "limits",
    }
}

message! {
    /// Minima, maxima, defaults and ratios for pods, containers or claims.
    pub struct LimitRangeItem("k8s.io.api.core.v1.LimitRangeItem") {
        /// `Pod`, `Container` or `PersistentVolumeClaim`.
        type_: Text = 1 "type",
        /// Maximum per resource.
        max: Map<Quantity> = 2 "max",
        /// Minimum per resource.
        min: Map<Quantity> = 3 "min",
        /// Limits of containers that set none.
        default: Map<Quantity> = 4 "default",
        /// Requests of containers that set none.
        default_request: Map<Quantity> = 5 "defaultRequest",
        /// Maximum of limit divided by request, per resource.
        max_limit_request_ratio: Map<Quantity> = 6 "maxLimitRequestRatio",
    }
}
