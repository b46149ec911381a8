//! ClusterRoles and their aggregation.

use crate::Meta;
use crate::decode::{message, view};
use crate::selector::Selector;
use crate::text::Text;

message! {
    /// Permissions, granted cluster-wide or by a RoleBinding.
    pub struct ClusterRole("k8s.io.api.rbac.v1.ClusterRole") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// Rules that grant permissions.
        rules: Box<[PolicyRule]> = 2 "rules",
        /// Which other roles' rules these are, if they are others'.
        aggregation_rule: Option<Box<AggregationRule>> = 3 "aggregationRule",
    }
}

view!(ClusterRole, "rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", false);

message! {
    /// Permissions on resources, or on non-resource URLs.
    pub struct PolicyRule("k8s.io.api.rbac.v1.PolicyRule") {
        /// Verbs.
        verbs: Box<[Text]> = 1 "verbs",
        /// API groups.
        api_groups: Box<[Text]> = 2 "apiGroups",
        /// Resources.
        resources: Box<[Text]> = 3 "resources",
        /// Only objects of these names.
        resource_names: Box<[Text]> = 4 "resourceNames",
        /// Paths that are no resources.
        non_resource_urls: Box<[Text]> = 5 "nonResourceURLs",
    }
}

message! {
    /// Which roles a role is put together from.
    pub struct AggregationRule("k8s.io.api.rbac.v1.AggregationRule") {
        /// Those that any of these selects, in this order.
        cluster_role_selectors: Box<[Selector]> = 1 "clusterRoleSelectors",
    }
}
