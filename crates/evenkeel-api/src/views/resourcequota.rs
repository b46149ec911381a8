//! ResourceQuotas and LimitRanges: limits within a namespace.

use crate::Meta;
use crate::decode::{message, view};
use crate::map::Map;
use crate::quantity::Quantity;
use crate::text::Text;

message! {
    /// ResourceQuota, which limits the total resource usage of a namespace.
    pub struct ResourceQuota("k8s.io.api.core.v1.ResourceQuota") {
        /// Metadata; the quota counts objects of its namespace.
        meta: Meta = 1 "metadata",
        /// Hard limits that the administrator sets.
        spec: ResourceQuotaSpec = 2 "spec",
        /// Enforced limits, and the usage that counts toward them.
        status: ResourceQuotaStatus = 3 "status",
    }
}

view!(ResourceQuota, "", "v1", "ResourceQuota", "resourcequotas", namespaced);

message! {
    /// Hard limits of a quota, and the scopes of counted objects.
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
    /// Enforced limits of a quota, and the usage that counts toward them.
    pub struct ResourceQuotaStatus("k8s.io.api.core.v1.ResourceQuotaStatus") {
        /// Enforced hard limits.
        hard: Map<Quantity> = 1 "hard",
        /// Current usage of the limited resources.
        used: Map<Quantity> = 2 "used",
    }
}

message! {
    /// Scopes of the counted objects. An object must match all of them.
    pub struct ScopeSelector("k8s.io.api.core.v1.ScopeSelector") {
        /// Requirements on scopes. All of them must match.
        match_expressions: Box<[ScopedResourceSelectorRequirement]> = 1 "matchExpressions",
    }
}

message! {
    /// Requirement on one scope, such as `PriorityClass`.
    pub struct ScopedResourceSelectorRequirement("k8s.io.api.core.v1.ScopedResourceSelectorRequirement") {
        /// Name of the scope, such as `PriorityClass`.
        scope_name: Text = 1 "scopeName",
        /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
        operator: Text = 2 "operator",
        /// Values to compare the scope with.
        values: Box<[Text]> = 3 "values",
    }
}

message! {
    /// LimitRange, with limits and defaults for single objects in a namespace.
    pub struct LimitRange("k8s.io.api.core.v1.LimitRange") {
        /// Metadata; the limits apply to objects of its namespace.
        meta: Meta = 1 "metadata",
        /// Limits and defaults, which admission applies to new objects.
        spec: LimitRangeSpec = 2 "spec",
    }
}

view!(LimitRange, "", "v1", "LimitRange", "limitranges", namespaced);

message! {
    /// Limits of a LimitRange, one item per type.
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
        /// Maximum by resource name.
        max: Map<Quantity> = 2 "max",
        /// Minimum by resource name.
        min: Map<Quantity> = 3 "min",
        /// Default limits of containers.
        default: Map<Quantity> = 4 "default",
        /// Default requests of containers.
        default_request: Map<Quantity> = 5 "defaultRequest",
        /// Maximum ratio of limit to request, by resource name.
        max_limit_request_ratio: Map<Quantity> = 6 "maxLimitRequestRatio",
    }
}
