//! ClusterRoles and their aggregation.

use crate::Meta;
use crate::decode::{message, view};
use crate::selector::Selector;
use crate::text::Text;

message! {
    /// A set of permissions, granted by a ClusterRoleBinding in the cluster or by a RoleBinding in a namespace.
    pub struct ClusterRole("k8s.io.api.rbac.v1.ClusterRole") {
        /// Metadata; aggregation rules select by the labels.
        meta: Meta = 1 "metadata",
        /// Rules that grant permissions.
        rules: Box<[PolicyRule]> = 2 "rules",
        /// Selector of ClusterRoles whose rules a controller copies into `rules`; if absent, users set the rules.
        aggregation_rule: Option<Box<AggregationRule>> = 3 "aggregationRule",
    }
}

view!(
    ClusterRole,
    "rbac.authorization.k8s.io",
    "v1",
    "ClusterRole",
    "clusterroles",
    cluster_scoped
);

message! {
    /// Permissions on resources, or on non-resource URLs.
    pub struct PolicyRule("k8s.io.api.rbac.v1.PolicyRule") {
        /// Verbs such as `get` or `create`; `*` for all.
        verbs: Box<[Text]> = 1 "verbs",
        /// API groups of the resources: the empty string for the core group, `*` for all.
        api_groups: Box<[Text]> = 2 "apiGroups",
        /// Plural resource names, optionally with `/subresource`; `*` for all.
        resources: Box<[Text]> = 3 "resources",
        /// Names of the objects; empty for all objects.
        resource_names: Box<[Text]> = 4 "resourceNames",
        /// URL paths such as `/healthz`; a trailing `*` matches any suffix.
        non_resource_urls: Box<[Text]> = 5 "nonResourceURLs",
    }
}

message! {
    /// Selection of the ClusterRoles that a ClusterRole aggregates.
    pub struct AggregationRule("k8s.io.api.rbac.v1.AggregationRule") {
        /// Selectors of the ClusterRoles, in the order of their rules; a role must match any one.
        cluster_role_selectors: Box<[Selector]> = 1 "clusterRoleSelectors",
    }
}
