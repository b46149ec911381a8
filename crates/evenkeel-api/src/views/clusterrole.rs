//! ClusterRoles and their aggregation.

use crate::Meta;
use crate::decode::{message, view};
use crate::selector::Selector;
use crate::text::Text;

message! {
    /// Permissions, granted cluster-wide or by a RoleBinding.
    pub struct ClusterRole("k8s.io.api.rbac.v1.ClusterRole") {
        /// Metadata; labels are what aggregation rules select by.
        meta: Meta = 1 "metadata",
        /// Rules that grant permissions.
        rules: Box<[PolicyRule]> = 2 "rules",
        /// Selects the ClusterRoles whose rules a controller copies into `rules`; absent, the rules are set by users.
        aggregation_rule: Option<Box<AggregationRule>> = 3 "aggregationRule",
    }
}

view!(ClusterRole, "rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", false);

message! {
    /// Permissions on resources, or on non-resource URLs.
    pub struct PolicyRule("k8s.io.api.rbac.v1.PolicyRule") {
        /// Verbs such as `get` or `create`; `*` for all.
        verbs: Box<[Text]> = 1 "verbs",
        /// API groups of the resources; the empty string is the core group, `*` stands for all.
        api_groups: Box<[Text]> = 2 "apiGroups",
        /// Plural names, with `/subresource` where one is meant; `*` for all.
        resources: Box<[Text]> = 3 "resources",
        /// Names of the objects; empty for all objects.
        resource_names: Box<[Text]> = 4 "resourceNames",
        /// URL paths such as `/healthz`; a trailing `*` matches any rest.
        non_resource_urls: Box<[Text]> = 5 "nonResourceURLs",
    }
}

message! {
    /// Selects the ClusterRoles that a ClusterRole aggregates.
    pub struct AggregationRule("k8s.io.api.rbac.v1.AggregationRule") {
        /// Selectors of the ClusterRoles, in the order of their rules; matching any of them suffices.
        cluster_role_selectors: Box<[Selector]> = 1 "clusterRoleSelectors",
    }
}
